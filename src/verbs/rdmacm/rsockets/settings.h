// Sizes of rsockets: the administrator's defaults, which a program may change per socket.
#pragma once

#include <cstdint>

namespace rdmalab::rdmacm {

struct Settings {
    std::uint32_t receive_bytes = 128 * 1024;  // mem_default
    std::uint32_t send_bytes = 128 * 1024;     // wmem_default
    std::uint32_t send_wrs = 384;              // sqsize_default
    std::uint32_t receive_wrs = 384;           // rqsize_default
    std::uint32_t inline_bytes = 64;           // inline_default
    std::uint32_t iomap_entries = 0;           // iomap_size
    std::uint32_t polling_us = 10;             // polling_time
    std::uint32_t wake_up_ms = 100;            // wake_up_interval

    // Into what the protocol and the card can do.
    void clamp();
};

// Internal defaults, overridden by the files in /etc/rdma/rsocket. Read once per process.
const Settings& default_settings();

}  // namespace rdmalab::rdmacm

// Receive side scaling: which of several queues a frame goes to, by a Toeplitz hash over some of
// its addresses and ports, so that the frames of one conversation stay together.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "card/ring_abi.h"
#include "flow/rule_parser.h"

namespace rdmalab::card {

// Values of enum ibv_rx_hash_fields.
enum HashFields : std::uint32_t {
    kHashSourceIpv4 = 1 << 0,
    kHashDestinationIpv4 = 1 << 1,
    kHashSourceIpv6 = 1 << 2,
    kHashDestinationIpv6 = 1 << 3,
    kHashSourceTcp = 1 << 4,
    kHashDestinationTcp = 1 << 5,
    kHashSourceUdp = 1 << 6,
    kHashDestinationUdp = 1 << 7,
    kHashEspSpi = 1 << 8,
};
inline constexpr std::uint32_t kHashFieldsAll = 0x1ff;

struct HashSpread {
    std::uint32_t fields = 0;  // HashFields; of the inner packet when `is_inner`
    bool is_inner = false;
    std::array<std::uint8_t, abi::kHashKeyLength> key{};
    std::vector<Qpn> table;  // its size is a power of two

    // The fields that the frame has, addresses before ports, source before destination. A frame
    // that has none of them hashes to 0.
    std::uint32_t hash(const flow::FlatFrame& frame) const;
    Qpn choose(const flow::FlatFrame& frame) const {
        return table[hash(frame) & (table.size() - 1)];
    }
};

}  // namespace rdmalab::card

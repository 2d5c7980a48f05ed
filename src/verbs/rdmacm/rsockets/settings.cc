#include "verbs/rdmacm/rsockets/settings.h"

#include <stdio.h>

#include <algorithm>

#include "verbs/rdmacm/rsockets/stream_protocol.h"

namespace rdmalab::rdmacm {

namespace {

void read_file(const char* name, std::uint32_t& value) {
    char path[64];
    snprintf(path, sizeof path, "/etc/rdma/rsocket/%s", name);
    FILE* file = fopen(path, "re");
    if (file == nullptr) return;
    unsigned found = 0;
    if (fscanf(file, "%u", &found) == 1) value = found;
    fclose(file);
}

Settings read_all() {
    Settings out;
    read_file("mem_default", out.receive_bytes);
    read_file("wmem_default", out.send_bytes);
    read_file("sqsize_default", out.send_wrs);
    read_file("rqsize_default", out.receive_wrs);
    read_file("inline_default", out.inline_bytes);
    read_file("iomap_size", out.iomap_entries);
    read_file("polling_time", out.polling_us);
    read_file("wake_up_interval", out.wake_up_ms);
    out.clamp();
    return out;
}

}  // namespace

void Settings::clamp() {
    constexpr std::uint32_t kInlineMax = 512, kIomapMax = 128, kPollingMaxUs = 1'000'000;
    receive_bytes = std::clamp(receive_bytes, stream::kRingMin, stream::kRingMax);
    receive_bytes -= receive_bytes % stream::kGrantUnit;
    send_bytes = std::clamp(send_bytes, stream::kRingMin, stream::kRingMax);
    send_wrs = std::clamp(send_wrs, stream::kSlotsMin, stream::kSlotsMax);
    receive_wrs = std::clamp(receive_wrs, stream::kSlotsMin, stream::kSlotsMax);
    inline_bytes = std::min(inline_bytes, kInlineMax);
    iomap_entries = std::min(iomap_entries, kIomapMax);
    polling_us = std::min(polling_us, kPollingMaxUs);
    wake_up_ms = std::clamp(wake_up_ms, 1u, 10'000u);
}

const Settings& default_settings() {
    static const Settings settings = read_all();
    return settings;
}

}  // namespace rdmalab::rdmacm

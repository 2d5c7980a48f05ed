// Names of enum values, in the terms of IBTA vol. 1 (9.9, 11.6.2, 11.6.3), and conversions of
// rates.
#include <iterator>

#include "verbs/api.h"

namespace {

template <std::size_t N>
const char* name_in(const char* const (&names)[N], int value, const char* unknown) {
    bool known = value >= 0 && static_cast<std::size_t>(value) < N && names[value] != nullptr;
    return known ? names[value] : unknown;
}

constexpr const char* kNodeTypes[] = {
    "unknown",           "InfiniBand channel adapter",
    "InfiniBand switch", "InfiniBand router",
    "iWARP NIC",         "usNIC",
    "usNIC UDP",         "unspecified",
};

constexpr const char* kPortStates[] = {
    "no state change", "down", "init", "armed", "active", "active defer",
};

constexpr const char* kEvents[] = {
    "CQ error",
    "local work queue catastrophic error",
    "invalid request local work queue error",
    "local access violation work queue error",
    "communication established",
    "send queue drained",
    "path migrated",
    "path migration request error",
    "local catastrophic error",
    "port active",
    "port error",
    "LID change",
    "P_Key change",
    "SM change",
    "SRQ catastrophic error",
    "SRQ limit reached",
    "last WQE reached",
    "client reregistration",
    "GID table change",
    "WQ fatal",
};

constexpr const char* kStatuses[] = {
    "success",
    "local length error",
    "local QP operation error",
    "local EE context operation error",
    "local protection error",
    "Work Request Flushed Error",
    "memory management operation error",
    "bad response error",
    "local access error",
    "remote invalid request error",
    "remote access error",
    "remote operation error",
    "transport retry counter exceeded",
    "RNR retry counter exceeded",
    "local RDD violation error",
    "remote invalid RD request",
    "aborted error",
    "invalid EE context number",
    "invalid EE context state",
    "fatal error",
    "response timeout error",
    "general error",
    "tag matching error",
    "tag matching rendezvous incomplete",
};

// Multiples of 2.5 Gb/s and the signalling rates in Mb/s.
struct Rate {
    ibv_rate rate;
    int multiple;
    int mbps;
};
constexpr Rate kRates[] = {
    {IBV_RATE_2_5_GBPS, 1, 2'500},        {IBV_RATE_5_GBPS, 2, 5'000},
    {IBV_RATE_10_GBPS, 4, 10'000},        {IBV_RATE_20_GBPS, 8, 20'000},
    {IBV_RATE_30_GBPS, 12, 30'000},       {IBV_RATE_40_GBPS, 16, 40'000},
    {IBV_RATE_60_GBPS, 24, 60'000},       {IBV_RATE_80_GBPS, 32, 80'000},
    {IBV_RATE_120_GBPS, 48, 120'000},     {IBV_RATE_28_GBPS, 11, 28'125},
    {IBV_RATE_50_GBPS, 20, 53'125},       {IBV_RATE_400_GBPS, 160, 425'000},
    {IBV_RATE_600_GBPS, 240, 637'500},    {IBV_RATE_800_GBPS, 320, 850'000},
    {IBV_RATE_1200_GBPS, 480, 1'275'000}, {IBV_RATE_14_GBPS, -1, 14'062},
    {IBV_RATE_56_GBPS, -1, 56'250},       {IBV_RATE_112_GBPS, -1, 112'500},
    {IBV_RATE_168_GBPS, -1, 168'750},     {IBV_RATE_25_GBPS, -1, 25'781},
    {IBV_RATE_100_GBPS, -1, 103'125},     {IBV_RATE_200_GBPS, -1, 206'250},
    {IBV_RATE_300_GBPS, -1, 309'375},
};

}  // namespace

extern "C" const char* ibv_node_type_str(ibv_node_type type) {
    return name_in(kNodeTypes, type, "unknown");
}

extern "C" const char* ibv_port_state_str(ibv_port_state state) {
    return name_in(kPortStates, state, "invalid state");
}

extern "C" const char* ibv_event_type_str(ibv_event_type event) {
    return name_in(kEvents, event, "unknown");
}

extern "C" const char* ibv_wc_status_str(ibv_wc_status status) {
    return name_in(kStatuses, status, "unknown");
}

extern "C" int ibv_rate_to_mult(ibv_rate rate) {
    for (const Rate& r : kRates) {
        if (r.rate == rate) return r.multiple;
    }
    return -1;
}

extern "C" ibv_rate mult_to_ibv_rate(int multiple) {
    for (const Rate& r : kRates) {
        if (r.multiple == multiple && multiple > 0) return r.rate;
    }
    return IBV_RATE_MAX;
}

extern "C" int ibv_rate_to_mbps(ibv_rate rate) {
    for (const Rate& r : kRates) {
        if (r.rate == rate) return r.mbps;
    }
    return -1;
}

extern "C" ibv_rate mbps_to_ibv_rate(int mbps) {
    for (const Rate& r : kRates) {
        if (r.mbps == mbps) return r.rate;
    }
    return IBV_RATE_MAX;
}

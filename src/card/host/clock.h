// The card's clock (CLOCK_MONOTONIC), read once per round, and wall-clock time for captures.
#pragma once

#include <ctime>

#include "base/units.h"

namespace rdmalab::card::host {

inline Instant monotonic_now() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return {now.tv_sec * 1'000'000'000 + now.tv_nsec};
}

inline std::int64_t epoch_ns_now() {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

}  // namespace rdmalab::card::host

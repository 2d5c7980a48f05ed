// Spaces the packets of a flow by its rate. Time is counted in bytes' worth: each packet moves the
// time of the next by its own duration at the rate.
//
// Two allowances make it cheap and true on a machine that is not real-time: a flow that fell behind
// may catch up (kCreditMax), and packets go out in small groups (kGroup) instead of a timer for
// each.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/units.h"
#include "pcc/pcc_abi.h"

namespace rdmalab::pcc {

class Pacer {
public:
    static constexpr Duration kCreditMax = microseconds(500);
    static constexpr Duration kGroup = microseconds(30);
    // The longest wait without another look at the rate.
    static constexpr Duration kWaitMax = milliseconds(1);

    // What is still owed is owed at the new rate.
    void set_rate(std::uint32_t rate, std::uint64_t line_bps, Instant now) {
        const std::uint64_t cost = cost_of(rate, line_bps);
        if (cost == cost_) return;
        if (cost_ == 0) {
            next_ = now;  // what was sent without a limit is neither owed nor saved
        } else if (next_ > now) {
            const auto owed = static_cast<unsigned __int128>((next_ - now).ns) * cost / cost_;
            next_ = now + nanoseconds(static_cast<std::int64_t>(owed));
        }
        cost_ = cost;
    }
    bool is_unlimited() const { return cost_ == 0; }

    void charge(std::uint32_t bytes, Instant now) {
        if (cost_ == 0) return;
        const std::uint64_t time = bytes * cost_ + fraction_;
        fraction_ = time & kFractionMask;
        next_ = std::max(next_, now - kCreditMax) +
                nanoseconds(static_cast<std::int64_t>(time >> kFractionBits));
    }
    // When the next packet may leave; not later than the next look.
    Instant ready_at(Instant now) const {
        if (cost_ == 0 || next_ - now <= kGroup) return {};
        return std::min(next_, now + kWaitMax);
    }
    // A wait is over only when nothing is owed, however small the rest.
    Instant ready_after_wait(Instant now) const {
        if (cost_ == 0 || next_ <= now) return {};
        return std::min(next_, now + kWaitMax);
    }

private:
    static constexpr int kFractionBits = 16;
    static constexpr std::uint64_t kFractionMask = (1u << kFractionBits) - 1;

    // Nanoseconds per byte, fixed point; 0: no limit.
    static std::uint64_t cost_of(std::uint32_t rate, std::uint64_t line_bps) {
        if (rate >= kRateMax || line_bps == 0) return 0;
        const std::uint64_t bps = std::max<std::uint64_t>(
            static_cast<std::uint64_t>(static_cast<unsigned __int128>(line_bps) * rate >> kRateLog),
            1);
        const std::uint64_t cost = (8'000'000'000ull << kFractionBits) / bps;
        return std::clamp<std::uint64_t>(cost, 1, std::uint64_t{1} << 40);
    }

    std::uint64_t cost_ = 0;
    std::uint64_t fraction_ = 0;
    Instant next_;
};

}  // namespace rdmalab::pcc

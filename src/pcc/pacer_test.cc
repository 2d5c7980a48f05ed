#include "pcc/pacer.h"

#include <gtest/gtest.h>

namespace rdmalab::pcc {
namespace {

constexpr std::uint64_t kLine = 10'000'000'000;  // 10 Gb/s: 0.8 ns per byte

// Sends packets as fast as the pacer lets it, from `now` for `span`. Returns bytes.
std::uint64_t send_for(Pacer& pacer, Instant& now, Duration span, std::uint32_t packet = 4096) {
    const Instant end = now + span;
    std::uint64_t bytes = 0;
    while (now < end) {
        Instant ready = pacer.ready_at(now);
        while (ready > now) {
            now = ready;
            ready = pacer.ready_after_wait(now);
        }
        if (now >= end) break;
        pacer.charge(packet, now);
        bytes += packet;
    }
    return bytes;
}

TEST(Pacer, line_rate_is_no_limit) {
    Pacer pacer;
    EXPECT_TRUE(pacer.is_unlimited());
    pacer.set_rate(kRateMax, kLine, Instant{0});
    EXPECT_TRUE(pacer.is_unlimited());
    for (int i = 0; i < 1000; ++i) pacer.charge(4096, Instant{0});
    EXPECT_EQ(pacer.ready_at(Instant{0}), Instant{});
}

TEST(Pacer, the_rate_is_met_within_a_percent) {
    for (const std::uint32_t rate : {kRateMax / 2, kRateMax / 10, kRateMax / 1000, 64u}) {
        Pacer pacer;
        Instant now = Instant{} + seconds(1);
        pacer.set_rate(rate, kLine, now);
        send_for(pacer, now, milliseconds(20));  // the credit of the start is used up
        const Duration span = milliseconds(rate < 1000 ? 20'000 : 500);
        const auto bytes = static_cast<double>(send_for(pacer, now, span));
        const double expected =
            static_cast<double>(kLine) / 8 * rate / kRateMax * static_cast<double>(span.ns) / 1e9;
        EXPECT_NEAR(bytes / expected, 1.0, 0.02) << "rate " << rate;
    }
}

TEST(Pacer, one_that_comes_late_catches_up_but_only_so_far) {
    Pacer pacer;
    Instant now = Instant{} + seconds(1);
    pacer.set_rate(kRateMax / 10, kLine, now);  // 125 bytes per us
    send_for(pacer, now, milliseconds(10));
    now = now + seconds(5);
    std::uint64_t bytes = 0;
    while (pacer.ready_at(now) <= now) {
        pacer.charge(1000, now);
        bytes += 1000;
    }
    const auto credit = static_cast<std::uint64_t>((Pacer::kCreditMax + Pacer::kGroup).ns / 8);
    EXPECT_GE(bytes, credit);
    EXPECT_LE(bytes, credit + 2'000);
}

TEST(Pacer, what_is_owed_is_owed_at_the_new_rate) {
    Pacer pacer;
    const Instant now = Instant{} + seconds(1);
    pacer.set_rate(kRateMax / 1000, kLine, now);
    pacer.charge(1'000'000, now);  // 800 ms at this rate
    EXPECT_EQ(pacer.ready_at(now), now + Pacer::kWaitMax) << "but the rate may change";
    pacer.set_rate(kRateMax / 2, kLine, now);
    const Instant ready = pacer.ready_after_wait(now + milliseconds(1));
    EXPECT_GT(ready, now + milliseconds(1));
    EXPECT_LT(ready, now + milliseconds(2));
    pacer.set_rate(kRateMax, kLine, now);
    EXPECT_EQ(pacer.ready_at(now), Instant{});
}

}  // namespace
}  // namespace rdmalab::pcc

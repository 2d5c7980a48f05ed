#include "pcc/notification_point.h"

#include <gtest/gtest.h>

namespace rdmalab::pcc {
namespace {

TEST(NotificationPoint, a_qp_notifies_once_per_interval) {
    NotificationPoint point;
    const Instant start{1'000'000};
    EXPECT_TRUE(point.handle_mark(7, microseconds(4), start));
    EXPECT_FALSE(point.handle_mark(7, microseconds(4), start));
    EXPECT_FALSE(point.handle_mark(7, microseconds(4), start + nanoseconds(3'999)));
    EXPECT_TRUE(point.handle_mark(7, microseconds(4), start + microseconds(4)));
    EXPECT_FALSE(point.handle_mark(7, microseconds(4), start + microseconds(7)));
}

TEST(NotificationPoint, qps_do_not_share_an_interval) {
    NotificationPoint point;
    EXPECT_TRUE(point.handle_mark(0, microseconds(4), Instant{1}));
    EXPECT_TRUE(point.handle_mark(65'535, microseconds(4), Instant{1}));
}

TEST(NotificationPoint, a_new_qp_in_the_slot_starts_anew) {
    NotificationPoint point;
    EXPECT_TRUE(point.handle_mark(3, seconds(1), Instant{1}));
    point.forget(3);
    point.forget(1'000);
    EXPECT_TRUE(point.handle_mark(3, seconds(1), Instant{2}));
}

TEST(NotificationPoint, without_an_interval_every_mark_is_answered) {
    NotificationPoint point;
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(point.handle_mark(3, {}, Instant{1}));
}

}  // namespace
}  // namespace rdmalab::pcc

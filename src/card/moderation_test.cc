// Completion events that are held back (ibv_modify_cq).
#include "card/card_fixture.h"

namespace rdmalab::card {
namespace {

using namespace testing;

class ModerationTest : public CardTest {
protected:
    ModerationTest() {
        EXPECT_EQ(a.connect(mine, b, its), 0);
        EXPECT_EQ(b.connect(its, a, mine), 0);
    }
    int moderate(std::uint32_t count, std::uint32_t period_us) {
        return a.call(abi::Op::kModifyCq, abi::ModifyCqRequest{cq.info.cq, count, period_us});
    }
    void complete(int writes) {
        for (int i = 0; i < writes; ++i) a.post_send(mine, write(1, 100));
        setting.settle();
    }
    std::size_t events() { return std::exchange(setting.host.channel_notes, {}).size(); }

    TestCq cq = a.create_cq(64, a.create_channel());
    TestQp mine = a.create_qp(cq), its = b.create_qp(b_cq);
};

TEST_F(ModerationTest, an_event_comes_with_the_last_of_so_many_completions) {
    ASSERT_EQ(moderate(3, 1000), 0);
    cq.header->arm = abi::kArmAny;
    complete(2);
    EXPECT_EQ(events(), 0u);
    EXPECT_EQ(cq.header->arm, abi::kArmAny);
    EXPECT_EQ(cq.header->producer, 2u);  // who polls sees them at once
    complete(1);
    EXPECT_EQ(events(), 1u);
    EXPECT_EQ(cq.header->arm, abi::kArmNone);
}

TEST_F(ModerationTest, an_event_comes_when_the_first_completion_has_waited_long_enough) {
    ASSERT_EQ(moderate(100, 50), 0);
    cq.header->arm = abi::kArmAny;
    complete(1);
    setting.run_for(microseconds(40));
    EXPECT_EQ(events(), 0u);
    complete(1);
    setting.run_for(microseconds(11));
    EXPECT_EQ(events(), 1u);
    setting.run_for(milliseconds(1));
    EXPECT_EQ(events(), 0u);
}

TEST_F(ModerationTest, what_is_held_back_comes_at_once_when_moderation_ends) {
    ASSERT_EQ(moderate(100, 60'000), 0);
    cq.header->arm = abi::kArmAny;
    complete(1);
    ASSERT_EQ(moderate(0, 0), 0);
    EXPECT_EQ(events(), 1u);
    cq.header->arm = abi::kArmAny;
    complete(1);
    EXPECT_EQ(events(), 1u);
}

TEST_F(ModerationTest, a_cq_that_holds_an_event_back_may_be_destroyed) {
    ASSERT_EQ(moderate(100, 50), 0);
    complete(1);
    ASSERT_EQ(a.call(abi::Op::kDestroyQp, abi::HandleRequest{mine.info.qpn}), 0);
    ASSERT_EQ(a.call(abi::Op::kDestroyCq, abi::HandleRequest{cq.info.cq}), 0);
    setting.run_for(milliseconds(1));
    EXPECT_EQ(moderate(1, 1), EINVAL);
}

TEST_F(ModerationTest, values_beyond_the_limits_are_refused) {
    EXPECT_EQ(moderate(abi::kModerationCountMax + 1, 1), EINVAL);
    EXPECT_EQ(moderate(1, abi::kModerationPeriodMax + 1), EINVAL);
}

}  // namespace
}  // namespace rdmalab::card

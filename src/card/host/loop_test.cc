#include "card/host/loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <ctime>

#include "card/host/clock.h"
#include "card/host/daemon_fixture.h"
#include "card/host/poller.h"
#include "card/host/record_pipe.h"

namespace rdmalab::card::host {
namespace {

TEST(SpinBudget, long_sleeps_wear_it_down_and_short_ones_bring_it_back) {
    SpinBudget budget(2048);
    EXPECT_EQ(budget.looks(), 2048u);
    for (int i = 0; i < 20; ++i) budget.note_sleep(seconds(1));
    EXPECT_EQ(budget.looks(), 64u);
    budget.note_sleep(microseconds(100));
    EXPECT_EQ(budget.looks(), 64u) << "neither short nor long";
    budget.note_sleep(microseconds(10));
    EXPECT_EQ(budget.looks(), 128u);
    budget.note_hit();
    EXPECT_EQ(budget.looks(), 2048u);
}

TEST(SpinBudget, messages_wear_it_down) {
    SpinBudget budget(2048);
    for (int i = 0; i < 20; ++i) budget.note_message();
    EXPECT_EQ(budget.looks(), 64u);
    budget.note_hit();
    EXPECT_EQ(budget.looks(), 2048u);
}

TEST(SpinBudget, a_small_one_stays_small) {
    SpinBudget budget(16);
    budget.note_sleep(seconds(1));
    EXPECT_EQ(budget.looks(), 16u);
    budget.note_sleep(microseconds(1));
    EXPECT_EQ(budget.looks(), 16u);
}

class IdleCard : public DaemonTest {
protected:
    static std::int64_t cpu_ns() {
        timespec used{};
        ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
        return used.tv_sec * 1'000'000'000 + used.tv_nsec;
    }
};

TEST_F(IdleCard, it_sleeps_and_uses_no_processor_time) {
    ControlClient client = connect();
    ASSERT_EQ(open_device(client, 0).status, 0);
    ::usleep(100'000);
    const std::int64_t before = cpu_ns();
    ::usleep(1'000'000);
    EXPECT_LT(cpu_ns() - before, 10'000'000) << "1 % of a core";
}

TEST_F(IdleCard, a_doorbell_while_it_sleeps_wakes_it_by_the_bell) {
    ControlClient client = connect();
    const auto opened = open_device(client, 0);
    ASSERT_EQ(opened.fds.size(), 4u);
    const auto sleeps = [&] {
        const std::string text = admin(client, R"({"op":"counters"})").text;
        const std::size_t at = text.find("\"bell_wakeups\":");
        return std::stoull(text.substr(at + 15));
    };
    // The card still looks around for a moment after each request; on a busy machine that may be
    // longer than any wait, and a bell heard awake is no wake-up.
    const auto before = sleeps();
    auto after = before;
    const std::uint64_t one = 1;
    for (int tries = 0; after == before && tries < 100; ++tries) {
        ::usleep(20'000);
        ASSERT_EQ(::write(opened.fds[2].value(), &one, sizeof one), 8);
        ::usleep(20'000);
        after = sleeps();
    }
    EXPECT_EQ(after, before + 1);
}

TEST(Poller, a_handler_may_remove_the_next_one) {
    Poller poller;
    ASSERT_TRUE(poller.open().ok());
    auto first = make_pipe(), second = make_pipe();
    int calls = 0;
    Poller::Token tokens[2];
    const auto remove_both = [&](std::uint32_t) {
        ++calls;
        poller.remove(tokens[0]);
        poller.remove(tokens[1]);
    };
    tokens[0] = poller.add(first->write_end.value(), 4 /* EPOLLOUT */, remove_both);
    tokens[1] = poller.add(second->write_end.value(), 4, remove_both);
    EXPECT_EQ(poller.wait(seconds(5)), 2);
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(poller.wait(Duration{0}), 0);
}

TEST(Poller, it_waits_for_less_than_a_millisecond_when_told_so) {
    Poller poller;
    ASSERT_TRUE(poller.open().ok());
    const Instant before = monotonic_now();
    EXPECT_EQ(poller.wait(microseconds(200)), 0);
    EXPECT_GE(monotonic_now() - before, microseconds(200));
}

class Records : public ::testing::Test {
protected:
    Records() {
        EXPECT_TRUE(poller_.open().ok());
        auto made = make_pipe();
        reader_ = std::move(made->read_end);
        ::fcntl(reader_.value(), F_SETFL, O_NONBLOCK);
        ::fcntl(made->write_end.value(), F_SETPIPE_SZ, 4096);
        pipe_ =
            std::make_unique<RecordPipe<abi::CompletionEvent>>(std::move(made->write_end), poller_);
    }
    bool read(abi::CompletionEvent& out) {
        return ::read(reader_.value(), &out, sizeof out) == sizeof out;
    }
    Poller poller_;
    UniqueFd reader_;
    std::unique_ptr<RecordPipe<abi::CompletionEvent>> pipe_;
};

TEST_F(Records, what_a_full_pipe_does_not_take_arrives_later_in_order) {
    constexpr std::uint32_t kRecords = 3'000;  // six pages
    for (std::uint32_t i = 0; i < kRecords; ++i) pipe_->push({i, 1});
    EXPECT_GT(pipe_->kept(), 0u);
    abi::CompletionEvent event{};
    for (std::uint32_t i = 0; i < kRecords; ++i) {
        if (!read(event)) {
            poller_.wait(seconds(1));
            ASSERT_TRUE(read(event)) << i;
        }
        ASSERT_EQ(event.cq, i);
    }
    EXPECT_EQ(pipe_->kept(), 0u);
    EXPECT_EQ(poller_.wait(Duration{0}), 0) << "an empty backlog is not watched";
}

TEST_F(Records, a_client_that_never_reads_makes_the_card_keep_each_record_once) {
    for (std::uint32_t i = 0; i < 100'000; ++i) pipe_->push({i % 7, 1});
    EXPECT_LE(pipe_->kept(), 7u);
}

TEST_F(Records, records_for_a_reader_that_has_gone_are_dropped) {
    ::signal(SIGPIPE, SIG_IGN);
    for (std::uint32_t i = 0; i < 1'000; ++i) pipe_->push({i, 1});
    reader_.reset();
    poller_.wait(seconds(1));
    pipe_->push({1, 1});
    EXPECT_EQ(pipe_->kept(), 0u);
}

}  // namespace
}  // namespace rdmalab::card::host

// Congestion control through a whole card: from a mark on the cable to a process and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>

#include "card/card_fixture.h"
#include "pcc/event_link.h"

namespace rdmalab::card::testing {
namespace {

using pcc::EventType;
using pcc::ProcessState;
using transport::WcStatus;

// The other side of the rings.
class TestProcess {
public:
    explicit TestProcess(TestCard& setting, std::uint32_t id, std::uint32_t device = 0,
                         bool report_only = false)
        : id_{id} {
        std::fill(memory_, memory_ + pcc::shared_size(1), std::byte{0});
        status = setting.card.attach_congestion(id_, device, 1, report_only, memory_, setting.now);
    }
    ~TestProcess() { std::free(memory_); }
    TestProcess(const TestProcess&) = delete;
    TestProcess& operator=(const TestProcess&) = delete;

    ProcessState state() const {
        return static_cast<ProcessState>(reinterpret_cast<pcc::PccPage*>(memory_)->state.load());
    }
    std::vector<pcc::Event> events(std::optional<EventType> type = std::nullopt) {
        pcc::WorkerRings& rings = pcc::rings_of(memory_, 0);
        std::vector<pcc::Event> all;
        for (; rings.event_consumer != rings.event_producer; ++rings.event_consumer) {
            const pcc::Event& event =
                rings.events[rings.event_consumer & (pcc::kEventRingCapacity - 1)];
            if (!type || event.type == *type) all.push_back(event);
        }
        return all;
    }
    void answer(std::uint32_t flow, std::uint32_t rate, bool probe = false) {
        pcc::WorkerRings& rings = pcc::rings_of(memory_, 0);
        rings.answers[rings.answer_producer & (pcc::kAnswerRingCapacity - 1)] = {
            flow, rate, probe ? std::uint32_t{pcc::kAnswerProbe} : 0u, 0};
        ++rings.answer_producer;
    }
    CongestionProcessId id() const { return id_; }

    Status status;

private:
    CongestionProcessId id_;
    std::byte* memory_ = static_cast<std::byte*>(std::aligned_alloc(4096, pcc::shared_size(1)));
};

struct CongestionTest : CardTest {
    CongestionTest() {
        pcc::Settings settings = setting.card.congestion_settings();
        settings.flows = pcc::FlowPolicy::kAll;
        setting.card.set_congestion_settings(settings, setting.now);
    }
    // From mlx5_2 of mlx5_0's domain.
    void move(std::uint32_t length = 65'536) {
        a.post_send(a_qp, write(1, length));
        setting.settle();
    }
    void mark(double share) {
        Impairments impairments;
        impairments.ce = share;
        EXPECT_TRUE(
            setting.card.set_impairments("cable0", std::nullopt, impairments, setting.now).ok());
    }
    std::uint32_t flow() const { return pcc::make_flow_id(2, a_qp.info.qpn); }
};

TEST_F(CongestionTest, packets_cnps_and_acks_of_the_domain_become_events) {
    TestProcess process(setting, 1);
    ASSERT_TRUE(process.status.ok());
    EXPECT_EQ(process.state(), ProcessState::kActive);
    mark(1);
    move();
    setting.run_for(milliseconds(1));
    std::uint32_t packets = 0, types = 0;
    for (const pcc::Event& event : process.events()) {
        EXPECT_EQ(event.flow, flow());
        EXPECT_EQ(event.qpn, a_qp.info.qpn);
        types |= 1u << static_cast<unsigned>(event.type);
        if (event.type == EventType::kTx) packets += event.tx.sent_packets;
    }
    EXPECT_GE(packets, 16u) << "of at most 4096 bytes";
    EXPECT_EQ(types, 1u << 2 | 1u << 3 | 1u << 4) << "CNP, TX, ACK";
}

TEST_F(CongestionTest, other_domains_are_not_concerned) {
    TestProcess process(setting, 1, 1);  // mlx5_1; the sender belongs to mlx5_0
    ASSERT_TRUE(process.status.ok());
    move();
    setting.run_for(milliseconds(1));
    EXPECT_TRUE(process.events(EventType::kTx).empty());
}

TEST_F(CongestionTest, only_a_pf_can_be_attended_to) {
    TestProcess process(setting, 1, 3);
    EXPECT_EQ(process.status.code(), EOPNOTSUPP);
}

TEST_F(CongestionTest, a_probe_goes_to_the_peer_and_back) {
    TestProcess process(setting, 1);
    Impairments impairments;
    impairments.delay = microseconds(30);
    ASSERT_TRUE(setting.card.set_impairments("cable0", std::nullopt, impairments, setting.now));
    move(64);
    setting.run_for(milliseconds(1));
    process.events();
    process.answer(flow(), pcc::kRateMax, true);
    const Instant start = setting.now;
    setting.run_for(milliseconds(1));
    const auto answers = process.events(EventType::kRtt);
    ASSERT_EQ(answers.size(), 1u);
    const pcc::Event& rtt = answers[0];
    EXPECT_EQ(rtt.flow, flow());
    EXPECT_GE(rtt.rtt.request_sent_ns, static_cast<std::uint64_t>(start.ns));
    EXPECT_EQ(rtt.rtt.request_received_ns - rtt.rtt.request_sent_ns, 30'000u);
    EXPECT_EQ(rtt.timestamp_ns - rtt.rtt.request_sent_ns, 60'000u);
    const auto facts = setting.card.congestion_facts();
    EXPECT_EQ(facts[0].counters.probes_answered, 1u);
}

TEST_F(CongestionTest, an_answer_slows_the_flow_down) {
    TestProcess process(setting, 1);
    move(64);
    ASSERT_EQ(status_of_a(), WcStatus::kSuccess);
    process.answer(flow(), pcc::kRateMax / 1'000);  // 100 Mb/s
    setting.settle();
    const Instant start = setting.now;
    move();
    setting.run_for(milliseconds(20));
    ASSERT_EQ(status_of_a(), WcStatus::kSuccess);
    const auto facts = setting.card.congestion_facts();
    EXPECT_EQ(facts[0].flows.at(0).rate, pcc::kRateMax / 1'000);
    EXPECT_GT(facts[0].counters.packets_paced, 10u);
    const auto sent = process.events(EventType::kTx);
    ASSERT_FALSE(sent.empty());
    // 64 KiB take 5.2 ms; all but the credit of the pacer is waited for.
    EXPECT_GT(sent.back().timestamp_ns - static_cast<std::uint64_t>(start.ns), 4'500'000u);
}

TEST_F(CongestionTest, report_only_is_never_slow) {
    TestProcess process(setting, 1, 0, true);
    move(64);
    ASSERT_EQ(status_of_a(), WcStatus::kSuccess);
    process.answer(flow(), 1);
    setting.settle();
    move();
    EXPECT_EQ(status_of_a(), WcStatus::kSuccess) << "without any time";
}

TEST_F(CongestionTest, the_built_in_algorithm_slows_down_and_recovers) {
    int outstanding = 0;
    const auto send_for = [&](Duration time) {
        for (Instant end = setting.now + time; setting.now < end;) {
            for (; outstanding < 8; ++outstanding) a.post_send(a_qp, write(1, 65'536));
            setting.run_for(microseconds(100));
            while (a.poll(a_cq)) --outstanding;
        }
    };
    const auto rate = [&] { return setting.card.congestion_facts()[0].flows.at(0).rate; };
    mark(1);
    send_for(milliseconds(10));
    EXPECT_LT(rate(), pcc::kRateMax / 10);
    mark(0);
    for (int i = 0; i < 50 && rate() < pcc::kRateMax; ++i) send_for(milliseconds(20));
    EXPECT_EQ(rate(), pcc::kRateMax);
}

TEST_F(CongestionTest, the_next_in_line_follows) {
    TestProcess first(setting, 1), second(setting, 2), third(setting, 3);
    EXPECT_EQ(second.state(), ProcessState::kStandby);
    EXPECT_EQ(third.state(), ProcessState::kStandby);
    setting.card.detach_congestion(second.id(), setting.now);
    setting.card.detach_congestion(first.id(), setting.now);
    EXPECT_EQ(third.state(), ProcessState::kActive);
    move();
    setting.run_for(milliseconds(1));
    EXPECT_FALSE(third.events(EventType::kTx).empty());
    EXPECT_TRUE(first.events(EventType::kTx).empty());
}

TEST_F(CongestionTest, a_process_with_a_bad_answer_is_given_up_and_the_next_follows) {
    TestProcess first(setting, 1), second(setting, 2);
    first.answer(flow(), 0);
    setting.settle();
    EXPECT_EQ(first.state(), ProcessState::kError);
    EXPECT_EQ(second.state(), ProcessState::kActive);
    setting.card.detach_congestion(first.id(), setting.now);
    EXPECT_EQ(second.state(), ProcessState::kActive);
}

TEST_F(CongestionTest, processes_can_be_switched_off_and_on) {
    TestProcess first(setting, 1), second(setting, 2);
    pcc::Settings settings = setting.card.congestion_settings();
    settings.allows_algorithms = false;
    setting.card.set_congestion_settings(settings, setting.now);
    EXPECT_EQ(first.state(), ProcessState::kDeactivated);
    EXPECT_EQ(second.state(), ProcessState::kDeactivated);
    settings.allows_algorithms = true;
    setting.card.set_congestion_settings(settings, setting.now);
    EXPECT_EQ(first.state(), ProcessState::kActive);
    EXPECT_EQ(second.state(), ProcessState::kStandby);
}

TEST_F(CongestionTest, the_end_of_a_qp_is_told) {
    TestProcess process(setting, 1);
    move();
    setting.run_for(milliseconds(1));
    process.events();
    EXPECT_EQ(a.call(abi::Op::kDestroyQp, abi::HandleRequest{a_qp.info.qpn}), 0);
    setting.settle();
    const auto gone = process.events(EventType::kFlowGone);
    ASSERT_EQ(gone.size(), 1u);
    EXPECT_EQ(gone[0].flow, flow());
}

}  // namespace
}  // namespace rdmalab::card::testing

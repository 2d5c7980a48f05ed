// The shipped algorithms on a virtual clock: their rate over time for scripted streams of events is
// stored in snapshots/, reviewed as text. RDMALAB_UPDATE_SNAPSHOTS=1 writes them anew.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

#include "pcc/host/algorithm.h"

namespace rdmalab::pcc::host {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kTickNs = 10'000;

struct Scenario {
    const char* name;
    std::uint64_t length_us, row_us;
    // By time and flow: whether a CNP, or a NACK, comes; how long a probe takes.
    std::function<bool(std::uint64_t us, std::uint32_t flow)> has_cnp, has_nack;
    std::function<std::uint64_t(std::uint64_t us)> rtt_ns;
    std::uint32_t flows = 1;
};

bool never(std::uint64_t, std::uint32_t) { return false; }
std::uint64_t short_rtt(std::uint64_t) { return 8'000; }

std::vector<Scenario> scenarios() {
    return {
        {"quiet", 5'000, 1'000, never, never, short_rtt},
        {"a CNP at 2 ms", 30'000, 1'000,
         [](std::uint64_t us, std::uint32_t) { return us == 2'000; }, never, short_rtt},
        {"CNPs each 100 us from 2 to 6 ms", 40'000, 1'000,
         [](std::uint64_t us, std::uint32_t) { return us >= 2'000 && us < 6'000 && us % 100 == 0; },
         never, short_rtt},
        {"CNPs each ms from 2 to 22 ms", 60'000, 2'000,
         [](std::uint64_t us, std::uint32_t) {
             return us >= 2'000 && us < 22'000 && us % 1'000 == 0;
         },
         never, short_rtt},
        {"RTT 8, 60, 200, 8 us; a CNP at 5 ms, a NACK at 8 ms", 20'000, 500,
         [](std::uint64_t us, std::uint32_t) { return us == 5'000; },
         [](std::uint64_t us, std::uint32_t) { return us == 8'000; },
         [](std::uint64_t us) -> std::uint64_t {
             return us < 2'000 ? 8'000 : us < 6'000 ? 60'000 : us < 10'000 ? 200'000 : 8'000;
         }},
        {"two flows, the second with twice the CNPs", 400'000, 20'000,
         [](std::uint64_t us, std::uint32_t flow) {
             return us % (flow == 1 ? 20'000 : 10'000) == 0;
         },
         never, short_rtt, 2},
    };
}

// What one flow of a scenario goes through.
class Course {
public:
    Course(Runtime& runtime, const Scenario& scenario) : runtime_(runtime), scenario_(scenario) {
        for (std::uint32_t flow = 1; flow <= scenario.flows; ++flow) flows_.push_back({flow});
    }
    std::string run() {
        std::string table = std::string("# ") + scenario_.name + "\n";
        for (std::uint64_t us = 0; us < scenario_.length_us; us += kTickNs / 1'000) {
            for (Flow& flow : flows_) tick(flow, us);
            if ((us + kTickNs / 1'000) % scenario_.row_us == 0) table += row(us + 10);
        }
        return table;
    }

private:
    struct Flow {
        std::uint32_t id;
        std::uint32_t rate = kRateMax;
        std::uint64_t probe_sent = 0, probe_due = 0;  // 0: none
        bool is_announced = false;
    };
    static constexpr std::uint64_t kStartNs = 5'000'000'001;  // odd: see (end & 0xFF) of rtt.c

    Event event(const Flow& flow, EventType type, std::uint64_t now) const {
        Event e;
        e.type = type;
        e.flow = flow.id;
        e.qpn = 0x100 + flow.id;
        e.timestamp_ns = now;
        return e;
    }
    void give(Flow& flow, const Event& e) {
        const RateAnswer answer = runtime_.handle(0, e);
        ASSERT_TRUE(answer.is_valid()) << answer.rate;
        flow.rate = answer.rate;
        if (!answer.wants_probe || flow.probe_due != 0) return;
        flow.probe_sent = e.timestamp_ns;
        flow.probe_due = e.timestamp_ns + scenario_.rtt_ns((e.timestamp_ns - kStartNs) / 1'000);
        flow.is_announced = false;
    }
    void tick(Flow& flow, std::uint64_t us) {
        const std::uint64_t now = kStartNs + us * 1'000;
        if (flow.probe_due != 0 && flow.probe_due <= now) {
            Event rtt = event(flow, EventType::kRtt, flow.probe_due);
            rtt.rtt = {flow.probe_sent, flow.probe_sent, flow.probe_sent};
            flow.probe_due = 0;
            give(flow, rtt);
        }
        if (scenario_.has_cnp(us, flow.id)) {
            Event cnp = event(flow, EventType::kCnp, now);
            cnp.feedback = {now, 0, 1, 0};
            give(flow, cnp);
        }
        if (scenario_.has_nack(us, flow.id)) give(flow, event(flow, EventType::kNack, now));
        Event tx = event(flow, EventType::kTx, now);
        tx.tx = {now, 131'072, 32, 0};
        if (flow.probe_due != 0 && !flow.is_announced) tx.flags = kTxProbeSent;
        flow.is_announced = true;
        give(flow, tx);
    }
    // The rate that the card gets, and what the algorithm has reported.
    std::string row(std::uint64_t us) {
        runtime_.flush_trace();
        TraceRecord records[64];
        while (const std::size_t count = runtime_.poll_trace(records)) {
            for (std::size_t i = 0; i < count; ++i) {
                if (const auto report = flow_report(decode_trace(records[i], TraceLayout::k3_4)))
                    reported_[report->qpn - 0x101] = report->rate;
            }
        }
        std::string text = std::to_string(us);
        for (std::size_t i = 0; i < flows_.size(); ++i) {
            text += " " + std::to_string(flows_[i].rate);
            if (reported_[i] != 0) text += " (" + std::to_string(reported_[i]) + ")";
        }
        return text + "\n";
    }

    Runtime& runtime_;
    const Scenario& scenario_;
    std::vector<Flow> flows_;
    std::uint32_t reported_[8] = {};
};

std::string table_of(const std::string& name) {
    std::string table = "# Rate over time of " + name +
                        ": us, then per flow the rate for the card (and the one reported), 1048576 "
                        "is line rate (100 Gb/s).\n";
    for (const Scenario& scenario : scenarios()) {
        auto algorithm = Algorithm::load(name);
        if (!algorithm.ok()) return algorithm.error().text;
        Runtime runtime((*algorithm)->entry(), {});
        if (const Status started = runtime.start(); !started) return started.error().text;
        table += "\n" + Course(runtime, scenario).run();
    }
    return table;
}

class Snapshot : public testing::TestWithParam<const char*> {};

TEST_P(Snapshot, the_rate_over_time_is_the_stored_one) {
    const std::string path = std::string(RDMALAB_SNAPSHOTS) + "/" + GetParam() + ".txt";
    const std::string table = table_of(GetParam());
    if (std::getenv("RDMALAB_UPDATE_SNAPSHOTS") != nullptr) std::ofstream(path) << table;
    std::ifstream file(path);
    std::stringstream stored;
    stored << file.rdbuf();
    EXPECT_EQ(table, stored.str()) << "if this is meant: RDMALAB_UPDATE_SNAPSHOTS=1, and look at "
                                      "the difference in "
                                   << path;
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Snapshot,
                         testing::Values(kAlgorithmDcqcn, kAlgorithmPureEcn, kAlgorithmRtt,
                                         kAlgorithmRttAbsolute));

struct Loaded {
    explicit Loaded(const char* name, RuntimeOptions options = {}) {
        auto loaded = Algorithm::load(name);
        EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().text);
        algorithm = std::move(*loaded);
        runtime = std::make_unique<Runtime>(algorithm->entry(), std::move(options));
        EXPECT_TRUE(runtime->start().ok());
    }
    RateAnswer give(EventType type, std::uint32_t flow = 1, std::uint32_t qpn = 0x101) {
        Event e;
        e.type = type;
        e.flow = flow;
        e.qpn = qpn;
        e.timestamp_ns = now += 1'000;
        if (type == EventType::kCnp) e.feedback.coalesced = 1;
        return runtime->handle(0, e);
    }
    std::vector<FlowReport> reports() {
        runtime->flush_trace();
        std::vector<FlowReport> all;
        TraceRecord record[1];
        while (runtime->poll_trace(record) == 1)
            if (auto report = flow_report(decode_trace(record[0], TraceLayout::k3_4)))
                all.push_back(*report);
        return all;
    }
    std::unique_ptr<Algorithm> algorithm;
    std::unique_ptr<Runtime> runtime;
    std::uint64_t now = 1'000'000'000;
};

TEST(PureEcn, a_cnp_takes_ten_percent_and_the_card_always_gets_line_rate) {
    Loaded ecn(kAlgorithmPureEcn);
    EXPECT_EQ(ecn.give(EventType::kTx).rate, kRateMax);
    EXPECT_EQ(ecn.give(EventType::kCnp).rate, kRateMax);
    const auto reports = ecn.reports();
    ASSERT_EQ(reports.size(), 2u);
    EXPECT_EQ(reports[0].qpn, 0x101u);
    EXPECT_EQ(reports[0].rate, kRateMax);
    EXPECT_EQ(reports[1].rate, 943'712u);  // fxp_mult(58982, 2^20)
}

TEST(PureEcn, each_thousandth_tx_event_of_all_flows_adds_a_quarter_of_ai) {
    Loaded ecn(kAlgorithmPureEcn);
    ecn.give(EventType::kTx, 1, 0x101);
    ecn.give(EventType::kTx, 2, 0x102);
    ecn.give(EventType::kCnp, 1, 0x101);
    ecn.give(EventType::kCnp, 2, 0x102);
    ecn.reports();
    for (int i = 2; i < 999; ++i) ecn.give(EventType::kTx, 1, 0x101);
    EXPECT_TRUE(ecn.reports().empty());
    ecn.give(EventType::kTx, 2, 0x102);  // the thousandth
    const auto reports = ecn.reports();
    ASSERT_EQ(reports.size(), 1u);
    EXPECT_EQ(reports[0].qpn, 0x102u);
    EXPECT_EQ(reports[0].rate, 943'712u + 13'107u);
}

TEST(PureEcn, the_rate_stays_between_its_floor_and_line_rate) {
    Loaded ecn(kAlgorithmPureEcn);
    ecn.give(EventType::kTx);
    for (int i = 0; i < 1'000; ++i) ecn.give(EventType::kCnp);
    EXPECT_EQ(ecn.reports().back().rate, 64u);
    EXPECT_TRUE(ecn.runtime->set_parameter(0, 4, 1).ok());
    for (int i = 0; i < 100; ++i) ecn.give(EventType::kTx);
    EXPECT_EQ(ecn.reports().back().rate, kRateMax);
}

TEST(PureEcn, rtt_events_and_nacks_change_nothing) {
    Loaded ecn(kAlgorithmPureEcn);
    ecn.give(EventType::kTx);
    ecn.give(EventType::kCnp);
    ecn.reports();
    ecn.give(EventType::kRtt);
    ecn.give(EventType::kNack);
    EXPECT_TRUE(ecn.reports().empty());
}

TEST(PureEcn, the_mailbox_has_the_last_report_of_each_flow) {
    Loaded ecn(kAlgorithmPureEcn);
    for (std::uint32_t flow = 1; flow <= 66; ++flow) ecn.give(EventType::kTx, flow, 0x1000 + flow);
    ecn.give(EventType::kCnp, 1);
    const auto response = ecn.runtime->mailbox(flow_report_request(), kMailboxResponseSize);
    ASSERT_TRUE(response.ok());
    const auto reports = parse_flow_reports(*response);
    ASSERT_TRUE(reports);
    EXPECT_EQ(reports->flows.size(), 64u);
    EXPECT_EQ(reports->dropped, 2u);
    bool is_found = false;
    for (const FlowReport& report : reports->flows) {
        if (report.qpn != 0x1001) continue;
        is_found = true;
        EXPECT_EQ(report.rate, 943'712u);
    }
    EXPECT_TRUE(is_found);
    EXPECT_EQ(ecn.runtime->mailbox({}, kMailboxResponseSize).error().code, EPROTO);
    EXPECT_EQ(ecn.runtime->mailbox(flow_report_request(), 100).error().code, EPROTO);
}

TEST(PureEcn, a_line_is_printed_for_every_five_hundredth_cnp) {
    std::vector<std::string> lines;
    RuntimeOptions options;
    options.print = [&](const std::string& text) { lines.push_back(text); };
    Loaded ecn(kAlgorithmPureEcn, std::move(options));
    ecn.give(EventType::kTx);
    for (int i = 0; i < 501; ++i) ecn.give(EventType::kCnp);
    std::erase_if(lines, [](const std::string& line) { return !line.starts_with("PURE_ECN"); });
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[0], "PURE_ECN cnp=1 rate=943712\n");
    EXPECT_EQ(lines[1], "PURE_ECN cnp=501 rate=64\n");
}

TEST(Rtt, the_first_event_asks_for_a_probe) {
    for (const char* name : {kAlgorithmRtt, kAlgorithmRttAbsolute}) {
        Loaded rtt(name);
        EXPECT_TRUE(rtt.give(EventType::kCnp).wants_probe);
        EXPECT_FALSE(rtt.give(EventType::kTx).wants_probe);
    }
}

TEST(Rtt, a_factor_that_would_underflow_cuts_to_the_minimum) {
    Loaded rtt(kAlgorithmRtt);
    ASSERT_TRUE(rtt.runtime->set_parameter(0, 0, 40'000).ok());  // 5 u > 1
    rtt.give(EventType::kTx);
    rtt.give(EventType::kNack);
    Event late;
    late.type = EventType::kRtt;
    late.flow = 1;
    late.timestamp_ns = rtt.now + 200'001;
    late.rtt = {rtt.now, rtt.now, rtt.now};
    EXPECT_EQ(rtt.runtime->handle(0, late).rate, 64u);
}

TEST(Loading, two_loads_of_a_file_share_no_state) {
    Loaded first(kAlgorithmPureEcn), second(kAlgorithmPureEcn);
    for (int i = 0; i < 999; ++i) first.give(EventType::kTx);
    second.give(EventType::kTx);
    second.give(EventType::kCnp);
    second.reports();
    second.give(EventType::kTx);  // would be the thousandth if they shared the count
    EXPECT_TRUE(second.reports().empty());
}

Error error_of(const std::string& file) {
    const auto loaded = Algorithm::load(file);
    EXPECT_FALSE(loaded.ok()) << file;
    return loaded.ok() ? Error{} : loaded.error();
}
std::string module(const char* name) {
    return std::string(RDMALAB_TEST_MODULES) + "/" + name + ".so";
}

TEST(Loading, names_are_looked_up_and_unknown_ones_answered_with_those_there_are) {
    EXPECT_EQ(error_of("no_such").code, ENOENT);
    EXPECT_THAT(error_of("no_such").text, HasSubstr("dcqcn"));
    EXPECT_EQ(error_of("/no/such/file.so").code, ENOENT);
}

TEST(Loading, what_is_no_algorithm_is_refused) {
    EXPECT_EQ(error_of(RDMALAB_SNAPSHOTS "/dcqcn.txt").code, ENOEXEC);
    EXPECT_EQ(error_of("/dev/null").code, ENOEXEC);
    EXPECT_EQ(error_of("/usr").code, ENOEXEC);
    EXPECT_THAT(error_of(module("unmarked")).text, HasSubstr("no congestion control algorithm"));
    EXPECT_THAT(error_of(module("incomplete")).text, HasSubstr("set_algo_params"));
    EXPECT_THAT(error_of(module("unresolved")).text, HasSubstr("doca_pcc_dev_nobody_has_this"));
}

TEST(Loading, another_layout_is_refused_and_named) {
    const Error error = error_of(module("other_layout"));
    EXPECT_EQ(error.code, EPROTO);
    EXPECT_THAT(error.text, HasSubstr("expected version 1"));
    EXPECT_THAT(error.text, HasSubstr("found version 99"));
}

}  // namespace
}  // namespace rdmalab::pcc::host

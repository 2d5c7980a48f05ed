// The closed loop in virtual time. The analytic steady state: flows send alike and rates are never
// enforced, so a flow's CNPs come in proportion to p_i share_i, its rate settles at 1 / (p_i
// share_i), and shares follow rates: share_i is in proportion to 1 / sqrt(p_i).
#include <algorithm>
#include <cmath>

#include "steer/simulation_fixture.h"

namespace rdmalab::steer {
namespace {

using testing::Simulation;
using testing::SimulationOptions;

constexpr int kSettleSeconds = 25, kSteadySeconds = 20;

std::vector<double> steady_shares(const SimulationOptions& options) {
    std::vector<double> shares;
    double sum = 0;
    for (double percent : options.percents) {
        shares.push_back(1 / std::sqrt(percent));
        sum += shares.back();
    }
    for (double& share : shares) share *= options.buckets / sum;
    return shares;
}

void start(Simulation& simulation) {
    simulation.start_ingress();
    simulation.start_pcc();
    simulation.connect();
}

void expect_no_packet_lost(const Simulation& simulation) {
    const Simulation::Totals& totals = simulation.totals();
    EXPECT_EQ(totals.dropped, 0u);
    EXPECT_EQ(totals.sent, totals.received);
    EXPECT_EQ(totals.marker_left, 0u) << "private bits are cleared, other DSCP bits are kept";
}

void expect_steady(Simulation& simulation, const SimulationOptions& options, double tolerance) {
    simulation.run(kSettleSeconds);
    EXPECT_NEAR(simulation.mean_share(kSteadySeconds), steady_shares(options)[0], tolerance);
}

TEST(Simulation, the_programs_say_what_the_tutorial_shows) {
    Simulation simulation({});
    start(simulation);
    simulation.run(3);
    auto& lines = simulation.sender().console.lines;
    const auto find = [&](const std::string& text) { return std::ranges::find(lines, text); };
    const auto dispatch =
        find("EGRESS_BUCKET_DISPATCH ready: meta.u32[4] bucket -> changeable path forward");
    const auto classify =
        find("Classify random-bucket pipe ready: HASH/random writes bucket to meta.u32[4]");
    EXPECT_LT(dispatch, classify);
    EXPECT_LT(classify, lines.end());
    EXPECT_NE(find("RDMA-CM REQ grouping: sender QPN 0x000100 receiver IP=0x0a000001 -> path0"),
              lines.end());
    EXPECT_NE(find("RDMA-CM REQ grouping: sender QPN 0x000101 receiver IP=0x0a00000b -> path1"),
              lines.end());
    EXPECT_NE(find("RDMA-CM mapping: sender 0x000101 -> receiver 0x000201 path1"), lines.end());
    const auto& console = simulation.sender().console;
    EXPECT_TRUE(console.has("pending-map=0"));
    EXPECT_FALSE(console.has("pending-map=1"));
    EXPECT_TRUE(console.has(" ratio=32:32 buckets") || console.has("path0 32->"));
    EXPECT_TRUE(simulation.receiver().console.has("steer started (role=ingress, path0=0.2%"));
    EXPECT_TRUE(simulation.receiver().console.has("ingress throughput: path0=0."));
    EXPECT_TRUE(simulation.receiver().console.has("ingress newly CE-marked: path0="));
    expect_no_packet_lost(simulation);
}

TEST(Simulation, the_loop_moves_traffic_to_the_path_that_marks_less) {
    const SimulationOptions options;
    Simulation simulation(options);
    start(simulation);
    EXPECT_EQ(simulation.share(), 32u);
    expect_steady(simulation, options, 3);
    EXPECT_TRUE(simulation.sender().console.has("PCC path share applied: path0 32->"));
    expect_no_packet_lost(simulation);
    EXPECT_EQ(simulation.received_by(0), simulation.received_by(1));
}

TEST(Simulation, throughput_and_marks_follow_shares_and_percentages) {
    Simulation simulation({});
    start(simulation);
    simulation.run(kSettleSeconds + kSteadySeconds);
    const auto& records = simulation.receiver().console.records;
    double packets[2] = {0, 0}, marks[2] = {0, 0}, expected[2] = {0, 0};
    for (std::size_t i = kSettleSeconds; i < records.size(); ++i) {
        const auto& applied = simulation.sender().console.records[i - 1]["applied"];
        double all = 0;
        for (int path : {0, 1}) {
            packets[path] += records[i]["paths"][path]["packets_delta"].get<double>();
            marks[path] += records[i]["paths"][path]["marked_delta"].get<double>();
            all += records[i]["paths"][path]["packets_delta"].get<double>();
        }
        for (int path : {0, 1}) expected[path] += all * applied[path].get<double>() / 64;
    }
    EXPECT_GT(packets[0] / packets[1], 1);
    EXPECT_LT(packets[0] / packets[1], 2);
    const double ratio = (marks[1] / packets[1]) / (marks[0] / packets[0]);
    EXPECT_GT(ratio, 1.5);
    EXPECT_LT(ratio, 2.5);
    const double total = packets[0] + packets[1];
    const double share = expected[0] / total;
    EXPECT_NEAR(packets[0] / total, share, 5 * std::sqrt(share * (1 - share) / total));
}

TEST(Simulation, swapped_percentages_swap_the_shares) {
    SimulationOptions options;
    options.percents = {0.4, 0.2};
    Simulation simulation(options);
    start(simulation);
    expect_steady(simulation, options, 3);
    EXPECT_LT(simulation.share(), 32u);
    expect_no_packet_lost(simulation);
}

TEST(Simulation, equal_percentages_stay_near_halves) {
    SimulationOptions options;
    options.percents = {0.4, 0.4};
    Simulation simulation(options);
    start(simulation);
    expect_steady(simulation, options, 3);
    expect_no_packet_lost(simulation);
}

TEST(Simulation, a_clean_path_gets_all_but_three_buckets) {
    SimulationOptions options;
    options.percents = {0, 0.4};
    Simulation simulation(options);
    start(simulation);
    simulation.run(5);
    EXPECT_EQ(simulation.share(0), 61u);
    EXPECT_EQ(simulation.share(1), 3u);
    simulation.run(10);
    EXPECT_EQ(simulation.share(0), 61u);
    expect_no_packet_lost(simulation);
}

TEST(Simulation, marking_may_change_while_traffic_runs) {
    SimulationOptions options;
    Simulation simulation(options);
    start(simulation);
    simulation.run(kSettleSeconds);
    EXPECT_GT(simulation.share(), 32u);
    SwitchProgram& ingress = simulation.receiver().program();
    ASSERT_TRUE(ingress.set_percent(0, 0.4).ok());
    ASSERT_TRUE(ingress.set_percent(1, 0.2).ok());
    EXPECT_TRUE(simulation.receiver().console.has(
        "Path0 CE sampling: intended all-traffic=0.4% selected-class=0.8%"));
    constexpr int kControlIntervals = 5;
    simulation.run(kControlIntervals);
    options.percents = {0.4, 0.2};
    EXPECT_LT(simulation.share(), 32u);
    EXPECT_NEAR(simulation.mean_share(kSteadySeconds), steady_shares(options)[0], 3);
    EXPECT_FALSE(ingress.set_percent(0, 101).ok());
    EXPECT_FALSE(ingress.set_percent(2, 1).ok());
    expect_no_packet_lost(simulation);
}

TEST(Simulation, the_ends_of_the_percentage_scale_need_no_sampler) {
    Simulation simulation({.percents = {100, 0}});
    simulation.start_ingress();
    simulation.connect();
    SwitchProgram& ingress = simulation.receiver().program();
    simulation.run(1);
    // No sender's program: everything comes by path 0, whose probe is the blue flow.
    EXPECT_EQ(simulation.totals().marks, simulation.received_by(0));
    ASSERT_TRUE(ingress.set_percent(0, 0).ok());
    const std::uint64_t before = simulation.totals().marks;
    simulation.run(1);
    EXPECT_EQ(simulation.totals().marks, before);
    ASSERT_TRUE(ingress.set_percent(0, 25).ok());
    const std::uint64_t received = simulation.received_by(0);
    simulation.run(1);
    const auto marked = static_cast<double>(simulation.totals().marks - before);
    EXPECT_NEAR(marked / static_cast<double>(simulation.received_by(0) - received), 0.5, 0.02);
    expect_no_packet_lost(simulation);
}

TEST(Simulation, release_2_9_hashes_a_random_field_and_learns_from_feedback) {
    SimulationOptions options;
    options.compat = Compat::k2_9;
    Simulation simulation(options);
    start(simulation);
    const auto& console = simulation.sender().console;
    EXPECT_TRUE(console.has("Legacy random HASH ready: 6 bits, 64 immutable metadata buckets"));
    expect_steady(simulation, options, 4);
    EXPECT_TRUE(
        console.has("RoCE feedback grouping: sender QPN 0x000101 receiver IP=0x0a00000b -> path1"));
    EXPECT_FALSE(console.has("sender received raw CNP"));
    expect_no_packet_lost(simulation);
}

TEST(Simulation, release_3_1_reports_by_its_own_trace_layout) {
    SimulationOptions options;
    options.compat = Compat::k3_1;
    Simulation simulation(options);
    start(simulation);
    expect_steady(simulation, options, 3);
}

TEST(Simulation, four_paths_on_one_cable) {
    SimulationOptions options;
    options.paths = 4;
    options.percents = {0.1, 0.2, 0.4, 0.8};
    options.packets_per_second = 15'000;
    Simulation simulation(options);
    start(simulation);
    simulation.run(kSettleSeconds);
    double mean[4] = {0, 0, 0, 0};
    for (int i = 0; i < kSteadySeconds; ++i) {
        simulation.run(1);
        for (std::uint32_t path = 0; path < 4; ++path) mean[path] += simulation.share(path);
    }
    const std::vector<double> expected = steady_shares(options);
    for (std::uint32_t path = 0; path < 4; ++path) {
        EXPECT_NEAR(mean[path] / kSteadySeconds, expected[path], 4) << "path " << path;
    }
    expect_no_packet_lost(simulation);
}

TEST(Simulation, paths_may_be_cables_of_their_own) {
    SimulationOptions options;
    options.real_next_hops = true;
    Simulation simulation(options);
    start(simulation);
    expect_steady(simulation, options, 3);
    expect_no_packet_lost(simulation);
}

TEST(Simulation, more_buckets_are_finer) {
    SimulationOptions options;
    options.buckets = 256;
    Simulation simulation(options);
    start(simulation);
    expect_steady(simulation, options, 12);
    EXPECT_TRUE(simulation.sender().console.has("PCC path share applied: path0 128->"));
}

TEST(Simulation, loss_on_the_cable_does_not_open_the_loop) {
    SimulationOptions options;
    options.loss = 0.01;
    Simulation simulation(options);
    start(simulation);
    expect_steady(simulation, options, 3);
    EXPECT_EQ(simulation.totals().dropped, 0u);
    EXPECT_GT(simulation.totals().lost, 0u);
}

TEST(Simulation, a_killed_pcc_leaves_the_traffic_alone_and_its_successor_closes_the_loop) {
    const SimulationOptions options;
    Simulation simulation(options);
    start(simulation);
    simulation.run(kSettleSeconds);
    simulation.kill_pcc();
    simulation.run(3);
    simulation.sender().console.lines.clear();
    simulation.start_pcc();
    EXPECT_EQ(simulation.share(), 32u);
    expect_steady(simulation, options, 3);
    // It has not seen the connections; what comes back tells their paths.
    EXPECT_FALSE(simulation.sender().console.has("RDMA-CM REQ grouping"));
    EXPECT_EQ(simulation.sender().console.count("RoCE feedback grouping"), 2u);
    EXPECT_TRUE(simulation.sender().console.has("pending-map=0"));
    // The default forwarding does not mark paths, so nothing is wrong with the packets either.
    expect_no_packet_lost(simulation);
}

TEST(Simulation, a_killed_ingress_leaves_the_traffic_alone_and_its_successor_closes_the_loop) {
    const SimulationOptions options;
    Simulation simulation(options);
    start(simulation);
    simulation.run(kSettleSeconds);
    simulation.kill_ingress();
    const std::uint64_t marks = simulation.totals().marks;
    simulation.run(3);
    EXPECT_EQ(simulation.totals().marks, marks);
    EXPECT_EQ(simulation.totals().sent, simulation.totals().received);
    simulation.start_ingress();
    expect_steady(simulation, options, 3);
    EXPECT_GT(simulation.totals().marks, marks);
    EXPECT_EQ(simulation.totals().dropped, 0u);
}

TEST(Simulation, a_connection_that_ends_is_forgotten_and_a_new_one_takes_its_place) {
    Simulation simulation({});
    start(simulation);
    simulation.run(5);
    EgressController& controller = *simulation.sender().program().egress();
    EXPECT_EQ(controller.connections().connections().size(), 2u);
    wire::DreqMessage end;
    end.local_comm_id = 1000;
    end.remote_comm_id = 2000;
    controller.handle_frame(testing::cm_frame({testing::kSenderIp, testing::kBlueIp}, end), false);
    EXPECT_EQ(controller.connections().connections().size(), 1u);
    EXPECT_TRUE(simulation.sender().console.has("RDMA-CM disconnect: sender 0x000100 path0"));
    simulation.connect(0);
    EXPECT_EQ(controller.connections().connections().size(), 2u);
    simulation.run(2);
    EXPECT_FALSE(simulation.sender().console.has("pending-map=1"));
}

TEST(Simulation, shares_may_be_fixed_by_hand_and_released) {
    Simulation simulation({});
    start(simulation);
    SwitchProgram& program = simulation.sender().program();
    ASSERT_TRUE(program.set_shares({48}).ok());
    EXPECT_TRUE(
        simulation.sender().console.has("PCC path share applied: path0 32->48/64 path1=16/64"));
    simulation.run(5);
    EXPECT_EQ(simulation.share(), 48u);
    EXPECT_EQ(program.egress()->snapshot().updates_total, 16u);
    const auto& delta = program.egress()->snapshot().packets_delta;
    EXPECT_NEAR(static_cast<double>(delta[0]) / static_cast<double>(delta[0] + delta[1]), 0.75,
                0.02);
    program.egress()->release_split();
    simulation.run(5);
    EXPECT_NE(simulation.share(), 48u);
    EXPECT_FALSE(program.set_shares({65}).ok());
    EXPECT_FALSE(program.set_shares({32, 16}).ok());
    EXPECT_FALSE(program.set_shares({1, 2, 61}).ok());
    expect_no_packet_lost(simulation);
}

}  // namespace
}  // namespace rdmalab::steer

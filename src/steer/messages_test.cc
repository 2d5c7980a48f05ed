#include "steer/messages.h"

#include <gtest/gtest.h>

#include <array>

namespace rdmalab::steer::messages {
namespace {

BucketSplit two_paths(std::uint32_t share) {
    BucketSplit split(2, 64);
    split.set_end(0, share);
    return split;
}
const CmConnection kConnection{.sender_ip = 0x0a000002,
                               .receiver_ip = 0x0a00000b,
                               .comm_id = 7,
                               .sender = Qpn{0x12},
                               .path = 1,
                               .receiver = Qpn{0xabcdef}};

// Literal, because scripts look for them literally.
TEST(Messages, of_the_pipes) {
    EXPECT_EQ(dispatch_ready(),
              "EGRESS_BUCKET_DISPATCH ready: meta.u32[4] bucket -> changeable path forward");
    EXPECT_EQ(classifier_ready(),
              "Classify random-bucket pipe ready: HASH/random writes bucket to meta.u32[4]");
    EXPECT_EQ(legacy_classifier_ready(64),
              "Legacy random HASH ready: 6 bits, 64 immutable metadata buckets");
    EXPECT_EQ(legacy_classifier_ready(1024),
              "Legacy random HASH ready: 10 bits, 1024 immutable metadata buckets");
}

TEST(Messages, of_the_start) {
    EXPECT_EQ(started("ingress", std::array{0.025, 0.05}),
              "steer started (role=ingress, path0=0.025% path1=0.05%)");
    EXPECT_EQ(sampling(0, 0.025, 0.05),
              "Path0 CE sampling: intended all-traffic=0.025% selected-class=0.05%");
}

TEST(Messages, of_connections) {
    EXPECT_EQ(request_grouping(kConnection),
              "RDMA-CM REQ grouping: sender QPN 0x000012 receiver IP=0x0a00000b -> path1");
    EXPECT_EQ(mapping(kConnection), "RDMA-CM mapping: sender 0x000012 -> receiver 0xabcdef path1");
    EXPECT_EQ(cnp_counter_installed(kConnection),
              "sender CNP counter installed: sender QPN 0x000012 -> receiver QPN 0xabcdef path1");
    EXPECT_EQ(path_class(Qpn{0x12}, 1048576, 1),
              "egress path class: PCC sender QPN 0x000012 rate=1048576 IP-path=1");
}

TEST(Messages, of_the_controller) {
    Signals signals;
    signals.paths[0].add(20'000);
    signals.paths[1].add(10'001);
    signals.paths[1].add(kFullRate);
    signals.pending_map = 3;
    EXPECT_EQ(diagnostic(signals, two_paths(43), two_paths(32)),
              "PCC path-share diagnostic: path0 total=1 full=0 reduced=1 sum=20000 avg=20000; "
              "path1 total=2 full=1 reduced=1 sum=10001 avg=10001; pending-map=3; "
              "target path0=43/64 path1=21/64; applied path0=32/64");
    EXPECT_EQ(share_applied(two_paths(32), two_paths(48)),
              "PCC path share applied: path0 32->48/64 path1=16/64");
    EXPECT_EQ(update_failed(40, "no room"),
              "path-share update failed at bucket 40 (no room); will retry");
    EXPECT_EQ(assigned_counters(std::array<std::uint64_t, 2>{10, 20}, two_paths(48)),
              "egress assigned counters: path0=10 path1=20 ratio=48:16 buckets");
}

TEST(Messages, of_the_meters) {
    EXPECT_EQ(throughput(std::array{10.5, 5.25}),
              "ingress throughput: path0=10.500 Gbps path1=5.250 Gbps total=15.750 Gbps");
    EXPECT_EQ(newly_marked(std::array{CountRate{100, 10, 9.6}, CountRate{200, 20, 19.2}}),
              "ingress newly CE-marked: path0=100 (+10, 10/s) path1=200 (+20, 19/s)");
    EXPECT_EQ(received_cnps(std::array{CountRate{1, 1, 1}, CountRate{2, 0, 0}}),
              "sender received raw CNP: path0=1 (+1, 1/s) path1=2 (+0, 0/s)");
}

TEST(Messages, of_the_congestion_control_host) {
    EXPECT_EQ(process_state("Active"), "Info: PCC host status Active");
    EXPECT_EQ(steering_active(), "Info: Embedded DOCA Flow egress steering active");
    FlowRates rates;
    rates.report(Qpn{0x1f}, 1000);
    rates.close_interval();
    rates.report(Qpn{0x1f}, 2000);
    EXPECT_EQ(rate_averages(rates, 1),
              (std::vector<std::string>{"--- Per-flow rate averages (received=1 total=2) ---",
                                        "  QPN 0x1f: avg_rate=1000 last_rate=2000 updates=2"}));
}

TEST(Messages, more_paths_go_on_in_the_same_way) {
    const BucketSplit split = BucketSplit::even(3, 32);
    EXPECT_EQ(share_applied(BucketSplit::even(3, 32), split),
              "PCC path share applied: path0 11->11/32 path1=11/32 path2=10/32");
    EXPECT_EQ(assigned_counters(std::array<std::uint64_t, 3>{1, 2, 3}, split),
              "egress assigned counters: path0=1 path1=2 path2=3 ratio=11:11:10 buckets");
    EXPECT_NE(diagnostic({}, std::nullopt, split)
                  .find("target path0=11/32 path1=11/32 path2=10/32; applied path0=11/32 "
                        "path1=11/32"),
              std::string::npos);
}

}  // namespace
}  // namespace rdmalab::steer::messages

// Following packets through the pipes.
#include "flow/trace.h"

#include "flow/pipeline_fixture.h"

namespace rdmalab::flow {
namespace {

using Outcome = TraceStep::Outcome;

class Tracing : public PipelineTest {
protected:
    Tracing() {
        sf0_ = deliver("DELIVER_SF0", kSf0);
        PipeConfig mark;
        mark.name = "CE_MARK";
        mark.match.values.set_all_ones(Field::kIpv4Dst);
        mark.actions.push_back(
            {{{Field::kIpv4DscpEcn, 3}}, FieldValues{{Field::kIpv4DscpEcn, 3}}, {}});
        mark.forward = Forward::to_pipe(sf0_);
        mark_ = create(mark);
        entry_ = add(mark_, BasicEntry{{{Field::kIpv4Dst, 0x0a00'0001}}, {}});
        PipeConfig root;
        root.name = "ROCE_CHECK";
        root.is_root = true;
        root.match.l4_type = L4Type::kRoceV2;
        root.forward = Forward::to_pipe(mark_);
        root_ = create(root);
        add(root_, BasicEntry{});
    }
    const TracedPacket& traced(std::size_t index) { return pipeline_.tracer().packets()[index]; }

    PipeId sf0_, mark_, root_;
    EntryId entry_;
};

TEST_F(Tracing, each_pipe_says_what_it_saw_did_and_where_it_sent_the_packet) {
    ASSERT_TRUE(pipeline_.tracer().start({}, std::nullopt, 4).ok());
    send(roce_frame());
    const TracedPacket& packet = traced(0);
    ASSERT_EQ(packet.step_count, 3);
    EXPECT_EQ(packet.ingress, kSf0);
    EXPECT_EQ(wire::traffic_class(packet.frame), 0x02);
    EXPECT_EQ(packet.steps[0].pipe, root_);
    EXPECT_EQ(packet.steps[0].outcome, Outcome::kHit);
    EXPECT_EQ(packet.steps[0].forward, ForwardKind::kPipe);
    EXPECT_EQ(packet.steps[0].next, mark_);
    const TraceStep& mark = packet.steps[1];
    EXPECT_EQ(mark.entry, entry_);
    ASSERT_EQ(mark.match_count, 1);
    EXPECT_EQ(mark.matched[0].value, FieldValue(0x0a00'0001));
    ASSERT_EQ(mark.change_count, 1);
    EXPECT_EQ(mark.changed[0].field, Field::kIpv4DscpEcn);
    EXPECT_EQ(mark.changed[0].value, FieldValue(0x02));
    EXPECT_EQ(mark.changed[0].after, FieldValue(0x03));
    EXPECT_EQ(packet.steps[2].forward, ForwardKind::kPort);
    EXPECT_EQ(packet.steps[2].number, kSf0.value);
}

TEST_F(Tracing, a_miss_has_its_reason) {
    ASSERT_TRUE(pipeline_.tracer().start({}, std::nullopt, 4).ok());
    EXPECT_EQ(send(arp_frame()), "drop");
    ASSERT_EQ(traced(0).step_count, 1);
    EXPECT_EQ(traced(0).steps[0].outcome, Outcome::kMissLayer);
    EXPECT_NE(traced(0).steps[0].missing_layers & kLayerRoce, 0u);
    EXPECT_EQ(send(roce_frame({.destination = "10.0.0.9"})), "drop");
    ASSERT_EQ(traced(1).step_count, 2);
    EXPECT_EQ(traced(1).steps[1].outcome, Outcome::kMissKey);
    EXPECT_EQ(traced(1).steps[1].matched[0].value, FieldValue(0x0a00'0009));
    EXPECT_EQ(traced(1).steps[1].forward, ForwardKind::kDrop);
}

TEST_F(Tracing, only_packets_of_the_filter_are_followed_and_only_as_many) {
    const Match filter{L3Type::kNone, L4Type::kNone, {{Field::kBthDestQp, 7}}};
    ASSERT_TRUE(pipeline_.tracer().start(filter, std::nullopt, 2).ok());
    for (const std::uint32_t qp : {5u, 7u, 7u, 7u}) send(roce_frame({.destination_qp = qp}));
    EXPECT_EQ(pipeline_.tracer().packets().size(), 2u);
    EXPECT_FALSE(pipeline_.tracer().is_on());
    EXPECT_EQ(pipeline_.pipes().at(mark_)->hits, 4u);
}

TEST_F(Tracing, a_traced_packet_takes_the_same_way) {
    const std::string untraced = send(roce_frame());
    const auto tos = wire::traffic_class(sent());
    ASSERT_TRUE(pipeline_.tracer().start({}, std::nullopt, 1).ok());
    EXPECT_EQ(send(roce_frame()), untraced);
    EXPECT_EQ(wire::traffic_class(sent()), tos);
}

TEST_F(Tracing, wrong_requests_are_refused) {
    EXPECT_EQ(pipeline_.tracer().start({}, std::nullopt, 0).code(), EINVAL);
    EXPECT_EQ(pipeline_.tracer().start({}, std::nullopt, 65).code(), EINVAL);
    const Match impossible{L3Type::kIpv6, L4Type::kNone, {{Field::kIpv4Ttl, 7}}};
    EXPECT_EQ(pipeline_.tracer().start(impossible, std::nullopt, 1).code(), EINVAL);
}

}  // namespace
}  // namespace rdmalab::flow

// What a packet meets on its way: matches, misses, actions, counters, forwards, floods.
#include "flow/pipeline.h"

#include "flow/pipeline_fixture.h"

namespace rdmalab::flow {
namespace {

std::uint8_t tos(const wire::Frame& frame) { return wire::traffic_class(frame); }

PipeConfig basic(const std::string& name) {
    PipeConfig config;
    config.name = name;
    return config;
}
BasicEntry entry_to(FieldValues match, const Forward& forward) {
    BasicEntry entry;
    entry.match = std::move(match);
    entry.actions.forward = forward;
    return entry;
}
EntryActions to(const Forward& forward) {
    EntryActions actions;
    actions.forward = forward;
    return actions;
}

TEST_F(PipelineTest, without_a_root_everything_is_dropped) {
    deliver("not the root", kWire);
    EXPECT_EQ(send(roce_frame()), "drop");
    EXPECT_EQ(pipeline_.drops().no_root, 1u);
}

TEST_F(PipelineTest, the_port_a_packet_came_in_by_can_be_matched) {
    PipeConfig root = basic("PORT_DEMUX");
    root.is_root = true;
    root.match.values.set_all_ones(Field::kParserPort);
    const PipeId pipe = create(root);
    add(pipe, entry_to({{Field::kParserPort, kWire.value}}, Forward::to_port(kSf0)));
    add(pipe, entry_to({{Field::kParserPort, kSf0.value}}, Forward::to_port(kWire)));
    EXPECT_EQ(send(roce_frame(), kWire), "pf0sf0");
    EXPECT_EQ(send(roce_frame(), kSf0), "p0");
    EXPECT_EQ(send(roce_frame(), kSf4), "drop");
    EXPECT_EQ(control_->query_miss(pipe)->packets, 1u);
}

TEST_F(PipelineTest, constants_of_the_template_hold_for_every_entry) {
    PipeConfig root = basic("root");
    root.is_root = true;
    root.match.values = {{Field::kUdpDst, 4791}};
    root.match.values.set_all_ones(Field::kIpv4Dst);
    const PipeId pipe = create(root);
    add(pipe, entry_to({{Field::kIpv4Dst, 0x0a000001}}, Forward::to_port(kSf0)));
    EXPECT_EQ(send(roce_frame()), "pf0sf0");
    EXPECT_EQ(send(roce_frame({.destination = "10.0.0.11"})), "drop");
    wire::Frame other = roce_frame();
    wire::header_at<wire::UdpHeader>(other, other.l4_offset)->destination_port = 4792;
    EXPECT_EQ(send(other), "drop");
}

TEST_F(PipelineTest, a_mask_says_which_bits_are_compared_even_with_zero) {
    PipeConfig root = basic("INGRESS_PATH_DEMUX");
    root.is_root = true;
    root.match.values = {{Field::kIpv4DscpEcn, 0xff}};
    root.match_mask = FieldValues{{Field::kIpv4DscpEcn, 0x04}};
    const PipeId pipe = create(root);
    add(pipe, entry_to({{Field::kIpv4DscpEcn, 0x00}}, Forward::to_port(kSf0)));
    add(pipe, entry_to({{Field::kIpv4DscpEcn, 0x04}}, Forward::to_port(kSf4)));
    EXPECT_EQ(send(roce_frame({.traffic_class = 0xfb})), "pf0sf0");
    EXPECT_EQ(send(roce_frame({.traffic_class = 0x06})), "pf0sf4");
}

TEST_F(PipelineTest, a_constant_zero_needs_a_mask) {
    PipeConfig root = basic("root");
    root.is_root = true;
    root.match.values = {{Field::kIpv4DscpEcn, 0}};
    root.match_mask = FieldValues{{Field::kIpv4DscpEcn, 0x03}};
    root.forward = Forward::to_port(kWire);
    add(create(root), BasicEntry{});
    EXPECT_EQ(send(roce_frame({.traffic_class = 0xfc})), "p0");
    EXPECT_EQ(send(roce_frame({.traffic_class = 0x02})), "drop");
}

TEST_F(PipelineTest, a_field_demands_its_header) {
    PipeConfig root = basic("root");
    root.is_root = true;
    root.match.l4_type = L4Type::kRoceV2;
    root.forward = Forward::to_port(kWire);
    root.miss = Forward::to_pipe(deliver("others", kSf4));
    add(create(root), BasicEntry{});
    EXPECT_EQ(send(roce_frame()), "p0");
    EXPECT_EQ(send(arp_frame()), "pf0sf4");
    EXPECT_EQ(send(roce_frame({.destination = "fd00::1", .source = "fd00::2"})), "p0");
}

TEST_F(PipelineTest, ipv6_addresses_are_compared_in_full) {
    PipeConfig root = basic("root");
    root.is_root = true;
    root.match.values.set_all_ones(Field::kIpv6Dst);
    const PipeId pipe = create(root);
    add(pipe, entry_to({{Field::kIpv6Dst, FieldValue::of(*Gid::parse("fd00::1"))}},
                       Forward::to_port(kSf0)));
    add(pipe, entry_to({{Field::kIpv6Dst, FieldValue::of(*Gid::parse("fd01::1"))}},
                       Forward::to_port(kSf4)));
    EXPECT_EQ(send(roce_frame({.destination = "fd00::1", .source = "fd00::9"})), "pf0sf0");
    EXPECT_EQ(send(roce_frame({.destination = "fd01::1", .source = "fd00::9"})), "pf0sf4");
    EXPECT_EQ(send(roce_frame({.destination = "fd00::2", .source = "fd00::9"})), "drop");
    EXPECT_EQ(send(roce_frame()), "drop");
}

TEST_F(PipelineTest, the_headers_of_roce_can_be_matched) {
    PipeConfig root = basic("EGRESS_CNP_COUNT");
    root.is_root = true;
    root.match.values = {{Field::kBthOpcode, 0x81}};
    root.match.values.set_all_ones(Field::kBthDestQp);
    root.monitor.counter = true;
    root.forward = Forward::to_port(kSf0);
    const PipeId pipe = create(root);
    const EntryId entry = add(pipe, BasicEntry{{{Field::kBthDestQp, 0x123456}}, {}});
    EXPECT_EQ(send(roce_frame({.opcode = 0x81, .destination_qp = 0x123456})), "pf0sf0");
    EXPECT_EQ(send(roce_frame({.opcode = 0x81, .destination_qp = 0x123457})), "drop");
    EXPECT_EQ(send(roce_frame({.opcode = 0x0a, .destination_qp = 0x123456})), "drop");
    EXPECT_EQ(counters(entry).packets, 1u);
}

// Two tags, IPv4, TCP from 1000 to 80 with SYN; and what the parser says of it.
wire::Frame tagged_tcp() {
    std::vector<std::byte> bytes(22 + 20 + 20);
    const auto put = [&](std::size_t at, std::initializer_list<unsigned> values) {
        for (const unsigned value : values) bytes[at++] = static_cast<std::byte>(value);
    };
    put(12, {0x88, 0xa8, 0x60, 0x07, 0x81, 0x00, 0x20, 0x09, 0x08, 0x00});
    put(22, {0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2});
    put(42, {0x03, 0xe8, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x02});
    std::uint32_t sum = 0;
    for (std::size_t at = 22; at < 42; at += 2) sum += load_bytes<Be16>(bytes.data() + at);
    store_bytes(bytes.data() + 32, Be16(static_cast<std::uint16_t>(~(sum % 0xffff))));
    wire::Frame frame;
    EXPECT_EQ(wire::parse_frame(bytes, {}, frame), wire::ParseError::kNone);
    return frame;
}

TEST_F(PipelineTest, tags_tcp_and_what_the_parser_says_can_be_matched) {
    struct Try {
        Field field;
        std::uint64_t mask, value;
    };
    const Try tries[] = {
        {Field::kVlan0Tci, 0x0fff, 7},
        {Field::kVlan0Tci, 0xe000, 0x6000},
        {Field::kVlan1Tci, 0x0fff, 9},
        {Field::kEthType, 0xffff, 0x0800},
        {Field::kTcpSrc, 0xffff, 1000},
        {Field::kTransportDst, 0xffff, 80},
        {Field::kTcpFlags, 0xff, 0x02},
        {Field::kIpv4Protocol, 0xff, 6},
        {Field::kParserL2Type, 0xff, static_cast<std::uint64_t>(MetaL2Type::kMultiVlan)},
        {Field::kParserL3Type, 0xff, static_cast<std::uint64_t>(MetaL3Type::kIpv4)},
        {Field::kParserL4Type, 0xff, static_cast<std::uint64_t>(MetaL4Type::kTcp)},
        {Field::kParserIpv4ChecksumOk, 0xff, 1},
        {Field::kParserIpFragmented, 0xff, 0},
    };
    for (const Try& attempt : tries) {
        SCOPED_TRACE(name_of(attempt.field));
        ASSERT_TRUE(control_->flush_pipes().ok());
        PipeConfig root = basic("root");
        root.is_root = true;
        root.match.values.set_all_ones(attempt.field);
        root.match_mask = FieldValues{{attempt.field, attempt.mask}};
        const PipeId pipe = create(root);
        add(pipe, entry_to({{attempt.field, attempt.value}}, Forward::to_port(kWire)));
        EXPECT_EQ(send(tagged_tcp()), "p0");
        if (attempt.field != Field::kParserIpFragmented && attempt.field != Field::kEthType &&
            attempt.field != Field::kParserL3Type &&
            attempt.field != Field::kParserIpv4ChecksumOk) {
            EXPECT_EQ(send(roce_frame()), "drop");
        }
    }
}

TEST_F(PipelineTest, counters_count_packets_and_bytes_on_the_wire) {
    PipeConfig root = basic("root");
    root.is_root = true;
    root.monitor.counter = true;
    root.forward = Forward::drop();
    const EntryId entry = add(create(root), BasicEntry{});
    send(roce_frame({.payload = 5}));
    send(roce_frame({.payload = 8}));
    // Ethernet, IPv4, UDP, BTH, RETH, payload with pad, ICRC
    EXPECT_EQ(counters(entry), (FlowCounters{2, 2 * (14 + 20 + 8 + 12 + 16 + 8 + 4)}));
    EXPECT_EQ(pipeline_.drops().dropped, 2u);
}

TEST_F(PipelineTest, masked_actions_change_only_their_bits_and_the_next_pipe_sees_them) {
    PipeConfig next = basic("next");
    next.match.values.set_all_ones(Field::kIpv4DscpEcn);
    const PipeId second = create(next);
    add(second, entry_to({{Field::kIpv4DscpEcn, 0xfb}}, Forward::to_port(kSf4)));

    PipeConfig root = basic("PATH0_CE_MARK");
    root.is_root = true;
    root.actions.push_back(
        {{{Field::kIpv4DscpEcn, 0x03}}, FieldValues{{Field::kIpv4DscpEcn, 7}}, {}});
    root.forward = Forward::to_pipe(second);
    add(create(root), BasicEntry{});
    EXPECT_EQ(send(roce_frame({.traffic_class = 0xfe})), "pf0sf4");
    EXPECT_EQ(tos(sent()), 0xfb);
}

TEST_F(PipelineTest, metadata_carries_a_value_from_pipe_to_pipe) {
    PipeConfig dispatch = basic("dispatch");
    dispatch.match.values.set_all_ones(Field::kMetaU32_4);
    dispatch.match_mask = FieldValues{{Field::kMetaU32_4, 0xffff'ffff}};
    const PipeId second = create(dispatch);
    add(second, entry_to({{Field::kMetaU32_4, 7}}, Forward::to_port(kSf4)));

    PipeConfig root = basic("root");
    root.is_root = true;
    root.actions.resize(1);
    root.actions[0].values.set_all_ones(Field::kMetaU32_4);
    root.forward = Forward::to_pipe(second);
    BasicEntry entry;
    entry.actions.values.set(Field::kMetaU32_4, 7);
    add(create(root), entry);
    EXPECT_EQ(send(roce_frame()), "pf0sf4");
}

TEST_F(PipelineTest, an_entry_picks_one_of_several_actions) {
    PipeConfig root = basic("root");
    root.is_root = true;
    root.match.values.set_all_ones(Field::kParserPort);
    root.actions.push_back({{{Field::kIpv4Ttl, 9}}, std::nullopt, {}});
    root.actions.push_back({{{Field::kIpv4Ttl, 0xff}}, std::nullopt, {}});
    root.forward = Forward::to_port(kWire);
    const PipeId pipe = create(root);
    BasicEntry entry{{{Field::kParserPort, kSf0.value}}, {}};
    add(pipe, entry);
    entry.match = {{Field::kParserPort, kSf4.value}};
    entry.actions.action_index = 1;
    entry.actions.values = {{Field::kIpv4Ttl, 33}};
    add(pipe, entry);
    send(roce_frame(), kSf0);
    EXPECT_EQ(wire::hop_limit(sent()), 9);
    send(roce_frame(), kSf4);
    EXPECT_EQ(wire::hop_limit(sent()), 33);
}

TEST_F(PipelineTest, control_entries_are_searched_by_priority) {
    PipeConfig root = basic("root");
    root.is_root = true;
    root.type = PipeType::kControl;
    const PipeId pipe = create(root);
    ControlEntry all{7, {}, std::nullopt, to(Forward::drop()), std::nullopt};
    ControlEntry roce{3,
                      {L3Type::kNone, L4Type::kRoceV2, {}},
                      std::nullopt,
                      to(Forward::to_port(kWire)),
                      std::nullopt};
    ControlEntry net{1,
                     {L3Type::kIpv4, L4Type::kNone, {{Field::kIpv4Dst, 0x0a010000}}},
                     FieldValues{{Field::kIpv4Dst, 0xffff0000}},
                     to(Forward::to_port(kSf4)),
                     std::nullopt};
    for (const auto& entry : {all, roce, net}) add(pipe, entry);
    EXPECT_EQ(send(roce_frame()), "p0");
    EXPECT_EQ(send(roce_frame({.destination = "10.1.2.3"})), "pf0sf4");
    EXPECT_EQ(send(arp_frame()), "drop");
    EXPECT_EQ(pipeline_.drops().dropped, 1u);
    EXPECT_EQ(control_->query_miss(pipe)->packets, 0u);
}

TEST_F(PipelineTest, control_entries_may_have_actions_of_their_own) {
    PipeConfig root = basic("root");
    root.is_root = true;
    root.type = PipeType::kControl;
    ControlEntry entry{0, {}, std::nullopt, to(Forward::to_port(kWire)), std::nullopt};
    entry.own_actions = ActionTemplate{{{Field::kIpv4Ttl, 5}}, std::nullopt, {}};
    add(create(root), entry);
    send(roce_frame());
    EXPECT_EQ(wire::hop_limit(sent()), 5);
}

TEST_F(PipelineTest, a_copy_to_a_queue_goes_beside_the_normal_way) {
    PipeConfig check = basic("QP1_CHECK");
    check.is_root = true;
    check.match.values = {{Field::kBthDestQp, 1}};
    PipeConfig flood = basic("QP1_FLOOD");
    flood.type = PipeType::kHash;
    flood.algorithms = HashAlgorithm::kFlooding;
    flood.entries_max = 2;
    const PipeId floods = create(flood);
    const PipeId wire_pipe = deliver("DELIVER_WIRE", kWire);
    add(floods, HashEntry{0, to(Forward::to_queue(3))});
    add(floods, HashEntry{1, to(Forward::to_pipe(wire_pipe))});
    check.forward = Forward::to_pipe(floods);
    check.miss = Forward::to_pipe(wire_pipe);
    add(create(check), BasicEntry{});
    EXPECT_EQ(send(roce_frame({.opcode = 0x64, .destination_qp = 1})), "queue 3, p0");
    EXPECT_EQ(sink_.left.front().port, kSf0);
    EXPECT_EQ(send(roce_frame({.destination_qp = 2})), "p0");
}

TEST_F(PipelineTest, copies_of_a_flood_do_not_see_each_others_changes) {
    const PipeId sf0 = deliver("DELIVER_SF0", kSf0);
    PipeConfig flood = basic("flood");
    flood.is_root = true;
    flood.type = PipeType::kHash;
    flood.algorithms = HashAlgorithm::kFlooding;
    flood.entries_max = 4;
    flood.actions.resize(1);
    flood.actions[0].values.set_all_ones(Field::kIpv4Ttl);
    Pipeline pipeline(test_ports(), {.hash_root_allowed = true});
    const auto control = make_local_control(pipeline);
    (void)sf0;
    const PipeId pipe = control->create_pipe(flood).value();
    for (const std::uint32_t index : {0u, 1u, 3u}) {
        HashEntry entry{index, to(Forward::to_port(index == 3 ? kWire : kSf4))};
        entry.actions.values = {{Field::kIpv4Ttl, 10 + index}};
        ASSERT_TRUE(control->add_entry(pipe, entry, Batch::kFlush).ok());
    }
    wire::Frame frame = roce_frame();
    EXPECT_TRUE(pipeline.process(kSf0, frame, sink_));
    ASSERT_EQ(sink_.left.size(), 3u);
    EXPECT_EQ(wire::hop_limit(sink_.left[0].frame), 10);
    EXPECT_EQ(wire::hop_limit(sink_.left[1].frame), 11);
    EXPECT_EQ(wire::hop_limit(sink_.left[2].frame), 13);
    EXPECT_EQ(sink_.left[2].port, kWire);
}

TEST_F(PipelineTest, packets_of_one_flow_go_to_one_queue_and_flows_spread) {
    PipeConfig root = basic("root");
    root.is_root = true;
    root.forward = Forward::to_queues({4, 5, 6, 7});
    add(create(root), BasicEntry{});
    std::set<std::string> queues;
    for (int i = 0; i < 64; ++i) {
        const RoceOptions flow{.source = "10.0.1." + std::to_string(i)};
        const std::string queue = send(roce_frame(flow));
        EXPECT_EQ(send(roce_frame(flow)), queue);
        queues.insert(queue);
    }
    EXPECT_EQ(queues, (std::set<std::string>{"queue 4", "queue 5", "queue 6", "queue 7"}));
}

TEST_F(PipelineTest, a_ring_of_pipes_ends_and_is_counted) {
    PipeConfig first = basic("first");
    first.is_root = true;
    first.forward = Forward::changeable();
    const PipeId pipe = create(first);
    PipeConfig second = basic("second");
    second.forward = Forward::to_pipe(pipe);
    const PipeId back = create(second);
    add(back, BasicEntry{});
    add(pipe, entry_to({}, Forward::to_pipe(back)));
    EXPECT_EQ(send(roce_frame()), "drop");
    EXPECT_EQ(pipeline_.drops().loops, 1u);
}

TEST_F(PipelineTest, floods_within_floods_end_too) {
    Pipeline pipeline(test_ports(), {.hash_root_allowed = true});
    const auto control = make_local_control(pipeline);
    PipeConfig flood = basic("flood");
    flood.is_root = true;
    flood.type = PipeType::kHash;
    flood.algorithms = HashAlgorithm::kFlooding;
    flood.entries_max = 1024;
    const PipeId pipe = control->create_pipe(flood).value();
    for (std::uint32_t index = 0; index < 1024; ++index) {
        const auto added =
            control->add_entry(pipe, HashEntry{index, to(Forward::to_pipe(pipe))}, Batch::kFlush);
        ASSERT_TRUE(added.ok());
        std::vector<EntryCompletion> done;
        ASSERT_TRUE(control->process({}, 0, done).ok());
    }
    wire::Frame frame = roce_frame();
    EXPECT_FALSE(pipeline.process(kSf0, frame, sink_));
    EXPECT_GT(pipeline.drops().loops, 0u);
    EXPECT_LE(pipeline.pipes().at(pipe)->hits, 2u * 1024 * 1024);
}

TEST_F(PipelineTest, a_miss_can_be_turned_to_another_pipe) {
    PipeConfig root = basic("root");
    root.is_root = true;
    const PipeId pipe = create(root);
    EXPECT_EQ(send(roce_frame()), "drop");
    const PipeId sf4 = deliver("DELIVER_SF4", kSf4);
    EXPECT_TRUE(control_->update_miss(pipe, Forward::to_pipe(sf4)).ok());
    EXPECT_EQ(send(roce_frame()), "pf0sf4");
}

TEST_F(PipelineTest, flushed_pipes_leave_an_empty_domain_that_takes_a_new_root) {
    PipeConfig root = basic("root");
    root.is_root = true;
    root.forward = Forward::to_port(kWire);
    add(create(root), BasicEntry{});
    EXPECT_EQ(send(roce_frame()), "p0");
    EXPECT_TRUE(control_->flush_pipes().ok());
    EXPECT_EQ(send(roce_frame()), "drop");
    add(create(root), BasicEntry{});
    EXPECT_EQ(send(roce_frame()), "p0");
}

}  // namespace
}  // namespace rdmalab::flow

// What ibv_create_flow(3) says, clause by clause, between two devices of one card: `verbs_flow
// NAME` proves one clause and ends with 0. `verbs_flow --list` names them.

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>

#include "raw_kit.h"

namespace rdmalab::programs {
namespace {

constexpr int kAllowLoopBack = 1;  // bit 0 of enum ibv_flow_flags, which newer headers do not name

void expect(bool condition, const char* what) {
    if (!condition) fail(kWrongData, "expected: %s", what);
}

// A sender on mlx5_3, receivers on mlx5_2.
struct Setting {
    Device far{"mlx5_3"}, near{"mlx5_2"};
    RawEnd sender{far}, first{near}, second{near};
    Datagram datagram{mac_of(near), mac_of(far)};

    Bytes frame(std::uint16_t port, char mark = 'a') {
        datagram.destination_port = port;
        datagram.mark = mark;
        return datagram.frame();
    }
    // Who gets a frame to this port?
    void expect_receivers(std::uint16_t port, std::size_t at_first, std::size_t at_second,
                          const char* what) {
        const Bytes sent = frame(port);
        sender.send(sent);
        const auto one = first.receive(), two = second.receive();
        if (one.size() != at_first || two.size() != at_second) {
            fail(kWrongData, "%s: expected %zu and %zu copies, found %zu and %zu", what, at_first,
                 at_second, one.size(), two.size());
        }
        for (const auto* frames : {&one, &two}) {
            for (const Bytes& found : *frames) expect(found == sent, "the frame as it was sent");
        }
    }
};

void destroy(ibv_flow* flow) { check(ibv_destroy_flow(flow), "ibv_destroy_flow"); }

void a_rule_steers_what_it_describes() {
    Setting s;
    ibv_flow* flow = Rule().destination(mac_of(s.near)).port(7000).create(s.first);
    s.expect_receivers(7000, 1, 0, "a frame that the rule describes");
    s.expect_receivers(7001, 0, 0, "another frame");
    destroy(flow);
    s.expect_receivers(7000, 0, 0, "a frame after ibv_destroy_flow");
}

void frames_of_all_sizes_arrive_whole() {
    Setting s;
    destroy(Rule().create(s.first));
    ibv_flow* flow = Rule().create(s.first);
    for (std::size_t size : {60, 64, 127, 128, 129, 255, 256, 257, 600, 1514}) {
        Bytes frame = ethernet(mac_of(s.near), mac_of(s.far), 0x88b5);
        while (frame.size() < size) frame.push_back(static_cast<char>(frame.size() * 7));
        s.sender.send(frame);
        const auto found = s.first.receive();
        expect(found.size() == 1 && found[0] == frame, "a frame of any size as it was sent");
    }
    destroy(flow);
}

void a_lower_number_wins() {
    Setting s;
    ibv_flow* low = Rule().port(7000).priority(7).create(s.first);
    ibv_flow* high = Rule().priority(3).create(s.second);  // created later, and asks for less
    s.expect_receivers(7000, 0, 1, "the lower priority number");
    destroy(high);
    s.expect_receivers(7000, 1, 0, "what is left");
    destroy(low);
}

void among_equals_the_one_that_fixes_more_wins_in_any_order() {
    Setting s;
    for (bool wide_first : {true, false}) {
        const auto wide = [&] { return Rule().port(7000, 0xff00).create(s.second); };
        const auto narrow = [&] { return Rule().port(7000).create(s.first); };
        ibv_flow* one = wide_first ? wide() : narrow();
        ibv_flow* two = wide_first ? narrow() : wide();
        s.expect_receivers(7000, 1, 0, "the rule with more bits");
        s.expect_receivers(6913, 0, 1, "a frame that only the wide rule takes");
        destroy(one);
        destroy(two);
    }
}

void equal_rules_each_get_the_frame() {
    Setting s;
    ibv_flow* one = Rule().port(7000).create(s.first);
    ibv_flow* two = Rule().port(7000).create(s.second);
    s.expect_receivers(7000, 1, 1, "two rules that are the same");
    destroy(one);
    destroy(two);
}

void dont_trap_lets_lower_priorities_have_it_too() {
    Setting s;
    ibv_flow* copy =
        Rule().port(7000).priority(1).flags(IBV_FLOW_ATTR_FLAGS_DONT_TRAP).create(s.first);
    ibv_flow* rest = Rule().priority(2).create(s.second);
    s.expect_receivers(7000, 1, 1, "a rule that does not trap");
    s.expect_receivers(7001, 0, 1, "a frame that only the other takes");
    destroy(copy);
    destroy(rest);
}

void any_bit_may_be_masked() {
    Setting s;
    ibv_flow* odd = Rule().port(1, 1).create(s.first);
    s.expect_receivers(7001, 1, 0, "an odd port");
    s.expect_receivers(7000, 0, 0, "an even port");
    destroy(odd);
    ibv_flow_spec_ipv4 net{};
    net.val.src_ip = htonl(0x0a00'0000);
    net.mask.src_ip = htonl(0xffff'fff0);
    ibv_flow* flow = Rule().add(IBV_FLOW_SPEC_IPV4, net).create(s.first);
    s.datagram.source_ip = 0x0a00'000f;
    s.expect_receivers(7000, 1, 0, "an address of the network");
    s.datagram.source_ip = 0x0a00'0010;
    s.expect_receivers(7000, 0, 0, "an address of another network");
    destroy(flow);
}

void defaults_take_what_no_rule_took() {
    Setting s;
    ibv_flow* all = Rule(IBV_FLOW_ATTR_ALL_DEFAULT).create(s.first);
    ibv_flow* rule = Rule().port(7000).create(s.second);
    s.expect_receivers(7000, 0, 1, "a frame that a rule takes");
    s.expect_receivers(7001, 1, 0, "a frame that no rule takes");
    destroy(all);
    ibv_flow* groups = Rule(IBV_FLOW_ATTR_MC_DEFAULT).create(s.first);
    s.expect_receivers(7001, 0, 0, "a frame to one, with a default rule for groups");
    s.datagram.destination_mac = number(0x0100'5e01'0101, 6);
    s.expect_receivers(7001, 1, 0, "a frame to a group");
    destroy(groups);
    destroy(rule);
}

void a_sniffer_gets_copies_of_all() {
    Setting s;
    ibv_flow* sniffer = Rule(IBV_FLOW_ATTR_SNIFFER).create(s.first);
    ibv_flow* rule = Rule().port(7000).create(s.second);
    s.expect_receivers(7000, 1, 1, "a frame that comes");
    s.second.send(Datagram{mac_of(s.far), mac_of(s.near)}.frame());
    expect(s.first.receive().size() == 1, "the sniffer sees what is sent");
    destroy(sniffer);
    destroy(rule);
}

void egress_rules_drop_what_is_sent() {
    Setting s;
    ibv_flow* all = Rule().create(s.first);
    ibv_flow* stop = Rule().port(7000).flags(IBV_FLOW_ATTR_FLAGS_EGRESS).drop().create(s.sender);
    s.expect_receivers(7000, 0, 0, "a frame that may not leave");
    s.expect_receivers(7001, 1, 0, "another");
    destroy(stop);
    destroy(all);
}

void own_frames_come_back_only_when_asked_for() {
    Setting s;
    const Bytes own = Datagram{mac_of(s.near), mac_of(s.near)}.frame();
    ibv_flow* flow = Rule().create(s.first);
    s.first.send(own);
    expect(s.first.receive().empty(), "no frame of its own");
    s.second.send(own);
    expect(s.first.receive().size() == 1, "the frame of another QP of the device");
    destroy(flow);
    flow = Rule().flags(kAllowLoopBack).create(s.first);
    s.first.send(own);
    expect(s.first.receive().size() == 1, "its own frame, with ALLOW_LOOP_BACK");
    destroy(flow);
}

void tags_come_with_the_completion() {
    Setting s;
    ibv_flow* flow = Rule().port(7000).tag(0xabcdef).create(s.first);
    s.expect_receivers(7000, 1, 0, "a tagged frame");
    expect(s.first.last_tag() == 0xabcdef, "the tag of the rule");
    destroy(flow);
}

void drop_keeps_a_frame_from_everybody() {
    Setting s;
    ibv_flow* rest = Rule().priority(2).create(s.second);
    ibv_flow* drop = Rule().port(7000).drop().create(s.first);
    s.expect_receivers(7000, 0, 0, "a dropped frame");
    s.expect_receivers(7001, 0, 1, "another");
    destroy(drop);
    destroy(rest);
}

void checksums_are_made_and_checked() {
    Setting s;
    ibv_flow* flow = Rule().port(7000).create(s.first);
    const Bytes right = s.frame(7000);
    Bytes empty = right;
    empty.replace(24, 2, "\x11\x11");
    empty.replace(40, 2, "\x11\x11");
    s.sender.send(empty, IBV_SEND_IP_CSUM);
    const auto found = s.first.receive();
    expect(found.size() == 1 && found[0].substr(24, 2) == right.substr(24, 2), "an IPv4 checksum");
    expect(found[0].substr(40, 2) != empty.substr(40, 2), "a UDP checksum");
    expect(s.first.last_flags() & IBV_WC_IP_CSUM_OK, "IBV_WC_IP_CSUM_OK");
    Bytes broken = found[0];
    broken.back() = static_cast<char>(broken.back() ^ 1);
    s.sender.send(broken);
    expect(s.first.receive().size() == 1, "a frame with a wrong checksum");
    expect(!(s.first.last_flags() & IBV_WC_IP_CSUM_OK), "no IBV_WC_IP_CSUM_OK");
    destroy(flow);
}

void counters_count() {
    Setting s;
    ibv_counters_init_attr init{};
    ibv_counters* counters = check(ibv_create_counters(s.near.context(), &init), "create_counters");
    ibv_counter_attach_attr bytes{IBV_COUNTER_BYTES, 0, 0}, packets{IBV_COUNTER_PACKETS, 1, 0};
    check(ibv_attach_counters_point_flow(counters, &bytes, nullptr), "attach bytes");
    check(ibv_attach_counters_point_flow(counters, &packets, nullptr), "attach packets");
    ibv_flow* flow = Rule().port(7000).count(counters).create(s.first);
    expect(ibv_attach_counters_point_flow(counters, &packets, nullptr) == EBUSY,
           "EBUSY when bound");
    expect(ibv_destroy_counters(counters) == EBUSY, "EBUSY while a rule counts");
    for (int i = 0; i < 3; ++i) s.expect_receivers(7000, 1, 0, "a counted frame");
    s.expect_receivers(7001, 0, 0, "another");
    std::uint64_t values[2] = {};
    check(ibv_read_counters(counters, values, 2, 0), "ibv_read_counters");
    expect(values[1] == 3 && values[0] == 3 * s.frame(7000).size(), "3 frames and their bytes");
    expect(ibv_read_counters(counters, values, 1, 0) == EINVAL, "EINVAL for too little room");
    destroy(flow);
    check(ibv_destroy_counters(counters), "ibv_destroy_counters");
}

// A frame for each type of specification, and a rule that takes it by that specification alone.
struct Spec {
    Bytes payload;  // behind the Ethernet header
    std::uint16_t ether_type;
    Rule hit, miss;
};

std::vector<Spec> specs_of_tunnels(const Setting& s) {
    const Bytes inner = Datagram{number(0x0222'2222'2222, 6), number(0x0233'3333'3333, 6)}.frame();
    ibv_flow_spec_tunnel vni{}, other_vni{};
    vni.val.tunnel_id = htonl(0x123456);
    other_vni.val.tunnel_id = htonl(0x123457);
    vni.mask.tunnel_id = other_vni.mask.tunnel_id = htonl(0xffffff);
    const Bytes vxlan = number(0x0800'0000, 4) + number(0x12345600, 4) + inner;
    ibv_flow_spec_gre gre{}, other_gre{};
    gre.val.protocol = htons(0x6558);
    other_gre.val.protocol = htons(0x0800);
    gre.mask.protocol = other_gre.mask.protocol = 0xffff;
    const Bytes gre_bytes = number(0x6558, 4) + inner;
    ibv_flow_spec_mpls mpls{}, other_mpls{};
    mpls.val.label = htonl(0x0001'0140);
    other_mpls.val.label = htonl(0x0002'0140);
    mpls.mask.label = other_mpls.mask.label = htonl(0xffff'f000);
    const Bytes mpls_bytes = number(0x0001'0140, 4) + ipv4(1, 2, 17, 8) + udp(1, 2, 0);
    ibv_flow_spec_tcp_udp port{}, other_port{};
    port.val.dst_port = htons(7000);
    other_port.val.dst_port = htons(7001);
    port.mask.dst_port = other_port.mask.dst_port = 0xffff;
    (void)s;
    const auto in_ip = [](std::uint8_t protocol, const Bytes& bytes) {
        return ipv4(1, 2, protocol, bytes.size()) + bytes;
    };
    const Bytes in_vxlan = in_ip(17, udp(9, 4789, vxlan.size()) + vxlan);
    return {
        {in_vxlan, 0x0800, Rule().add(IBV_FLOW_SPEC_VXLAN_TUNNEL, vni),
         Rule().add(IBV_FLOW_SPEC_VXLAN_TUNNEL, other_vni)},
        {in_vxlan, 0x0800, Rule().add(IBV_FLOW_SPEC_INNER | IBV_FLOW_SPEC_UDP, port),
         Rule().add(IBV_FLOW_SPEC_INNER | IBV_FLOW_SPEC_UDP, other_port)},
        {in_ip(47, gre_bytes), 0x0800, Rule().add(IBV_FLOW_SPEC_GRE, gre),
         Rule().add(IBV_FLOW_SPEC_GRE, other_gre)},
        {mpls_bytes, 0x8847, Rule().add(IBV_FLOW_SPEC_MPLS, mpls),
         Rule().add(IBV_FLOW_SPEC_MPLS, other_mpls)},
    };
}

std::vector<Spec> plain_specs() {
    ibv_flow_spec_eth type{}, other_type{}, vlan{}, other_vlan{};
    type.val.ether_type = htons(0x88b5);
    other_type.val.ether_type = htons(0x88b6);
    type.mask.ether_type = other_type.mask.ether_type = 0xffff;
    vlan.val.vlan_tag = htons(0x2005);
    other_vlan.val.vlan_tag = htons(0x2006);
    vlan.mask.vlan_tag = other_vlan.mask.vlan_tag = htons(0x0fff);
    ibv_flow_spec_ipv4_ext ext{}, other_ext{};
    ext.val.proto = 50;
    other_ext.val.proto = 51;
    ext.mask.proto = other_ext.mask.proto = 0xff;
    ibv_flow_spec_ipv6 six{}, other_six{};
    six.val.dst_ip[15] = 2;
    other_six.val.dst_ip[15] = 3;
    six.mask.dst_ip[15] = other_six.mask.dst_ip[15] = 0xff;
    ibv_flow_spec_tcp_udp port{}, other_port{};
    port.val.dst_port = htons(80);
    other_port.val.dst_port = htons(81);
    port.mask.dst_port = other_port.mask.dst_port = 0xffff;
    ibv_flow_spec_esp esp{}, other_esp{};
    esp.val.spi = htonl(0x1000'0001);
    other_esp.val.spi = htonl(0x1000'0002);
    esp.mask.spi = other_esp.mask.spi = 0xffff'ffff;
    const Bytes esp_bytes = ipv4(1, 2, 50, 64) + number(0x1000'0001, 4) + Bytes(60, 'e');
    const Bytes tagged = number(0x2005, 2) + number(0x0800, 2) + ipv4(1, 2, 17, 8) + udp(1, 2, 0);
    return {
        {Bytes(64, 'x'), 0x88b5, Rule().add(IBV_FLOW_SPEC_ETH, type),
         Rule().add(IBV_FLOW_SPEC_ETH, other_type)},
        {tagged, 0x8100, Rule().add(IBV_FLOW_SPEC_ETH, vlan),
         Rule().add(IBV_FLOW_SPEC_ETH, other_vlan)},
        {esp_bytes, 0x0800, Rule().add(IBV_FLOW_SPEC_IPV4_EXT, ext),
         Rule().add(IBV_FLOW_SPEC_IPV4_EXT, other_ext)},
        {esp_bytes, 0x0800, Rule().add(IBV_FLOW_SPEC_ESP, esp),
         Rule().add(IBV_FLOW_SPEC_ESP, other_esp)},
        {ipv6(1, 2, 6, 20) + tcp(9, 80), 0x86dd, Rule().add(IBV_FLOW_SPEC_IPV6, six),
         Rule().add(IBV_FLOW_SPEC_IPV6, other_six)},
        {ipv6(1, 2, 6, 20) + tcp(9, 80), 0x86dd, Rule().add(IBV_FLOW_SPEC_TCP, port),
         Rule().add(IBV_FLOW_SPEC_TCP, other_port)},
    };
}

void every_type_of_specification_is_looked_at() {
    Setting s;
    auto all = plain_specs();
    for (auto& more : specs_of_tunnels(s)) all.push_back(std::move(more));
    int index = 0;
    for (Spec& spec : all) {
        const Bytes frame = ethernet(mac_of(s.near), mac_of(s.far), spec.ether_type) + spec.payload;
        ibv_flow* hit = spec.hit.create(s.first);
        ibv_flow* miss = spec.miss.create(s.second);
        s.sender.send(frame);
        const std::size_t taken = s.first.receive().size(), missed = s.second.receive().size();
        if (taken != 1 || missed != 0) {
            fail(kWrongData, "specification %d: expected 1 and 0 frames, found %zu and %zu", index,
                 taken, missed);
        }
        destroy(hit);
        destroy(miss);
        ++index;
    }
}

void what_is_wrong_is_einval() {
    Setting s;
    Rule two_ports, long_size, short_size, no_port, bad_flags, later;
    two_ports.port(1).port(2);
    long_size.port(1).attributes().size += 4;
    short_size.port(1).attributes().size -= 4;
    no_port.attributes().port = 0;
    bad_flags.flags(1 << 5);
    later.attributes().comp_mask = 1;
    for (Rule* rule : {&two_ports, &long_size, &short_size, &no_port, &bad_flags, &later}) {
        expect(rule->failure(s.first.qp()) == EINVAL, "EINVAL for a wrong specification");
    }
    CompletionQueue cq(s.near, 16);
    QueuePair rc(s.near, cq, IBV_QPT_RC, {}, 1);
    expect(Rule().failure(rc.raw()) == EINVAL, "EINVAL for an RC QP");
    QueuePair ud(s.near, cq, IBV_QPT_UD, {}, 1);
    expect(Rule().failure(ud.raw()) == 0, "a UD QP may have rules");
}

void a_rule_that_is_gone_is_einval() {
    Setting s;
    auto third = std::make_unique<RawEnd>(s.near);
    ibv_flow* flow = Rule().port(7000).create(*third);
    third.reset();
    expect(ibv_destroy_flow(flow) == EINVAL, "EINVAL after the QP took the rule along");
    s.expect_receivers(7000, 0, 0, "a frame after its QP has gone");
}

// RoCEv2 datagrams are given to a UD QP whatever QP number they bear.
void a_ud_qp_gets_the_datagrams_that_a_rule_describes() {
    Setting s;
    Path path;
    Memory memory(s.near, 4096), far_memory(s.far, 4096);
    CompletionQueue cq(s.near, 16), far_cq(s.far, 16);
    QueuePair ud(s.near, cq, IBV_QPT_UD, {}, 1), from(s.far, far_cq, IBV_QPT_UD, {}, 1);
    Endpoint there = ud.endpoint(s.near, path, memory);
    ud.connect(from.endpoint(s.far, path, far_memory), path);
    from.connect(there, path);
    ibv_sge sge = memory.sge(0, 4096);
    ibv_recv_wr receive{};
    receive.sg_list = &sge;
    receive.num_sge = 1;
    ud.post(receive);
    ibv_flow* flow =
        check(ibv_create_flow(ud.raw(), &Rule().port(4791).attributes()), "ibv_create_flow");
    ibv_ah_attr address = address_of(there.gid, path);
    ibv_ah* ah = check(ibv_create_ah(s.far.pd(), &address), "ibv_create_ah");
    ibv_sge out = far_memory.sge(0, 100);
    ibv_send_wr work{};
    work.sg_list = &out;
    work.num_sge = 1;
    work.opcode = IBV_WR_SEND;
    work.send_flags = IBV_SEND_SIGNALED;
    work.wr.ud = {ah, 0xabcdef, kQkey};  // no such QP
    from.post(work);
    far_cq.wait();
    expect(cq.wait().byte_len == 140, "the datagram with its GRH");
    destroy(flow);
    check(ibv_destroy_ah(ah), "ibv_destroy_ah");
}

void a_hundred_thousand_rules_come_and_go() {
    Setting s;
    for (int i = 0; i < 100'000; ++i) {
        destroy(Rule().port(static_cast<std::uint16_t>(i)).create(s.first));
    }
    s.expect_receivers(7000, 0, 0, "a frame when all rules are gone");
}

const std::map<std::string, std::function<void()>> kClauses = {
#define CLAUSE(name) \
    { #name, name }
    CLAUSE(a_rule_steers_what_it_describes),
    CLAUSE(frames_of_all_sizes_arrive_whole),
    CLAUSE(a_lower_number_wins),
    CLAUSE(among_equals_the_one_that_fixes_more_wins_in_any_order),
    CLAUSE(equal_rules_each_get_the_frame),
    CLAUSE(dont_trap_lets_lower_priorities_have_it_too),
    CLAUSE(any_bit_may_be_masked),
    CLAUSE(defaults_take_what_no_rule_took),
    CLAUSE(a_sniffer_gets_copies_of_all),
    CLAUSE(egress_rules_drop_what_is_sent),
    CLAUSE(own_frames_come_back_only_when_asked_for),
    CLAUSE(tags_come_with_the_completion),
    CLAUSE(drop_keeps_a_frame_from_everybody),
    CLAUSE(checksums_are_made_and_checked),
    CLAUSE(counters_count),
    CLAUSE(every_type_of_specification_is_looked_at),
    CLAUSE(what_is_wrong_is_einval),
    CLAUSE(a_rule_that_is_gone_is_einval),
    CLAUSE(a_ud_qp_gets_the_datagrams_that_a_rule_describes),
    CLAUSE(a_hundred_thousand_rules_come_and_go),
#undef CLAUSE
};

// `error DEVICE`: the errno value of a rule on a UD QP, as a number.
void print_error(const char* name) {
    Device device(name);
    CompletionQueue cq(device, 16);
    QueuePair ud(device, cq, IBV_QPT_UD, {}, 1);
    std::printf("%d\n", Rule().failure(ud.raw()));
}

// `send DEVICE MAC PORT COUNT`: datagrams for another program.
void send_datagrams(char** words) {
    Device device(words[0]);
    RawEnd end(device);
    Datagram datagram{number(std::strtoull(words[1], nullptr, 16), 6), mac_of(device)};
    datagram.destination_port = static_cast<std::uint16_t>(std::atoi(words[2]));
    for (int i = 0; i < std::atoi(words[3]); ++i) end.send(datagram.frame());
}

}  // namespace
}  // namespace rdmalab::programs

int main(int argc, char** argv) {
    using namespace rdmalab::programs;
    const std::string name = argc > 1 ? argv[1] : "";
    if (name == "--list") {
        for (const auto& clause : kClauses) std::puts(clause.first.c_str());
        return 0;
    }
    if (name == "error" && argc == 3) return print_error(argv[2]), 0;
    if (name == "send" && argc == 6) return send_datagrams(argv + 2), 0;
    const auto found = kClauses.find(name);
    if (found == kClauses.end()) fail(kUsage, "usage: verbs_flow --list | CLAUSE");
    found->second();
    return 0;
}

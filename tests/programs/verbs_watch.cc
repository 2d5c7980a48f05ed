// Takes the packets of one kind that reach a device, until there are enough of them:
//
//   verbs_watch DEVICE KIND VALUE COUNT
//
// KIND and VALUE are a specification of one field: ether (type), vlan (id), ipv4 (protocol), ipv6
// (next header), tcp or udp (destination port), vxlan (network), and the last five but vxlan with
// inner- before them. Prints "ready", then the length of each packet.

#include <arpa/inet.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "raw_kit.h"

namespace rdmalab::programs {
namespace {

Rule rule_for(std::string kind, unsigned value) {
    unsigned inner = 0;
    if (kind.rfind("inner-", 0) == 0) {
        inner = IBV_FLOW_SPEC_INNER;
        kind.erase(0, 6);
    }
    const auto narrow = static_cast<std::uint16_t>(value);
    Rule rule;
    if (kind == "ether" || kind == "vlan") {
        ibv_flow_spec_eth spec{};
        (kind == "ether" ? spec.val.ether_type : spec.val.vlan_tag) = htons(narrow);
        (kind == "ether" ? spec.mask.ether_type : spec.mask.vlan_tag) =
            htons(kind == "ether" ? 0xffff : 0x0fff);
        rule.add(IBV_FLOW_SPEC_ETH | inner, spec);
    } else if (kind == "ipv4") {
        ibv_flow_spec_ipv4_ext spec{};
        spec.val.proto = static_cast<std::uint8_t>(value);
        spec.mask.proto = 0xff;
        rule.add(IBV_FLOW_SPEC_IPV4_EXT | inner, spec);
    } else if (kind == "ipv6") {
        ibv_flow_spec_ipv6 spec{};
        spec.val.next_hdr = static_cast<std::uint8_t>(value);
        spec.mask.next_hdr = 0xff;
        rule.add(IBV_FLOW_SPEC_IPV6 | inner, spec);
    } else if (kind == "tcp" || kind == "udp") {
        ibv_flow_spec_tcp_udp spec{};
        spec.val.dst_port = htons(narrow);
        spec.mask.dst_port = 0xffff;
        rule.add((kind == "tcp" ? IBV_FLOW_SPEC_TCP : IBV_FLOW_SPEC_UDP) | inner, spec);
    } else if (kind == "vxlan") {
        ibv_flow_spec_tunnel spec{};
        spec.val.tunnel_id = htonl(value);
        spec.mask.tunnel_id = htonl(0xff'ffff);
        rule.add(IBV_FLOW_SPEC_VXLAN_TUNNEL, spec);
    } else {
        fail(kUsage, "%s is no kind of packet", kind.c_str());
    }
    return rule;
}

void watch(const char* name, const char* kind, unsigned value, unsigned count) {
    Device device(name);
    RawEnd end(device);
    ibv_flow* flow = rule_for(kind, value).create(end);
    std::puts("ready");
    std::fflush(stdout);
    while (count > 0) {
        for (const Bytes& packet : end.receive()) {
            std::printf("%zu\n", packet.size());
            std::fflush(stdout);
            if (count > 0) --count;
        }
    }
    check(ibv_destroy_flow(flow), "ibv_destroy_flow");
}

}  // namespace
}  // namespace rdmalab::programs

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fputs("usage: verbs_watch DEVICE KIND VALUE COUNT\n", stderr);
        return 2;
    }
    rdmalab::programs::watch(argv[1], argv[2],
                             static_cast<unsigned>(std::strtoul(argv[3], nullptr, 0)),
                             static_cast<unsigned>(std::strtoul(argv[4], nullptr, 0)));
    return 0;
}

// Lays the headers of a frame flat, as far as they are there and well formed: Ethernet, VLAN, IPv4,
// IPv6 with extension headers, TCP, UDP, ESP, and one tunnel (VXLAN RFC 7348, GRE RFC 2784 and
// 2890, MPLS RFC 3032, also in UDP RFC 7510 and in GRE RFC 4023) with what it carries.
#pragma once

#include "flow/rule_fields.h"

namespace rdmalab::flow {

struct FlatFrame {
    std::uint32_t layers = 0;  // RuleLayer
    RuleFields fields;
};

// `bytes` begin with the destination MAC and may end anywhere: a header that is cut is not there.
FlatFrame flatten(ByteView bytes);

}  // namespace rdmalab::flow

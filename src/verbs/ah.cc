// Address handles, and addresses found in received packets.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/ip.h>
#include <string.h>

#include <new>

#include "verbs/gids.h"
#include "verbs/objects.h"
#include "verbs/qp.h"

namespace rdmalab::verbs {

namespace {

// What a received GRH says about its sender, as the attributes to answer it.
struct ReceivedAddress {
    ibv_gid source{}, destination{};
    std::uint32_t flow_label = 0;
    std::uint8_t hop_limit = 0, traffic_class = 0;
};

ibv_gid mapped(std::uint32_t address_network_order) {
    ibv_gid gid{};
    gid.raw[10] = gid.raw[11] = 0xff;
    memcpy(gid.raw + 12, &address_network_order, 4);
    return gid;
}

bool has_valid_checksum(const iphdr& header) {
    std::uint16_t words[sizeof header / 2];
    memcpy(words, &header, sizeof words);
    std::uint32_t sum = 0;
    for (std::uint16_t word : words) sum += word;
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return sum == 0xffff;
}

// An IPv4 header lies in the last 20 of the 40 bytes, behind bytes of any value (IBTA annex
// A17.4.5.2); only its checksum tells it from the tail of an IPv6 header for sure.
bool read_ipv4(const ibv_grh& grh, ReceivedAddress& out) {
    iphdr ip;
    memcpy(&ip, reinterpret_cast<const std::byte*>(&grh) + sizeof grh - sizeof ip, sizeof ip);
    if (ip.version != 4 || ip.ihl != 5 || !has_valid_checksum(ip)) return false;
    out.source = mapped(ip.saddr);
    out.destination = mapped(ip.daddr);
    out.hop_limit = ip.ttl;
    out.traffic_class = ip.tos;
    return true;
}

bool read_ipv6(const ibv_grh& grh, ReceivedAddress& out) {
    std::uint32_t word = ntohl(grh.version_tclass_flow);
    if (word >> 28 != 6) return false;
    out.source = grh.sgid;
    out.destination = grh.dgid;
    out.hop_limit = grh.hop_limit;
    out.traffic_class = static_cast<std::uint8_t>(word >> 20);
    out.flow_label = word & 0xfffff;
    return true;
}

constexpr std::uint8_t kAnyHop = 64;

}  // namespace

}  // namespace rdmalab::verbs

using namespace rdmalab;
using namespace rdmalab::verbs;

extern "C" ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
    Context& context = context_of(pd);
    abi::CreateAhRequest request{.pd = pd->handle, .attributes = to_abi(*attributes)};
    abi::HandleReply reply{};
    if (int status = context.connection.call(abi::Op::kCreateAh, request, reply)) {
        return fail(status);
    }
    auto* ah = new (std::nothrow) Ah();
    if (ah == nullptr) {
        context.connection.call(abi::Op::kDestroyAh, abi::HandleRequest{reply.handle});
        return fail(ENOMEM);
    }
    ah->context = pd->context;
    ah->pd = pd;
    ah->handle = reply.handle;
    return ah;
}

extern "C" int ibv_destroy_ah(ibv_ah* ah) {
    Context& context = context_of(ah->context);
    int status = context.connection.call(abi::Op::kDestroyAh, abi::HandleRequest{ah->handle});
    if (destroy_status(context, status) != 0) return status;
    delete static_cast<Ah*>(ah);
    return 0;
}

extern "C" int ibv_init_ah_from_wc(ibv_context* public_context, uint8_t port, ibv_wc* wc,
                                   ibv_grh* grh, ibv_ah_attr* attributes) {
    *attributes = {};
    attributes->dlid = wc->slid;
    attributes->sl = wc->sl;
    attributes->src_path_bits = wc->dlid_path_bits;
    attributes->port_num = port;
    if (!(wc->wc_flags & IBV_WC_GRH)) return 0;
    ReceivedAddress address;
    if (!read_ipv4(*grh, address) && !read_ipv6(*grh, address)) {
        errno = EINVAL;
        return -1;
    }
    int index = find_gid(context_of(public_context), port, address.destination);
    if (index < 0) return -1;
    attributes->sl = 0;  // over Ethernet `sl` tells the kind of packet
    attributes->is_global = 1;
    attributes->grh.dgid = address.source;
    attributes->grh.sgid_index = static_cast<std::uint8_t>(index);
    attributes->grh.flow_label = address.flow_label;
    attributes->grh.traffic_class = address.traffic_class;
    attributes->grh.hop_limit = kAnyHop;
    return 0;
}

extern "C" ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) {
    ibv_ah_attr attributes;
    if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attributes) != 0) return nullptr;
    return ibv_create_ah(pd, &attributes);
}

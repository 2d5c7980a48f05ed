#include "verbs/rdmacm/marshal.h"

#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <string.h>

#include <algorithm>

namespace rdmalab::rdmacm {

namespace {

constexpr std::uint8_t kMappedPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr std::uint8_t kSelectExactly = 2;  // IBTA vol. 1, 15.2.5.16: selectors of a path record
constexpr std::uint8_t kRate100Gbps = 16;

bool is_mapped(const std::uint8_t* address) {
    return memcmp(address, kMappedPrefix, sizeof kMappedPrefix) == 0;
}

abi::CmAddress from_ib(const sockaddr_ib& in) {
    abi::CmAddress out{};
    memcpy(out.address, in.sib_addr.sib_raw, sizeof out.address);
    out.family = is_mapped(out.address) ? AF_INET : AF_INET6;
    out.port = static_cast<std::uint16_t>(be64toh(in.sib_sid) & RDMA_IB_IP_PORT_MASK);
    return out;
}

}  // namespace

std::optional<abi::CmAddress> from_sockaddr(const sockaddr* address) {
    abi::CmAddress out{};
    if (address->sa_family == AF_INET) {
        sockaddr_in in{};
        memcpy(&in, address, sizeof in);
        out.family = AF_INET;
        out.port = ntohs(in.sin_port);
        memcpy(out.address, kMappedPrefix, sizeof kMappedPrefix);
        memcpy(out.address + sizeof kMappedPrefix, &in.sin_addr, sizeof in.sin_addr);
        return out;
    }
    if (address->sa_family == AF_INET6) {
        sockaddr_in6 in{};
        memcpy(&in, address, sizeof in);
        out.family = AF_INET6;
        out.port = ntohs(in.sin6_port);
        out.scope_id = in.sin6_scope_id;
        memcpy(out.address, &in.sin6_addr, sizeof in.sin6_addr);
        return out;
    }
    if (address->sa_family == AF_IB) {
        sockaddr_ib in{};
        memcpy(&in, address, sizeof in);
        return from_ib(in);
    }
    return std::nullopt;
}

void to_sockaddr(const abi::CmAddress& in, sockaddr_storage& out) {
    memset(&out, 0, sizeof out);
    if (in.family == AF_INET) {
        sockaddr_in v4{};
        v4.sin_family = AF_INET;
        v4.sin_port = htons(in.port);
        memcpy(&v4.sin_addr, in.address + sizeof kMappedPrefix, sizeof v4.sin_addr);
        memcpy(&out, &v4, sizeof v4);
    } else if (in.family == AF_INET6) {
        sockaddr_in6 v6{};
        v6.sin6_family = AF_INET6;
        v6.sin6_port = htons(in.port);
        v6.sin6_scope_id = in.scope_id;
        memcpy(&v6.sin6_addr, in.address, sizeof v6.sin6_addr);
        memcpy(&out, &v6, sizeof v6);
    }
}

socklen_t sockaddr_length(const sockaddr* address) {
    switch (address->sa_family) {
        case AF_INET:
            return sizeof(sockaddr_in);
        case AF_INET6:
            return sizeof(sockaddr_in6);
        case AF_IB:
            return sizeof(sockaddr_ib);
        default:
            return 0;
    }
}

std::uint16_t port_of(const sockaddr& address) {
    std::optional<abi::CmAddress> known = from_sockaddr(&address);
    return known ? htons(known->port) : std::uint16_t{0};
}

bool is_wildcard(const abi::CmAddress& address) {
    std::uint8_t any[16] = {};
    if (address.family == AF_INET) memcpy(any, kMappedPrefix, sizeof kMappedPrefix);
    return memcmp(any, address.address, sizeof any) == 0;
}

bool same_host(const abi::CmAddress& a, const abi::CmAddress& b) {
    return a.family == b.family && memcmp(a.address, b.address, sizeof a.address) == 0;
}

ibv_sa_path_rec path_record(const abi::CmIdInfo& info) {
    ibv_sa_path_rec out{};
    memcpy(out.sgid.raw, info.local_gid, sizeof info.local_gid);
    memcpy(out.dgid.raw, info.peer_gid, sizeof info.peer_gid);
    out.flow_label = htobe32(info.flow_label);
    out.hop_limit = info.hop_limit;
    out.traffic_class = info.traffic_class;
    out.reversible = 1;
    out.numb_path = 1;
    out.pkey = htobe16(info.pkey);
    out.mtu_selector = kSelectExactly;
    out.mtu = info.mtu;
    out.rate_selector = kSelectExactly;
    out.rate = kRate100Gbps;
    out.packet_life_time_selector = kSelectExactly;
    out.packet_life_time = info.packet_life_time;
    return out;
}

rdma_conn_param from_abi(const abi::CmConnParam& in) {
    rdma_conn_param out{};
    out.responder_resources = in.responder_resources;
    out.initiator_depth = in.initiator_depth;
    out.flow_control = in.flow_control;
    out.retry_count = in.retry_count;
    out.rnr_retry_count = in.rnr_retry_count;
    out.srq = in.srq;
    out.qp_num = in.qp_num;
    return out;
}

bool set_private_data(abi::CmPrivateData& out, const void* data, std::size_t length) {
    if (length > sizeof out.bytes - out.length) return false;
    if (data != nullptr && length > 0) memcpy(out.bytes + out.length, data, length);
    out.length += static_cast<std::uint32_t>(data != nullptr ? length : 0);
    return true;
}

}  // namespace rdmalab::rdmacm

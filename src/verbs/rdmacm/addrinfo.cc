// rdma_getaddrinfo: names to addresses, in the terms of the port spaces. The system's resolver does
// the work; what it cannot know (routes, connection data) RoCE does not need.
#include <arpa/inet.h>
#include <endian.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "verbs/rdmacm/marshal.h"

namespace rdmalab::rdmacm {

namespace {

int default_qp_type(int port_space) {
    return port_space == RDMA_PS_UDP || port_space == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
}

int default_port_space(int qp_type) { return qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP; }

// What the program left open follows from what it said; RC over RDMA_PS_TCP if it said nothing.
void choose_service(const rdma_addrinfo* hints, rdma_addrinfo& out) {
    int space = hints != nullptr ? hints->ai_port_space : 0;
    int type = hints != nullptr ? hints->ai_qp_type : 0;
    if (type == 0) type = space != 0 ? default_qp_type(space) : IBV_QPT_RC;
    if (space == 0) space = default_port_space(type);
    out.ai_qp_type = type;
    out.ai_port_space = space;
}

// 0 or an errno value.
int copy_bytes(const void* from, std::size_t length, void** out) {
    *out = malloc(length);
    if (*out == nullptr) return ENOMEM;
    memcpy(*out, from, length);
    return 0;
}

int copy_address(const void* from, std::size_t length, sockaddr*& out, socklen_t& out_length) {
    void* copy = nullptr;
    if (int status = copy_bytes(from, length, &copy)) return status;
    out = static_cast<sockaddr*>(copy);
    out_length = static_cast<socklen_t>(length);
    return 0;
}

int copy_name(const char* from, char*& out) {
    if (from == nullptr) return 0;
    out = strdup(from);
    return out == nullptr ? ENOMEM : 0;
}

// From the hints: addresses that the lookup has not given, route and connection data.
int copy_hints(const rdma_addrinfo& hints, rdma_addrinfo& out) {
    int status = 0;
    if (out.ai_src_addr == nullptr && hints.ai_src_len > 0 && hints.ai_src_addr != nullptr) {
        status = copy_address(hints.ai_src_addr, hints.ai_src_len, out.ai_src_addr, out.ai_src_len);
    }
    if (status == 0 && out.ai_dst_addr == nullptr && hints.ai_dst_len > 0 &&
        hints.ai_dst_addr != nullptr) {
        status = copy_address(hints.ai_dst_addr, hints.ai_dst_len, out.ai_dst_addr, out.ai_dst_len);
    }
    if (status == 0 && hints.ai_route_len > 0) {
        status = copy_bytes(hints.ai_route, hints.ai_route_len, &out.ai_route);
        if (status == 0) out.ai_route_len = hints.ai_route_len;
    }
    if (status == 0 && hints.ai_connect_len > 0) {
        status = copy_bytes(hints.ai_connect, hints.ai_connect_len, &out.ai_connect);
        if (status == 0) out.ai_connect_len = hints.ai_connect_len;
    }
    return status;
}

// A GID is written as an IPv6 address; its AF_IB form names the port by a service id.
sockaddr_ib to_ib(const addrinfo& found, int port_space) {
    sockaddr_in6 in{};
    memcpy(&in, found.ai_addr, std::min<std::size_t>(found.ai_addrlen, sizeof in));
    sockaddr_ib out{};
    out.sib_family = AF_IB;
    out.sib_pkey = 0xffff;
    memcpy(out.sib_addr.sib_raw, &in.sin6_addr, sizeof in.sin6_addr);
    std::uint64_t service = static_cast<std::uint64_t>(port_space) << 16 | ntohs(in.sin6_port);
    out.sib_sid = htobe64(service);
    out.sib_sid_mask = ~std::uint64_t{0};
    return out;
}

bool wants_gid(const rdma_addrinfo* hints) {
    return hints != nullptr && (hints->ai_flags & RAI_FAMILY) != 0 && hints->ai_family == AF_IB;
}

// One result; `found` is null when the hints carry the addresses.
rdma_addrinfo* make_result(const addrinfo* found, const rdma_addrinfo* hints) {
    auto* out = static_cast<rdma_addrinfo*>(calloc(1, sizeof(rdma_addrinfo)));
    if (out == nullptr) return nullptr;
    out->ai_flags = hints != nullptr ? hints->ai_flags : 0;
    choose_service(hints, *out);
    bool is_passive = (out->ai_flags & RAI_PASSIVE) != 0;
    int status = 0;
    if (found != nullptr) {
        sockaddr_ib gid{};
        const void* given = found->ai_addr;
        std::size_t length = found->ai_addrlen;
        out->ai_family = found->ai_family;
        if (wants_gid(hints)) {
            gid = to_ib(*found, out->ai_port_space);
            given = &gid;
            length = sizeof gid;
            out->ai_family = AF_IB;
        }
        status = is_passive ? copy_address(given, length, out->ai_src_addr, out->ai_src_len)
                            : copy_address(given, length, out->ai_dst_addr, out->ai_dst_len);
        if (status == 0) {
            status = copy_name(found->ai_canonname,
                               is_passive ? out->ai_src_canonname : out->ai_dst_canonname);
        }
    }
    if (status == 0 && hints != nullptr) status = copy_hints(*hints, *out);
    const sockaddr* known = out->ai_dst_addr != nullptr ? out->ai_dst_addr : out->ai_src_addr;
    if (out->ai_family == 0 && known != nullptr) out->ai_family = known->sa_family;
    if (status == 0) return out;
    rdma_freeaddrinfo(out);
    return nullptr;
}

addrinfo lookup_hints(const rdma_addrinfo* hints) {
    addrinfo out{};
    out.ai_socktype = SOCK_STREAM;  // one result per address; the port space is our own affair
    if (hints == nullptr) return out;
    if (hints->ai_flags & RAI_PASSIVE) out.ai_flags |= AI_PASSIVE;
    if (hints->ai_flags & RAI_NUMERICHOST) out.ai_flags |= AI_NUMERICHOST;
    if (hints->ai_flags & RAI_FAMILY) out.ai_family = hints->ai_family;
    if (wants_gid(hints)) {
        out.ai_family = AF_INET6;
        out.ai_flags |= AI_NUMERICHOST;
    }
    return out;
}

// The results in the order of the resolver.
int resolve(const char* node, const char* service, const rdma_addrinfo* hints,
            rdma_addrinfo** out) {
    addrinfo wanted = lookup_hints(hints);
    addrinfo* found = nullptr;
    int status = getaddrinfo(node, service, &wanted, &found);
    if (status != 0) return status;
    rdma_addrinfo* first = nullptr;
    rdma_addrinfo** end = &first;
    for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
        if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
        *end = make_result(a, hints);
        if (*end == nullptr) {
            rdma_freeaddrinfo(first);
            freeaddrinfo(found);
            return EAI_MEMORY;
        }
        end = &(*end)->ai_next;
    }
    freeaddrinfo(found);
    *out = first;
    return first != nullptr ? 0 : EAI_FAMILY;
}

}  // namespace

}  // namespace rdmalab::rdmacm

using namespace rdmalab::rdmacm;

extern "C" int rdma_getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                                rdma_addrinfo** out) {
    if (node == nullptr && service == nullptr && hints == nullptr) return fail(EINVAL);
    if (node != nullptr || service != nullptr) return resolve(node, service, hints, out);
    *out = make_result(nullptr, hints);
    return *out != nullptr ? 0 : fail(ENOMEM);
}

extern "C" void rdma_freeaddrinfo(rdma_addrinfo* info) {
    while (info != nullptr) {
        rdma_addrinfo* next = info->ai_next;
        free(info->ai_src_addr);
        free(info->ai_dst_addr);
        free(info->ai_src_canonname);
        free(info->ai_dst_canonname);
        free(info->ai_route);
        free(info->ai_connect);
        free(info);
        info = next;
    }
}

// Binding and resolving: which device, which route.
#include <ifaddrs.h>
#include <string.h>

#include "verbs/complain.h"
#include "verbs/rdmacm/id.h"
#include "verbs/rdmacm/marshal.h"

namespace rdmalab::rdmacm {

namespace {

// Programs that look for RDMA devices by trying to bind to each address of the machine expect most
// of these to fail; that is no news for their user.
bool is_host_address(const abi::CmAddress& address) {
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) return false;
    bool found = false;
    for (ifaddrs* i = list; i != nullptr && !found; i = i->ifa_next) {
        if (i->ifa_addr == nullptr) continue;
        std::optional<abi::CmAddress> candidate = from_sockaddr(i->ifa_addr);
        found = candidate && same_host(*candidate, address);
    }
    freeifaddrs(list);
    return found;
}

template <class Request>
int call_for_info(Id& id, abi::CmOp op, const Request& request, abi::CmIdInfo& info, char* text) {
    return id.session->call(op, std::as_bytes(std::span(&request, 1)),
                            std::as_writable_bytes(std::span(&info, 1)), nullptr, text);
}

}  // namespace

}  // namespace rdmalab::rdmacm

using namespace rdmalab;
using namespace rdmalab::rdmacm;

extern "C" int rdma_bind_addr(rdma_cm_id* public_id, sockaddr* address) {
    Id& id = id_of(public_id);
    std::optional<abi::CmAddress> local = from_sockaddr(address);
    if (!local) return fail(EINVAL);  // as for every address without a known length
    abi::CmBindRequest request{.id = id.handle, .reserved = 0, .address = *local};
    abi::CmIdInfo info{};
    char text[Session::kTextMax];
    int status = call_for_info(id, abi::CmOp::kBind, request, info, text);
    if (status == EADDRNOTAVAIL && text[0] != '\0' && !is_host_address(*local)) {
        verbs::complain_once("%s", text);
    }
    return answer(status != 0 ? status : apply_info(id, info));
}

extern "C" int rdma_resolve_addr(rdma_cm_id* public_id, sockaddr* source, sockaddr* destination,
                                 int timeout_ms) {
    Id& id = id_of(public_id);
    abi::CmResolveAddrRequest request{};
    request.id = id.handle;
    request.timeout_ms = static_cast<std::uint32_t>(timeout_ms);
    std::optional<abi::CmAddress> to = from_sockaddr(destination);
    if (!to) return fail(EINVAL);
    request.destination = *to;
    if (source != nullptr) {
        std::optional<abi::CmAddress> from = from_sockaddr(source);
        if (!from) return fail(EINVAL);
        request.source = *from;
    }
    abi::CmIdInfo info{};
    char text[Session::kTextMax];
    int status = call_for_info(id, abi::CmOp::kResolveAddr, request, info, text);
    if (status != 0) {
        if (text[0] != '\0') verbs::complain_once("%s", text);
        return fail(status);
    }
    to_sockaddr(*to, id.route.addr.dst_storage);
    return complete(id);
}

extern "C" int rdma_resolve_route(rdma_cm_id* public_id, int timeout_ms) {
    Id& id = id_of(public_id);
    abi::CmResolveRouteRequest request{.id = id.handle,
                                       .timeout_ms = static_cast<std::uint32_t>(timeout_ms)};
    if (int status = id.session->call(abi::CmOp::kResolveRoute, request)) return fail(status);
    return complete(id);
}

extern "C" int rdma_listen(rdma_cm_id* public_id, int backlog) {
    Id& id = id_of(public_id);
    abi::CmListenRequest request{.id = id.handle, .backlog = backlog};
    abi::CmIdInfo info{};
    int status = id.session->call(abi::CmOp::kListen, request, info);
    return answer(status != 0 ? status : apply_info(id, info));
}

extern "C" __be16 rdma_get_src_port(rdma_cm_id* id) { return port_of(id->route.addr.src_addr); }
extern "C" __be16 rdma_get_dst_port(rdma_cm_id* id) { return port_of(id->route.addr.dst_addr); }

#include <new>

#include "verbs/rdmacm/id.h"
#include "verbs/rdmacm/marshal.h"

namespace rdmalab::rdmacm {

namespace {

void add_join(Id& id, Join& join) {
    std::lock_guard guard(id.mutex);
    join.next = id.first_join;
    id.first_join = &join;
}

void remove_join(Id& id, const Join& join) {
    std::lock_guard guard(id.mutex);
    Join** link = &id.first_join;
    while (*link != nullptr && *link != &join) link = &(*link)->next;
    if (*link != nullptr) *link = join.next;
}

Join* find_join(Id& id, const abi::CmAddress& address) {
    std::lock_guard guard(id.mutex);
    Join* join = id.first_join;
    while (join != nullptr && !same_host(join->address, address)) join = join->next;
    return join;
}

int join_group(rdma_cm_id* public_id, const sockaddr* group, std::uint32_t flags, void* context) {
    Id& id = id_of(public_id);
    std::optional<abi::CmAddress> address = from_sockaddr(group);
    if (!address) return fail(EINVAL);
    Join* join = new (std::nothrow) Join();
    if (join == nullptr) return fail(ENOMEM);
    join->id = &id;
    join->context = context;
    join->address = *address;
    join->is_send_only = flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
    add_join(id, *join);  // before the call: the event may be read at once
    abi::CmJoinMcastRequest request{.cookie = reinterpret_cast<std::uintptr_t>(join),
                                    .id = id.handle,
                                    .join_flags = flags,
                                    .address = *address};
    abi::HandleReply reply{};
    if (int status = id.session->call(abi::CmOp::kJoinMcast, request, reply)) {
        remove_join(id, *join);
        delete join;
        return fail(status);
    }
    join->handle = reply.handle;
    return complete(id);
}

}  // namespace

}  // namespace rdmalab::rdmacm

using namespace rdmalab;
using namespace rdmalab::rdmacm;

extern "C" int rdma_join_multicast(rdma_cm_id* id, sockaddr* group, void* context) {
    return join_group(id, group, RDMA_MC_JOIN_FLAG_FULLMEMBER, context);
}

extern "C" int rdma_join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* attributes,
                                      void* context) {
    std::uint32_t mask = attributes->comp_mask;
    if (mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED) return fail(ENOTSUP);
    if ((mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS) == 0) return fail(EINVAL);
    std::uint32_t flags = RDMA_MC_JOIN_FLAG_FULLMEMBER;
    if ((mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS) != 0) flags = attributes->join_flags;
    if (flags >= RDMA_MC_JOIN_FLAG_RESERVED) return fail(EINVAL);
    return join_group(id, attributes->addr, flags, context);
}

extern "C" int rdma_leave_multicast(rdma_cm_id* public_id, sockaddr* group) {
    Id& id = id_of(public_id);
    std::optional<abi::CmAddress> address = from_sockaddr(group);
    Join* join = address ? find_join(id, *address) : nullptr;
    if (join == nullptr) return fail(EADDRNOTAVAIL);
    if (id.qp != nullptr && join->is_attached) ibv_detach_mcast(id.qp, &join->gid, 0);
    std::uint32_t read_so_far = 0;
    {
        std::lock_guard guard(id.mutex);
        read_so_far = join->events_read;
    }
    abi::CmLeaveMcastRequest request{
        .id = id.handle, .mcast = join->handle, .events_read = read_so_far, .reserved = 0};
    abi::CmEventsReply reply{};
    int status = id.session->call(abi::CmOp::kLeaveMcast, request, reply);
    if (status != 0 && !id.session->is_dead()) return fail(status);
    drop_event(id);
    wait_for_join_events(id, *join, status == 0 ? reply.events_reported : read_so_far);
    remove_join(id, *join);
    delete join;
    return 0;
}

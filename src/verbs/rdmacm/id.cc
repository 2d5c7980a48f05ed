#include "verbs/rdmacm/id.h"

#include <string.h>

#include <new>

#include "verbs/rdmacm/marshal.h"

namespace rdmalab::rdmacm {

Id::~Id() {
    while (first_join != nullptr) {
        Join* join = first_join;
        first_join = join->next;
        delete join;
    }
    if (device != nullptr) session->unuse_device(device_index);
    if (session != nullptr) session->release();
}

Id* make_id(Session& session, rdma_port_space space, ibv_qp_type type) {
    Id* id = new (std::nothrow) Id();
    if (id == nullptr) return fail_null(ENOMEM);
    session.retain();
    id->session = &session;
    id->ps = space;
    id->qp_type = type;
    return id;
}

Id* create_id(rdma_event_channel* public_channel, void* context, rdma_port_space space,
              ibv_qp_type type) {
    Channel* own = nullptr;
    if (public_channel == nullptr) {
        own = create_channel(nullptr);
        if (own == nullptr) return nullptr;
    }
    Channel& channel = own != nullptr ? *own : channel_of(public_channel);
    Id* id = make_id(*channel.session, space, type);
    int status = id == nullptr ? errno : 0;
    if (status == 0) {
        id->context = context;
        id->is_sync = own != nullptr;
        abi::CmCreateIdRequest request{.cookie = id->cookie(),
                                       .channel = channel.handle,
                                       .port_space = static_cast<std::uint16_t>(space),
                                       .qp_type = static_cast<std::uint8_t>(type),
                                       .reserved = 0};
        abi::HandleReply reply{};
        status = id->session->call(abi::CmOp::kCreateId, request, reply);
        id->handle = reply.handle;
    }
    if (status != 0) {
        delete id;
        if (own != nullptr) destroy_channel(*own);
        return fail_null(status);
    }
    add_to_channel(*id, channel);
    return id;
}

int bind_to_device(Id& id, std::uint32_t index) {
    if (index == abi::kCmNone || id.device != nullptr) return 0;
    Device* device = id.session->use_device(index);
    if (device == nullptr) return errno;
    id.device = device;
    id.device_index = index;
    id.verbs = device->verbs;
    id.pd = device->pd;
    id.port_num = 1;
    return 0;
}

int apply_info(Id& id, const abi::CmIdInfo& info) {
    if (int status = bind_to_device(id, info.device)) return status;
    rdma_addr& addr = id.route.addr;
    to_sockaddr(info.local, addr.src_storage);
    to_sockaddr(info.peer, addr.dst_storage);
    memcpy(addr.addr.ibaddr.sgid.raw, info.local_gid, sizeof info.local_gid);
    memcpy(addr.addr.ibaddr.dgid.raw, info.peer_gid, sizeof info.peer_gid);
    addr.addr.ibaddr.pkey = htobe16(info.pkey);
    if (info.port_num != 0) id.port_num = info.port_num;
    id.path_mtu = info.mtu;
    if (info.path_count > 0) {
        id.path = path_record(info);
        id.route.path_rec = &id.path;
        id.route.num_paths = 1;
    }
    return 0;
}

int refresh(Id& id) {
    abi::CmIdInfo info{};
    int status = id.session->call(abi::CmOp::kQuery, abi::HandleRequest{id.handle}, info);
    return status != 0 ? status : apply_info(id, info);
}

void complete_event(Id& id, Join* join) {
    std::lock_guard guard(id.mutex);
    ++(join != nullptr ? join->events_completed : id.events_completed);
    id.completed.notify_all();
}

void wait_for_events(Id& id, std::uint32_t count) {
    std::unique_lock lock(id.mutex);
    id.completed.wait(lock, [&] { return id.events_completed >= count; });
}

void wait_for_join_events(Id& id, const Join& join, std::uint32_t count) {
    std::unique_lock lock(id.mutex);
    id.completed.wait(lock, [&] { return join.events_completed >= count; });
}

void drop_event(Id& id) {
    if (id.event == nullptr) return;
    rdma_ack_cm_event(id.event);
    id.event = nullptr;
}

namespace {

int status_of(const rdma_cm_event& event) {
    if (event.status == 0) return 0;
    if (event.event == RDMA_CM_EVENT_REJECTED) return ECONNREFUSED;
    return event.status < 0 ? -event.status : event.status;
}

void destroy(Id& id) {
    std::uint32_t read_so_far = 0;
    {
        std::lock_guard guard(id.mutex);
        read_so_far = id.events_read;
    }
    abi::CmDestroyIdRequest request{.id = id.handle, .events_read = read_so_far};
    abi::CmEventsReply reply{};
    int status = id.session->call(abi::CmOp::kDestroyId, request, reply);
    drop_event(id);
    wait_for_events(id, status == 0 ? reply.events_reported : read_so_far);
    for (Join* join = id.first_join; join != nullptr; join = join->next) {
        wait_for_join_events(id, *join, join->events_read);
    }
}

}  // namespace

int complete(Id& id) {
    if (!id.is_sync) return 0;
    drop_event(id);
    if (rdma_get_cm_event(id.channel, &id.event) != 0) return -1;
    return answer(status_of(*id.event));
}

}  // namespace rdmalab::rdmacm

using namespace rdmalab;
using namespace rdmalab::rdmacm;

extern "C" int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** out, void* context,
                              rdma_port_space space) {
    bool is_unconnected = space == RDMA_PS_UDP || space == RDMA_PS_IPOIB;
    Id* id = create_id(channel, context, space, is_unconnected ? IBV_QPT_UD : IBV_QPT_RC);
    if (id == nullptr) return -1;
    *out = id;
    return 0;
}

extern "C" int rdma_destroy_id(rdma_cm_id* public_id) {
    Id& id = id_of(public_id);
    destroy(id);
    remove_from_channel(id);
    if (id.is_sync) destroy_channel(channel_of(id.channel));
    delete &id;
    return 0;
}

// Unread events move with the id; for those that the program has read the call waits.
extern "C" int rdma_migrate_id(rdma_cm_id* public_id, rdma_event_channel* public_channel) {
    Id& id = id_of(public_id);
    bool is_sync = public_channel == nullptr;
    Channel* channel = is_sync ? create_channel(id.session) : &channel_of(public_channel);
    if (channel == nullptr) return -1;
    abi::CmMigrateRequest request{.id = id.handle, .channel = channel->handle};
    abi::CmEventsReply reply{};
    int status = id.session->call(abi::CmOp::kMigrateId, request, reply);
    if (status != 0) {
        if (is_sync) destroy_channel(*channel);
        return fail(status);
    }
    Channel& old_channel = channel_of(id.channel);
    bool was_sync = id.is_sync;
    remove_from_channel(id);
    add_to_channel(id, *channel);
    id.is_sync = is_sync;
    if (was_sync) {
        drop_event(id);
        destroy_channel(old_channel);
    }
    wait_for_events(id, reply.events_reported);
    return 0;
}

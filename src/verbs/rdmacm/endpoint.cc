// Endpoints: an id, its addresses and its QP in one call, always synchronous.
#include <string.h>

#include "verbs/rdmacm/id.h"

namespace rdmalab::rdmacm {

namespace {

constexpr int kResolveTimeoutMs = 2000;

int prepare_listener(Id& id, const rdma_addrinfo& info, ibv_pd* pd,
                     const ibv_qp_init_attr* attributes) {
    if (rdma_bind_addr(&id, info.ai_src_addr) != 0) return -1;
    if (attributes == nullptr) return 0;
    id.has_qp_attributes = true;
    id.qp_attributes = *attributes;
    id.qp_attributes.qp_type = static_cast<ibv_qp_type>(info.ai_qp_type);
    id.qp_pd = pd;
    return 0;
}

int prepare_caller(Id& id, const rdma_addrinfo& info, ibv_pd* pd, ibv_qp_init_attr* attributes) {
    int status = rdma_resolve_addr(&id, info.ai_src_addr, info.ai_dst_addr, kResolveTimeoutMs);
    if (status == 0) status = rdma_resolve_route(&id, kResolveTimeoutMs);
    if (status == 0 && attributes != nullptr) {
        attributes->qp_type = static_cast<ibv_qp_type>(info.ai_qp_type);
        status = rdma_create_qp(&id, pd, attributes);
    }
    if (status != 0) return status;
    if (info.ai_connect_len > sizeof id.connect_data) return fail(EINVAL);
    if (info.ai_connect_len > 0) {
        memcpy(id.connect_data, info.ai_connect, info.ai_connect_len);
        id.connect_data_length = static_cast<std::uint8_t>(info.ai_connect_len);
    }
    return 0;
}

// The QP that rdma_create_ep promised to accepted connections.
int give_qp(const Id& listener, rdma_cm_id& id) {
    if (!listener.has_qp_attributes) return 0;
    ibv_qp_init_attr attributes = listener.qp_attributes;
    return rdma_create_qp(&id, listener.qp_pd, &attributes);
}

void destroy_keeping_errno(rdma_cm_id* id) {
    int error = errno;
    rdma_destroy_ep(id);
    errno = error;
}

}  // namespace

}  // namespace rdmalab::rdmacm

using namespace rdmalab::rdmacm;

extern "C" int rdma_create_ep(rdma_cm_id** out, rdma_addrinfo* info, ibv_pd* pd,
                              ibv_qp_init_attr* attributes) {
    Id* id = create_id(nullptr, nullptr, static_cast<rdma_port_space>(info->ai_port_space),
                       static_cast<ibv_qp_type>(info->ai_qp_type));
    if (id == nullptr) return -1;
    bool is_passive = (info->ai_flags & RAI_PASSIVE) != 0;
    int status = is_passive ? prepare_listener(*id, *info, pd, attributes)
                            : prepare_caller(*id, *info, pd, attributes);
    if (status != 0) {
        destroy_keeping_errno(id);
        return -1;
    }
    *out = id;
    return 0;
}

extern "C" void rdma_destroy_ep(rdma_cm_id* id) {
    if (id->qp != nullptr) rdma_destroy_qp(id);
    if (id->srq != nullptr) rdma_destroy_srq(id);
    rdma_destroy_id(id);
}

extern "C" int rdma_get_request(rdma_cm_id* public_listener, rdma_cm_id** out) {
    Id& listener = id_of(public_listener);
    if (!listener.is_sync) return fail(EINVAL);
    drop_event(listener);
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(listener.channel, &event) != 0) return -1;
    int status = event->status < 0 ? -event->status : event->status;
    if (status == 0 && event->event != RDMA_CM_EVENT_CONNECT_REQUEST) status = EINVAL;
    if (status != 0) {
        rdma_ack_cm_event(event);
        return fail(status);
    }
    rdma_cm_id* id = event->id;
    id->event = event;
    if (give_qp(listener, *id) != 0) {
        destroy_keeping_errno(id);
        return -1;
    }
    *out = id;
    return 0;
}

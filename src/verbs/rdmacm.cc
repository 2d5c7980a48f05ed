// librdmacm: the names and versions of the original. The card has no connection manager, so calls
// that need one fail with ENOSYS; what needs none is real.
#pragma GCC visibility push(default)
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#pragma GCC visibility pop

#include <errno.h>
#include <stdlib.h>

#include <cstddef>
#include <iterator>

namespace {

int not_there() {
    errno = ENOSYS;
    return -1;
}

std::nullptr_t no_object() {
    errno = ENOSYS;
    return nullptr;
}

// By enum rdma_cm_event_type.
constexpr const char* kEventNames[] = {
    "RDMA_CM_EVENT_ADDR_RESOLVED",   "RDMA_CM_EVENT_ADDR_ERROR",
    "RDMA_CM_EVENT_ROUTE_RESOLVED",  "RDMA_CM_EVENT_ROUTE_ERROR",
    "RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
    "RDMA_CM_EVENT_CONNECT_ERROR",   "RDMA_CM_EVENT_UNREACHABLE",
    "RDMA_CM_EVENT_REJECTED",        "RDMA_CM_EVENT_ESTABLISHED",
    "RDMA_CM_EVENT_DISCONNECTED",    "RDMA_CM_EVENT_DEVICE_REMOVAL",
    "RDMA_CM_EVENT_MULTICAST_JOIN",  "RDMA_CM_EVENT_MULTICAST_ERROR",
    "RDMA_CM_EVENT_ADDR_CHANGE",     "RDMA_CM_EVENT_TIMEWAIT_EXIT",
};

}  // namespace

extern "C" {

const char* rdma_event_str(rdma_cm_event_type event) {
    auto index = static_cast<std::size_t>(event);
    return index < std::size(kEventNames) ? kEventNames[index] : "UNKNOWN EVENT";
}

rdma_event_channel* rdma_create_event_channel() { return no_object(); }
void rdma_destroy_event_channel(rdma_event_channel*) {}
int rdma_create_id(rdma_event_channel*, rdma_cm_id**, void*, rdma_port_space) {
    return not_there();
}
int rdma_create_ep(rdma_cm_id**, rdma_addrinfo*, ibv_pd*, ibv_qp_init_attr*) { return not_there(); }
void rdma_destroy_ep(rdma_cm_id*) {}
int rdma_destroy_id(rdma_cm_id*) { return not_there(); }
int rdma_bind_addr(rdma_cm_id*, sockaddr*) { return not_there(); }
int rdma_resolve_addr(rdma_cm_id*, sockaddr*, sockaddr*, int) { return not_there(); }
int rdma_resolve_route(rdma_cm_id*, int) { return not_there(); }
int rdma_create_qp(rdma_cm_id*, ibv_pd*, ibv_qp_init_attr*) { return not_there(); }
int rdma_create_qp_ex(rdma_cm_id*, ibv_qp_init_attr_ex*) { return not_there(); }
void rdma_destroy_qp(rdma_cm_id*) {}
int rdma_connect(rdma_cm_id*, rdma_conn_param*) { return not_there(); }
int rdma_establish(rdma_cm_id*) { return not_there(); }
int rdma_listen(rdma_cm_id*, int) { return not_there(); }
int rdma_get_request(rdma_cm_id*, rdma_cm_id**) { return not_there(); }
int rdma_accept(rdma_cm_id*, rdma_conn_param*) { return not_there(); }
int rdma_reject(rdma_cm_id*, const void*, uint8_t) { return not_there(); }
int rdma_reject_ece(rdma_cm_id*, const void*, uint8_t) { return not_there(); }
int rdma_notify(rdma_cm_id*, ibv_event_type) { return not_there(); }
int rdma_disconnect(rdma_cm_id*) { return not_there(); }
int rdma_join_multicast(rdma_cm_id*, sockaddr*, void*) { return not_there(); }
int rdma_leave_multicast(rdma_cm_id*, sockaddr*) { return not_there(); }
int rdma_join_multicast_ex(rdma_cm_id*, rdma_cm_join_mc_attr_ex*, void*) { return not_there(); }
int rdma_get_cm_event(rdma_event_channel*, rdma_cm_event**) { return not_there(); }
int rdma_ack_cm_event(rdma_cm_event*) { return not_there(); }
__be16 rdma_get_src_port(rdma_cm_id*) { return 0; }
__be16 rdma_get_dst_port(rdma_cm_id*) { return 0; }
int rdma_set_option(rdma_cm_id*, int, int, void*, size_t) { return not_there(); }
int rdma_migrate_id(rdma_cm_id*, rdma_event_channel*) { return not_there(); }
int rdma_init_qp_attr(rdma_cm_id*, ibv_qp_attr*, int*) { return not_there(); }
int rdma_set_local_ece(rdma_cm_id*, ibv_ece*) { return not_there(); }
int rdma_get_remote_ece(rdma_cm_id*, ibv_ece*) { return not_there(); }
__attribute__((visibility("default"))) int rdma_create_srq(rdma_cm_id*, ibv_pd*,
                                                           ibv_srq_init_attr*) {
    return not_there();
}
__attribute__((visibility("default"))) int rdma_create_srq_ex(rdma_cm_id*, ibv_srq_init_attr_ex*) {
    return not_there();
}
__attribute__((visibility("default"))) void rdma_destroy_srq(rdma_cm_id*) {}

ibv_context** rdma_get_devices(int* count) {
    if (count != nullptr) *count = 0;
    return no_object();
}
void rdma_free_devices(ibv_context** list) { free(list); }

int rdma_getaddrinfo(const char*, const char*, const rdma_addrinfo*, rdma_addrinfo** result) {
    *result = nullptr;
    return not_there();
}

void rdma_freeaddrinfo(rdma_addrinfo* info) {
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

}  // extern "C"

#include "cm_kit.h"

#include <arpa/inet.h>
#include <poll.h>

#include <cstdlib>

namespace rdmalab::programs {

sockaddr_in ip_endpoint(const char* ip, const char* port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::strtoul(port, nullptr, 10)));
    if (inet_pton(AF_INET, ip, &address.sin_addr) != 1) fail(kUsage, "not an IPv4 address: %s", ip);
    return address;
}

EventChannel::EventChannel()
    : channel_(check(rdma_create_event_channel(), "rdma_create_event_channel")) {}

EventChannel::~EventChannel() { rdma_destroy_event_channel(channel_); }

rdma_cm_id* EventChannel::create_id(rdma_port_space space, void* context) const {
    rdma_cm_id* id = nullptr;
    check(rdma_create_id(channel_, &id, context, space), "rdma_create_id");
    return id;
}

std::optional<CmEvent> EventChannel::wait(std::chrono::milliseconds limit) const {
    pollfd waiting{fd(), POLLIN, 0};
    if (poll(&waiting, 1, static_cast<int>(limit.count())) <= 0) return std::nullopt;
    rdma_cm_event* event = nullptr;
    check(rdma_get_cm_event(channel_, &event), "rdma_get_cm_event");
    const CmEvent seen{event->event, event->status, event->id};
    check(rdma_ack_cm_event(event), "rdma_ack_cm_event");
    return seen;
}

rdma_cm_id* EventChannel::expect(rdma_cm_event_type type, std::chrono::seconds limit) const {
    const auto event = wait(limit);
    if (!event) fail(kStalled, "no event; expected %s", rdma_event_str(type));
    if (event->type != type)
        fail(kWrongStatus, "expected %s, found %s with status %d", rdma_event_str(type),
             rdma_event_str(event->type), event->status);
    return event->id;
}

rdma_cm_id* listen_on(const EventChannel& channel, rdma_port_space space, const sockaddr_in& where,
                      int backlog) {
    rdma_cm_id* const id = channel.create_id(space);
    sockaddr_in address = where;
    check(rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address)), "rdma_bind_addr");
    check(rdma_listen(id, backlog), "rdma_listen");
    return id;
}

rdma_conn_param connection_parameters() {
    rdma_conn_param parameters{};
    parameters.responder_resources = 1;
    parameters.initiator_depth = 1;
    parameters.retry_count = 7;
    parameters.rnr_retry_count = 7;
    return parameters;
}

}  // namespace rdmalab::programs

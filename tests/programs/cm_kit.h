// What our test programs on librdmacm share. Like verbs_kit: the first thing that goes wrong ends
// the program with a line that says what.
#pragma once

#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <chrono>
#include <optional>

#include "verbs_kit.h"

namespace rdmalab::programs {

sockaddr_in ip_endpoint(const char* ip, const char* port);

// What is left of an event after it was acknowledged.
struct CmEvent {
    rdma_cm_event_type type;
    int status;
    rdma_cm_id* id;
};

class EventChannel {
public:
    EventChannel();
    ~EventChannel();
    EventChannel(const EventChannel&) = delete;
    EventChannel& operator=(const EventChannel&) = delete;
    rdma_event_channel* raw() const { return channel_; }
    int fd() const { return channel_->fd; }
    rdma_cm_id* create_id(rdma_port_space space, void* context = nullptr) const;
    // nullopt: nothing has come within the limit.
    std::optional<CmEvent> wait(std::chrono::milliseconds limit) const;
    // The next event must be this one.
    rdma_cm_id* expect(rdma_cm_event_type type,
                       std::chrono::seconds limit = std::chrono::seconds(60)) const;

private:
    rdma_event_channel* channel_;
};

rdma_cm_id* listen_on(const EventChannel& channel, rdma_port_space space, const sockaddr_in& where,
                      int backlog);

// Answers and depths that fit every QP of these programs.
rdma_conn_param connection_parameters();

}  // namespace rdmalab::programs

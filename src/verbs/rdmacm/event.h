// What rdma_get_cm_event hands out.
#pragma once

#include "verbs/rdmacm/id.h"

namespace rdmalab::rdmacm {

struct Event : rdma_cm_event {
    Event() : rdma_cm_event{} {}

    Id* counted_on = nullptr;  // where it is counted: for CONNECT_REQUEST the listening id
    Join* join = nullptr;
    std::uint8_t data[abi::kCmPrivateDataMax] = {};
};

// Makes the connection of id->qp: RTR and RTS (qp.cc). 0 or an errno value.
int ready_qp(Id& id, std::uint8_t responder_resources, std::uint8_t initiator_depth);
int fail_qp(Id& id);

}  // namespace rdmalab::rdmacm

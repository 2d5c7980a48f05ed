// The notification point (IBTA A17.9): a data packet that was marked on its way (CE) is answered
// with a congestion notification packet, unless the CongestionPort (which paces them) says no.
#pragma once

#include "transport/core.h"

namespace rdmalab::transport {

// `frame` is a request or response for `qp` that carries payload and the CE mark.
void note_congestion(Core& core, Qp& qp, const wire::Frame& frame, const wire::OpcodeInfo& info);

// The CNP of the QP, if one is due.
bool poll_notification(Core& core, Qp& qp, wire::Frame& out);

}  // namespace rdmalab::transport

// What happens to a QP whose work fails (IBTA vol. 1, 10.3.1.7, 10.10.2): the states ERR and SQE,
// and the flush of what was posted.
#pragma once

#include "transport/core.h"

namespace rdmalab::transport {

// To ERR, once: everything that is posted completes with kWrFlushErr, sends and receives each in
// their order. Answers of the responder that are due (a NAK) are still sent.
void move_to_error(Core& core, Qp& qp);

// To SQE: a UC or UD QP whose send failed here. Its receive side goes on.
void move_to_sqe(Core& core, Qp& qp);

// A receive WQE that was taken for a message that will not come.
void flush_taken_recv(Core& core, Qp& qp);
void flush_sends(Core& core, Qp& qp);
void flush_recvs(Core& core, Qp& qp);
// Timer::kFlush: flushes receives that were posted to a QP in ERR, for which no doorbell is rung.
void flush_late_recvs(Core& core, Qp& qp);

// The next receive WQE, from the QP's RQ or its SRQ, into qp.responder.recv. False: there is none.
bool take_recv(Core& core, Qp& qp);

}  // namespace rdmalab::transport

// The QP state machine as a table (IBTA vol. 1, 10.3.1 and table 91 of 11.2.5.2; ibv_modify_qp(3)):
// for each QP type the transitions that exist, with the attributes that each requires and those
// that it also allows.
#pragma once

#include <cstdint>
#include <span>

#include "transport/types.h"

namespace rdmalab::transport {

struct Transition {
    QpState from, to;
    std::uint32_t required, optional;  // QpAttributeMask, without kQpState
};

// Rows of a type; the transitions to RESET and ERR, possible from every state, are not among them.
std::span<const Transition> transitions(QpType type);

// May a QP of this type go from one state to the other with these attributes given?
bool is_transition_allowed(QpType type, QpState from, QpState to, std::uint32_t mask);

const char* to_string(QpState state);
const char* to_string(QpType type);

}  // namespace rdmalab::transport

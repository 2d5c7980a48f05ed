// The few things this library says on stderr. A verbs call reports by errno; only what a user must
// act on (no card, no right to reach memory) is worth a line, and only once per process.
#pragma once

#include "card/ring_abi.h"

namespace rdmalab::verbs {

// Prints "rdmalab: ..." unless the process has printed a complaint before.
void complain_once(const char* format, ...) __attribute__((format(printf, 1, 2)));

// With $RDMALAB_VERBOSE set, prints why the card refused a request.
void explain(abi::Op op, int status, const char* text);

}  // namespace rdmalab::verbs

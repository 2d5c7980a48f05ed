// Operations on entries as they travel from a program to the pipeline, many at a time.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "flow/pipe_control.h"

namespace rdmalab::flow {

struct Removal {};

// `what` decides: one of the entries is added to `pipe`; EntryActions update, Removal removes
// `entry`. The number of a new entry is chosen by the program.
struct EntryOperation {
    EntryId entry;
    PipeId pipe;
    std::variant<Removal, EntryActions, BasicEntry, ControlEntry, HashEntry> what;
};

inline EntryOp op_of(const EntryOperation& operation) {
    switch (operation.what.index()) {
        case 0:
            return EntryOp::kRemove;
        case 1:
            return EntryOp::kUpdate;
        default:
            return EntryOp::kAdd;
    }
}

// The outcome of one operation; code 0: done.
struct OperationResult {
    EntryId entry;
    EntryOp op{};
    Error error;
};

}  // namespace rdmalab::flow

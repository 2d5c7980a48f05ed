// Makes pipes and entries one after the other and remembers the first thing that went wrong, so
// that a pipeline reads as the list of its pipes.
#pragma once

#include <cstddef>
#include <vector>

#include "flow/pipe_control.h"

namespace rdmalab::steer {

class PipeBuilder {
public:
    explicit PipeBuilder(flow::PipeControl& control) : control_(control) {}

    // After a failure these do nothing and return id 0.
    flow::PipeId pipe(const flow::PipeConfig& config);
    template <class Entry>
    flow::EntryId entry(flow::PipeId pipe, const Entry& entry,
                        flow::Batch batch = flow::Batch::kFlush) {
        if (!error_.ok()) return {};
        if (outstanding_ + 1 >= kBatchMax) batch = flow::Batch::kFlush;
        Result<flow::EntryId> added = control_.add_entry(pipe, entry, batch);
        if (!added.ok()) {
            fail(pipe, added.error());
            return {};
        }
        ++outstanding_;
        if (batch == flow::Batch::kFlush) collect();
        return *added;
    }
    // A pipe with one entry for everything: it forwards, perhaps with actions and a counter.
    flow::EntryId single(flow::PipeConfig config, flow::PipeId* made);

    // All right so far, every entry completed?
    Status finish() const { return error_; }

private:
    // A larger batch is cut; the tables of the tutorial have 64 entries.
    static constexpr std::size_t kBatchMax = 128;

    void collect();
    void fail(flow::PipeId pipe, const Error& error);

    flow::PipeControl& control_;
    std::size_t outstanding_ = 0;
    Status error_;
};

// Waits until `count` operations are completed; the first error among them.
Status complete(flow::PipeControl& control, std::size_t count, Duration patience);

}  // namespace rdmalab::steer

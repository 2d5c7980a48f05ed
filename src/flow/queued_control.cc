#include "flow/queued_control.h"

#include <algorithm>
#include <utility>

namespace rdmalab::flow {

std::optional<PortId> PipeControl::find_port(std::string_view name) const {
    for (const PortInfo& port : ports()) {
        if (port.name == name || (!port.device.empty() && port.device == name)) return port.id;
        if (name == "wire" && port.kind == PortKind::kWire) return port.id;
    }
    return std::nullopt;
}

// --- Pipes

Result<PipeId> QueuedPipeControl::create_pipe(const PipeConfig& config) {
    return port_->create_pipe(config);
}

Status QueuedPipeControl::destroy_pipe(PipeId pipe) {
    flush();
    Status status = port_->destroy_pipe(pipe);
    if (status)
        std::erase_if(known_, [pipe](const auto& item) { return item.second.pipe == pipe; });
    return status;
}

Status QueuedPipeControl::update_miss(PipeId pipe, const Forward& miss) {
    return port_->update_miss(pipe, miss);
}

Status QueuedPipeControl::flush_pipes() {
    flush();
    Status status = port_->flush_pipes();
    if (status) known_.clear();
    return status;
}

// --- Entries

Status QueuedPipeControl::enqueue(EntryOperation operation, Batch batch) {
    if (waiting_.size() + completed_.size() >= queue_depth_) {
        return Error{EAGAIN, "the queue holds " + std::to_string(queue_depth_) +
                                 " operations, its depth: their completions must be processed"};
    }
    waiting_.push_back(std::move(operation));
    if (batch == Batch::kFlush || waiting_.size() + completed_.size() >= queue_depth_) flush();
    return {};
}

template <class EntryType>
Result<EntryId> QueuedPipeControl::add(PipeId pipe, const EntryType& entry, Batch batch,
                                       std::uint64_t user_data) {
    const EntryId id{next_entry_};
    known_[id] = {pipe, user_data, 1, false};
    if (Status queued = enqueue({id, pipe, entry}, batch); !queued) {
        known_.erase(id);
        return queued.error();
    }
    ++next_entry_;
    return id;
}

Result<EntryId> QueuedPipeControl::add_entry(PipeId pipe, const BasicEntry& entry, Batch batch,
                                             std::uint64_t user_data) {
    return add(pipe, entry, batch, user_data);
}
Result<EntryId> QueuedPipeControl::add_entry(PipeId pipe, const ControlEntry& entry, Batch batch,
                                             std::uint64_t user_data) {
    return add(pipe, entry, batch, user_data);
}
Result<EntryId> QueuedPipeControl::add_entry(PipeId pipe, const HashEntry& entry, Batch batch,
                                             std::uint64_t user_data) {
    return add(pipe, entry, batch, user_data);
}

Status QueuedPipeControl::update_entry(EntryId entry, const EntryActions& actions, Batch batch) {
    const auto found = known_.find(entry);
    if (found == known_.end()) {
        return Error{EINVAL, "entry " + std::to_string(entry.value) + " is not of this control"};
    }
    ++found->second.pending;
    Status queued = enqueue({entry, found->second.pipe, actions}, batch);
    if (!queued) --known_[entry].pending;
    return queued;
}

Status QueuedPipeControl::remove_entry(EntryId entry, Batch batch) {
    const auto found = known_.find(entry);
    if (found == known_.end()) {
        return Error{EINVAL, "entry " + std::to_string(entry.value) + " is not of this control"};
    }
    ++found->second.pending;
    Status queued = enqueue({entry, found->second.pipe, Removal{}}, batch);
    if (!queued) --known_[entry].pending;
    return queued;
}

// What cannot be sent is completed with the error, so that every operation has its completion.
void QueuedPipeControl::flush() {
    if (waiting_.empty()) return;
    const std::vector<EntryOperation> batch = std::exchange(waiting_, {});
    auto results = port_->apply(handed_out_, batch);
    if (results.ok()) {
        retired_ = handed_out_;
        for (const OperationResult& result : *results) complete(result);
        return;
    }
    is_lost_ = results.error().code == EPIPE;
    for (const EntryOperation& operation : batch) {
        complete({operation.entry, op_of(operation), results.error()});
    }
}

void QueuedPipeControl::complete(const OperationResult& result) {
    const bool is_done = result.error.code == 0;
    const auto found = known_.find(result.entry);
    const std::uint64_t user_data = found == known_.end() ? 0 : found->second.user_data;
    completed_.push_back({result.entry, result.op,
                          is_done ? EntryStatus::kSuccess : EntryStatus::kError, result.error,
                          user_data});
}

void QueuedPipeControl::settle(const EntryCompletion& completion) {
    ++handed_out_;
    const auto found = known_.find(completion.entry);
    if (found == known_.end()) return;
    Known& entry = found->second;
    if (entry.pending > 0) --entry.pending;
    const bool succeeded = completion.status == EntryStatus::kSuccess;
    if (completion.op == EntryOp::kAdd) entry.exists = succeeded;
    if (completion.op == EntryOp::kRemove && succeeded) entry.exists = false;
    if (!entry.exists && entry.pending == 0) known_.erase(found);
}

Result<std::size_t> QueuedPipeControl::process(Duration, std::size_t max,
                                               std::vector<EntryCompletion>& out) {
    if (retired_ != handed_out_ && !is_lost_) {
        const auto released = port_->apply(handed_out_, {});
        if (released.ok()) retired_ = handed_out_;
        if (!released.ok() && completed_.empty()) return released.error();
    }
    std::size_t count = 0;
    for (; !completed_.empty() && (max == 0 || count < max); ++count) {
        settle(completed_.front());
        out.push_back(std::move(completed_.front()));
        completed_.pop_front();
    }
    if (count == 0 && is_lost_) return Error{EPIPE, "the card has gone"};
    return count;
}

Result<EntryStatus> QueuedPipeControl::entry_status(EntryId entry) const {
    const auto found = known_.find(entry);
    if (found == known_.end()) {
        return Error{ENOENT, "there is no entry " + std::to_string(entry.value)};
    }
    return found->second.pending > 0 ? EntryStatus::kInProcess : EntryStatus::kSuccess;
}

// --- Counters and frames

Result<std::vector<FlowCounters>> QueuedPipeControl::query_entries(
    std::span<const EntryId> entries) {
    return port_->query_entries(entries);
}
Result<FlowCounters> QueuedPipeControl::query_miss(PipeId pipe) { return port_->query_miss(pipe); }
Result<std::uint64_t> QueuedPipeControl::poll_frames(std::vector<CapturedFrame>& out) {
    return port_->poll_frames(out);
}

}  // namespace rdmalab::flow

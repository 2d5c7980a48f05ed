#include "flow/pipeline.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/limits.h"

namespace rdmalab::flow {
namespace {

Error no_such_pipe(PipeId pipe) {
    return {ENOENT, "there is no pipe " + std::to_string(pipe.value)};
}
Error no_such_entry(EntryId entry) {
    return {ENOENT, "there is no entry " + std::to_string(entry.value)};
}
Error in_pipe(const Pipe& pipe, const Error& error) {
    return {error.code, "pipe \"" + pipe.name() + "\": " + error.text};
}

bool is_open(const Forward& of_pipe) {
    return of_pipe.kind == ForwardKind::kNone || of_pipe.kind == ForwardKind::kChangeable;
}

}  // namespace

Pipe* Pipeline::find(PipeId pipe) const {
    const auto found = pipes_.find(pipe);
    return found == pipes_.end() ? nullptr : found->second.get();
}

// --- Forwards

std::string Pipeline::name_of_port(PortId port) const {
    const auto found = std::find_if(ports_.begin(), ports_.end(),
                                    [port](const PortInfo& info) { return info.id == port; });
    return found == ports_.end() ? std::string() : found->name;
}

Result<Target> Pipeline::resolve(const Forward& forward) const {
    Target target;
    target.kind = forward.kind;
    switch (forward.kind) {
        case ForwardKind::kDrop:
            return target;
        case ForwardKind::kPort:
            if (name_of_port(forward.port).empty()) {
                return Error{ENOENT, "forward: there is no port " +
                                         std::to_string(forward.port.value) + " in this domain"};
            }
            target.number = forward.port.value;
            return target;
        case ForwardKind::kRss: {
            const auto& queues = forward.queues;
            const bool is_known =
                std::all_of(queues.begin(), queues.end(),
                            [](std::uint16_t queue) { return queue < kQueueMax; });
            if (queues.empty() || queues.size() > kQueueMax || !is_known) {
                return Error{EINVAL, "forward to RSS: expected 1 to 64 queues, each below 64"};
            }
            target.number = queues.front();
            return target;
        }
        case ForwardKind::kPipe:
        case ForwardKind::kHashPipe:
            return resolve_pipe(forward);
        default:
            break;
    }
    return Error{EINVAL, "forward: expected a port, a pipe, RSS or drop, found kind " +
                             std::to_string(static_cast<unsigned>(forward.kind))};
}

Result<Target> Pipeline::resolve_pipe(const Forward& forward) const {
    Target target;
    target.kind = forward.kind;
    target.pipe = find(forward.pipe);
    if (target.pipe == nullptr) {
        return Error{ENOENT, "forward: there is no pipe " + std::to_string(forward.pipe.value)};
    }
    const HashAlgorithm offered = target.pipe->config().algorithms;
    const bool is_hash_forward = forward.kind == ForwardKind::kHashPipe;
    target.algorithm = is_hash_forward ? forward.algorithm : offered;
    if (!target.pipe->is_hash()) {
        if (!is_hash_forward) return target;
        return Error{EINVAL, "forward to HASH pipe: \"" + target.pipe->name() + "\" is none"};
    }
    if (!std::has_single_bit(static_cast<unsigned>(target.algorithm)) ||
        !has_flag(offered, target.algorithm)) {
        return Error{EINVAL, "forward to HASH pipe \"" + target.pipe->name() +
                                 "\": expected one of its map algorithms (flags " +
                                 std::to_string(static_cast<unsigned>(offered)) + "), found " +
                                 std::to_string(static_cast<unsigned>(target.algorithm))};
    }
    return target;
}

Result<Target> Pipeline::resolve_miss(const Forward& forward) const {
    switch (forward.kind) {
        case ForwardKind::kNone:
        case ForwardKind::kDrop:
            return Target{};
        case ForwardKind::kPipe:
        case ForwardKind::kHashPipe:
            break;
        case ForwardKind::kPort:
            return Error{EINVAL, "miss: expected a pipe or drop, found a port (" +
                                     name_of_port(forward.port) + ")"};
        default:
            return Error{EINVAL, "miss: expected a pipe or drop, found forward kind " +
                                     std::to_string(static_cast<unsigned>(forward.kind))};
    }
    auto target = resolve(forward);
    if (!target.ok()) return Error{target.error().code, "miss: " + target.error().text};
    return target;
}

// --- Pipes

Status Pipeline::check_root(const Pipe& pipe) const {
    if (!pipe.config().is_root) return {};
    if (root_ != nullptr) {
        return Error{EEXIST, "a second root: \"" + root_->name() + "\" is the root of the domain"};
    }
    if (pipe.is_hash() && !options_.hash_root_allowed) {
        return Error{EOPNOTSUPP, "a HASH pipe cannot be the root"};
    }
    if (pipe.is_hash() && !std::has_single_bit(static_cast<unsigned>(pipe.config().algorithms))) {
        return Error{EINVAL, "a root of type HASH: expected one map algorithm"};
    }
    return {};
}

Result<PipeId> Pipeline::create_pipe(const PipeConfig& config) {
    if (pipes_.size() >= limits::kFlowPipeMax) {
        return Error{ENOSPC,
                     "the domain has " + std::to_string(pipes_.size()) + " pipes, its limit"};
    }
    auto made = Pipe::make(PipeId{next_pipe_}, config);
    if (!made.ok()) return made.error();
    Pipe& pipe = **made;
    if (Status root = check_root(pipe); !root) return in_pipe(pipe, root.error());
    const auto miss = resolve_miss(config.miss);
    if (!miss.ok()) return in_pipe(pipe, miss.error());
    pipe.set_miss(config.miss, *miss);
    if (!is_open(config.forward)) {
        const auto target = resolve(config.forward);
        if (!target.ok()) return in_pipe(pipe, target.error());
        pipe.set_forward(config.forward, *target);
    }
    note_types(pipe.match());
    if (config.is_root) root_ = &pipe;
    pipes_.emplace(pipe.id(), std::move(*made));
    return PipeId{next_pipe_++};
}

Status Pipeline::destroy_pipe(PipeId id) {
    Pipe* const pipe = find(id);
    if (pipe == nullptr) return no_such_pipe(id);
    for (const auto& [other_id, other] : pipes_) {
        if (other.get() == pipe || !other->leads_to(*pipe)) continue;
        return in_pipe(*pipe, {EBUSY, "\"" + other->name() + "\" forwards to it"});
    }
    std::erase_if(retired_, [pipe](const Retired& retired) { return retired.place.pipe == pipe; });
    std::erase_if(entries_, [pipe](const auto& item) { return item.second.pipe == pipe; });
    for (const std::uint32_t slot : pipe->live_slots()) {
        counters_used_ -= pipe->entry(slot).counts ? 1 : 0;
    }
    if (root_ == pipe) root_ = nullptr;
    pipes_.erase(id);
    return {};
}

Status Pipeline::update_miss(PipeId id, const Forward& miss) {
    Pipe* const pipe = find(id);
    if (pipe == nullptr) return no_such_pipe(id);
    const auto target = resolve_miss(miss);
    if (!target.ok()) return in_pipe(*pipe, target.error());
    pipe->set_miss(miss, *target);
    return {};
}

void Pipeline::flush_pipes() {
    root_ = nullptr;
    retired_.clear();
    entries_.clear();
    pipes_.clear();
    counters_used_ = 0;
    uses_types_ = false;
}

// --- Entries

Result<Pipe::Rule> Pipeline::rule_for(const Pipe& pipe, EntryId id, const EntryActions& actions,
                                      const Forward* current) const {
    const Forward& of_pipe = pipe.config().forward;
    Forward forward = actions.forward;
    if (forward.kind == ForwardKind::kNone) {
        if (is_open(of_pipe) && current == nullptr) {
            return in_pipe(pipe, {EINVAL,
                                  "an entry without a forward, but the pipe leaves it to "
                                  "entries"});
        }
        forward = is_open(of_pipe) ? *current : of_pipe;
    } else if (!is_open(of_pipe) && forward != of_pipe) {
        return in_pipe(pipe, {EINVAL,
                              "an entry with a forward of its own, but the pipe's is for "
                              "all entries"});
    } else if (current != nullptr && of_pipe.kind == ForwardKind::kNone && forward != *current) {
        return in_pipe(pipe, {EOPNOTSUPP, "another forward for entry " + std::to_string(id.value) +
                                              ", but the pipe's is not CHANGEABLE"});
    }
    const auto target = resolve(forward);
    if (!target.ok()) return in_pipe(pipe, target.error());
    return Pipe::Rule{id, actions, std::move(forward), *target};
}

Status Pipeline::check_counter(const Pipe& pipe, const EntryActions& actions) const {
    if (!pipe.config().monitor.counter && !actions.monitor.counter) return {};
    if (counters_used_ < options_.counters_max) return {};
    return in_pipe(
        pipe, {ENOSPC, "no counter left for an entry: all " +
                           std::to_string(options_.counters_max) + " of the domain are in use"});
}

template <class EntryType>
Error Pipeline::add(const EntryOperation& operation, const EntryType& entry) {
    Pipe* const pipe = find(operation.pipe);
    if (pipe == nullptr) return no_such_pipe(operation.pipe);
    if (operation.entry.value == 0 || entries_.contains(operation.entry)) {
        return in_pipe(*pipe, {EEXIST, "the number of a new entry: expected an unused one, found " +
                                           std::to_string(operation.entry.value)});
    }
    if (entries_.size() >= limits::kFlowEntryMax) {
        return in_pipe(*pipe, {ENOSPC, "no room for another entry: the domain has " +
                                           std::to_string(entries_.size()) + ", its limit"});
    }
    auto rule = rule_for(*pipe, operation.entry, entry.actions, nullptr);
    if (!rule.ok()) return rule.error();
    if (Status counter = check_counter(*pipe, entry.actions); !counter) return counter.error();
    const auto slot = pipe->add(entry, std::move(*rule));
    if (!slot.ok()) return slot.error();
    if (pipe->entry(*slot).counts) ++counters_used_;
    if (const MatchPlan* own = pipe->record(*slot).plan.get()) note_types(*own);
    entries_.emplace(operation.entry, Place{pipe, *slot});
    return {};
}

Error Pipeline::update(const EntryOperation& operation, const EntryActions& actions) {
    const auto found = entries_.find(operation.entry);
    if (found == entries_.end()) return no_such_entry(operation.entry);
    auto& [pipe, slot] = found->second;
    const bool counted = pipe->entry(slot).counts;
    if (!counted) {
        if (Status counter = check_counter(*pipe, actions); !counter) return counter.error();
    }
    auto rule = rule_for(*pipe, operation.entry, actions, pipe->record(slot).forward.get());
    if (!rule.ok()) return rule.error();
    const auto replacement = pipe->update(slot, std::move(*rule));
    if (!replacement.ok()) return replacement.error();
    counters_used_ += pipe->entry(*replacement).counts ? 1 : 0;
    counters_used_ -= counted ? 1 : 0;
    retired_.push_back({operations_, {pipe, slot}});
    slot = *replacement;
    return {};
}

Error Pipeline::remove(const EntryOperation& operation) {
    const auto found = entries_.find(operation.entry);
    if (found == entries_.end()) return no_such_entry(operation.entry);
    const auto [pipe, slot] = found->second;
    counters_used_ -= pipe->entry(slot).counts ? 1 : 0;
    pipe->remove(slot);
    retired_.push_back({operations_, {pipe, slot}});
    entries_.erase(found);
    return {};
}

Error Pipeline::apply_one(const EntryOperation& operation) {
    struct Visitor {
        Pipeline& pipeline;
        const EntryOperation& operation;
        Error operator()(const Removal&) const { return pipeline.remove(operation); }
        Error operator()(const EntryActions& actions) const {
            return pipeline.update(operation, actions);
        }
        Error operator()(const BasicEntry& entry) const { return pipeline.add(operation, entry); }
        Error operator()(const ControlEntry& entry) const { return pipeline.add(operation, entry); }
        Error operator()(const HashEntry& entry) const { return pipeline.add(operation, entry); }
    };
    return std::visit(Visitor{*this, operation}, operation.what);
}

std::vector<OperationResult> Pipeline::apply(std::span<const EntryOperation> operations) {
    std::vector<OperationResult> results;
    results.reserve(operations.size());
    for (const EntryOperation& operation : operations) {
        ++operations_;
        results.push_back({operation.entry, op_of(operation), apply_one(operation)});
    }
    return results;
}

void Pipeline::release_retired(std::uint64_t through) {
    while (!retired_.empty() && retired_.front().operation <= through) {
        const auto [pipe, slot] = retired_.front().place;
        pipe->release(slot);
        retired_.pop_front();
    }
}

// --- Counters

Result<std::vector<FlowCounters>> Pipeline::query_entries(std::span<const EntryId> entries) const {
    std::vector<FlowCounters> counters;
    counters.reserve(entries.size());
    for (const EntryId id : entries) {
        const auto found = entries_.find(id);
        if (found == entries_.end()) return no_such_entry(id);
        const auto& [pipe, slot] = found->second;
        if (!pipe->entry(slot).counts) {
            return in_pipe(*pipe, {EINVAL, pipe->describe(slot) + " has no counter"});
        }
        counters.push_back(pipe->entry(slot).counters);
    }
    return counters;
}

Result<FlowCounters> Pipeline::query_miss(PipeId id) const {
    const Pipe* const pipe = find(id);
    if (pipe == nullptr) return no_such_pipe(id);
    return pipe->misses;
}

}  // namespace rdmalab::flow

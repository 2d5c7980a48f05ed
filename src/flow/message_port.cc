#include "flow/message_port.h"

#include <algorithm>
#include <iterator>

namespace rdmalab::flow {
namespace {

// Requests must fit a control message of 64 KiB; what one operation needs is far below this.
constexpr std::size_t kRequestMax = 48 * 1024;

Error other_build() { return {EPROTO, "card and program are of different builds"}; }

template <class Reply, class... Arguments>
Status exchange(const MessagePort::Call& call, CommandKind kind, Reply& out,
                const Arguments&... arguments) {
    Writer request;
    request(kind, arguments...);
    const auto reply = call(request.bytes());
    if (!reply.ok()) return reply.error();
    return Reader(*reply)(out).complete() ? Status() : other_build();
}

}  // namespace

template <class... Arguments>
Status MessagePort::tell(CommandKind kind, const Arguments&... arguments) {
    Writer request;
    request(kind, arguments...);
    const auto reply = call_(request.bytes());
    return reply.ok() ? Status() : reply.error();
}

template <class Reply, class... Arguments>
Status MessagePort::ask(CommandKind kind, Reply& out, const Arguments&... arguments) {
    return exchange(call_, kind, out, arguments...);
}

Result<AttachReply> MessagePort::attach(const Call& call, const AttachCommand& command) {
    AttachReply reply;
    if (Status status = exchange(call, CommandKind::kAttach, reply, command); !status) {
        return status.error();
    }
    return reply;
}

Result<PipeId> MessagePort::create_pipe(const PipeConfig& config) {
    PipeId pipe;
    if (Status status = ask(CommandKind::kCreatePipe, pipe, config); !status) {
        return status.error();
    }
    return pipe;
}
Status MessagePort::destroy_pipe(PipeId pipe) { return tell(CommandKind::kDestroyPipe, pipe); }
Status MessagePort::update_miss(PipeId pipe, const Forward& miss) {
    return tell(CommandKind::kUpdateMiss, pipe, miss);
}
Status MessagePort::flush_pipes() { return tell(CommandKind::kFlushPipes); }

Result<FlowCounters> MessagePort::query_miss(PipeId pipe) {
    FlowCounters counters;
    if (Status status = ask(CommandKind::kQueryMiss, counters, pipe); !status) {
        return status.error();
    }
    return counters;
}

Status MessagePort::apply_some(std::uint64_t retire_through,
                               std::span<const EntryOperation> operations,
                               std::vector<OperationResult>& results) {
    const std::vector<EntryOperation> batch(operations.begin(), operations.end());
    std::vector<OperationResult> part;
    if (Status status = ask(CommandKind::kApply, part, retire_through, batch); !status) {
        return status;
    }
    if (part.size() != batch.size()) return other_build();
    results.insert(results.end(), part.begin(), part.end());
    return {};
}

// In as many messages as it takes.
Result<std::vector<OperationResult>> MessagePort::apply(
    std::uint64_t retire_through, std::span<const EntryOperation> operations) {
    std::vector<OperationResult> results;
    do {
        std::size_t count = 0, bytes = 0;
        while (count < operations.size() && count < kOperationsMax) {
            Writer one;
            one(operations[count]);
            bytes += one.bytes().size();
            if (count > 0 && bytes > kRequestMax) break;
            ++count;
        }
        if (Status sent = apply_some(retire_through, operations.first(count), results); !sent) {
            return sent.error();
        }
        operations = operations.subspan(count);
    } while (!operations.empty());
    return results;
}

Result<std::vector<FlowCounters>> MessagePort::query_entries(std::span<const EntryId> entries) {
    std::vector<FlowCounters> all;
    while (!entries.empty()) {
        const auto part = entries.first(std::min(entries.size(), kQueryMax));
        const std::vector<EntryId> ids(part.begin(), part.end());
        std::vector<FlowCounters> counters;
        if (Status status = ask(CommandKind::kQueryEntries, counters, ids); !status) {
            return status.error();
        }
        if (counters.size() != ids.size()) return other_build();
        all.insert(all.end(), counters.begin(), counters.end());
        entries = entries.subspan(part.size());
    }
    return all;
}

Result<std::uint64_t> MessagePort::poll_frames(std::vector<CapturedFrame>& out) {
    std::uint64_t dropped = 0;
    FramesReply reply;
    do {
        if (Status status = ask(CommandKind::kPollFrames, reply); !status) return status.error();
        dropped += reply.dropped;
        std::move(reply.frames.begin(), reply.frames.end(), std::back_inserter(out));
    } while (reply.more && !reply.frames.empty());
    return dropped;
}

}  // namespace rdmalab::flow

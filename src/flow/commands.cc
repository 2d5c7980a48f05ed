#include "flow/commands.h"

namespace rdmalab::flow {
namespace {

using Bytes = std::vector<std::byte>;

// Longer texts would let a batch of errors outgrow a message.
constexpr std::size_t kErrorTextMax = 200;

Error malformed(const char* what) {
    return {EINVAL, std::string("a flow command (") + what +
                        "): expected its arguments and nothing else, found something else"};
}

template <class... Ts>
Bytes reply(const Ts&... values) {
    Writer writer;
    writer(values...);
    return writer.take();
}

Result<Bytes> create_pipe(Pipeline& pipeline, Reader& reader) {
    PipeConfig config;
    if (!reader(config).complete()) return malformed("create pipe");
    const auto pipe = pipeline.create_pipe(config);
    if (!pipe.ok()) return pipe.error();
    return reply(*pipe);
}

Result<Bytes> finish(const Status& status) {
    if (!status) return status.error();
    return Bytes();
}

Result<Bytes> apply(Pipeline& pipeline, Reader& reader) {
    std::uint64_t retire_through = 0;
    std::vector<EntryOperation> operations;
    if (!reader(retire_through, operations).complete()) return malformed("apply");
    if (operations.size() > kOperationsMax) {
        return Error{EINVAL, "operations of one command: expected at most " +
                                 std::to_string(kOperationsMax) + ", found " +
                                 std::to_string(operations.size())};
    }
    pipeline.release_retired(retire_through);
    std::vector<OperationResult> results = pipeline.apply(operations);
    for (OperationResult& result : results) {
        if (result.error.text.size() > kErrorTextMax) result.error.text.resize(kErrorTextMax);
    }
    return reply(results);
}

Result<Bytes> query_entries(const Pipeline& pipeline, Reader& reader) {
    std::vector<EntryId> entries;
    if (!reader(entries).complete() || entries.size() > kQueryMax) {
        return malformed("query entries");
    }
    const auto counters = pipeline.query_entries(entries);
    if (!counters.ok()) return counters.error();
    return reply(*counters);
}

Result<Bytes> poll_frames(Pipeline& pipeline, Reader& reader) {
    if (!reader.complete()) return malformed("poll frames");
    FramesReply out;
    std::size_t room = kFrameBytesMax;
    constexpr std::size_t kOverhead = 16;  // of each frame in the message
    while (room > kOverhead && pipeline.captured().pop(out.frames, room - kOverhead)) {
        room -= out.frames.back().bytes.size() + kOverhead;
    }
    out.dropped = pipeline.captured().take_dropped();
    out.more = !pipeline.captured().empty();
    return reply(out);
}

}  // namespace

CommandKind kind_of(Reader& reader) {
    CommandKind kind{};
    reader(kind);
    return kind;
}

Result<Bytes> execute(Pipeline& pipeline, ByteView request) {
    Reader reader(request);
    const CommandKind kind = kind_of(reader);
    PipeId pipe;
    switch (kind) {
        case CommandKind::kCreatePipe:
            return create_pipe(pipeline, reader);
        case CommandKind::kDestroyPipe:
            if (!reader(pipe).complete()) return malformed("destroy pipe");
            return finish(pipeline.destroy_pipe(pipe));
        case CommandKind::kUpdateMiss: {
            Forward miss;
            if (!reader(pipe, miss).complete()) return malformed("update miss");
            return finish(pipeline.update_miss(pipe, miss));
        }
        case CommandKind::kFlushPipes:
            if (!reader.complete()) return malformed("flush pipes");
            pipeline.flush_pipes();
            return Bytes();
        case CommandKind::kApply:
            return apply(pipeline, reader);
        case CommandKind::kQueryEntries:
            return query_entries(pipeline, reader);
        case CommandKind::kQueryMiss: {
            if (!reader(pipe).complete()) return malformed("query miss");
            const auto counters = pipeline.query_miss(pipe);
            if (!counters.ok()) return counters.error();
            return reply(*counters);
        }
        case CommandKind::kPollFrames:
            return poll_frames(pipeline, reader);
        case CommandKind::kAttach:
            return Error{EBUSY, "this connection owns a domain already"};
    }
    return Error{EINVAL, "a flow command: expected a known kind, found " +
                             std::to_string(static_cast<std::uint32_t>(kind))};
}

}  // namespace rdmalab::flow

// Commands of a program to the pipeline of its domain, as messages: what travels behind the
// RequestHeader of abi::Op::kFlow (card/ring_abi.h), and its answers. Both ends are of one build;
// the version of the control protocol stands for this too.
//
// A request is a CommandKind and the arguments below in their order; a reply is the results. An
// error travels as status and text of the reply itself.
#pragma once

#include "flow/archive.h"
#include "flow/operations.h"
#include "flow/pipeline.h"

namespace rdmalab::flow {

enum class CommandKind : std::uint32_t {
    kAttach = 1,    // AttachCommand -> AttachReply: the connection owns the domain of a PF
    kCreatePipe,    // PipeConfig -> PipeId
    kDestroyPipe,   // PipeId
    kUpdateMiss,    // PipeId, Forward
    kFlushPipes,    //
    kApply,         // u64 retire_through, EntryOperations (kOperationsMax) -> OperationResults
    kQueryEntries,  // EntryIds (kQueryMax) -> FlowCounters
    kQueryMiss,     // PipeId -> FlowCounters
    kPollFrames,    // -> FramesReply
};

inline constexpr std::size_t kOperationsMax = 256, kQueryMax = 2048;
// Frames that one answer brings, and the largest that a queue takes: both fit a control message.
inline constexpr std::size_t kFrameBytesMax = 48 * 1024, kFrameLengthMax = 16 * 1024;

struct AttachCommand {
    std::string pf;
    std::uint32_t counters_max = 0;
    bool hash_root_allowed = false;
};
struct AttachReply {
    std::string device, card;
    std::vector<PortInfo> ports;
};
struct FramesReply {
    std::vector<CapturedFrame> frames;
    std::uint64_t dropped = 0;
    bool more = false;
};

// The kind of a request; its arguments are what is left in `reader`.
CommandKind kind_of(Reader& reader);
// Carries out any command but kAttach.
Result<std::vector<std::byte>> execute(Pipeline& pipeline, ByteView request);

// --- How the types lie in messages.

inline bool is_known(CommandKind) { return true; }  // `execute` says what is wrong
inline bool is_known(Field field) { return field < Field::kCount; }
inline bool is_known(PipeType type) {
    return type == PipeType::kBasic || type == PipeType::kControl || type == PipeType::kHash;
}
inline bool is_known(HashAlgorithm) { return true; }  // flags; looked at where they are used
inline bool is_known(L3Type type) { return type <= L3Type::kIpv6; }
inline bool is_known(L4Type type) { return type <= L4Type::kRoceV2; }
inline bool is_known(ForwardKind) { return true; }  // Pipeline::resolve says what is wrong
inline bool is_known(DescriptorKind kind) {
    return kind == DescriptorKind::kAdd || kind == DescriptorKind::kCopy;
}
inline bool is_known(PortKind kind) { return kind <= PortKind::kVport; }
inline bool is_known(EntryOp op) { return op <= EntryOp::kUpdate; }

template <class T, class U>
concept Either = std::same_as<std::remove_const_t<T>, U>;

void describe(auto& archive, Either<Gid> auto& v) {
    for (auto& byte : v.bytes) archive(byte);
}
void describe(auto& archive, Either<FieldValue> auto& v) { archive(v.high, v.low); }
void describe(auto& archive, Either<FieldValues::Item> auto& v) { archive(v.field, v.value); }
inline void describe(Writer& archive, const FieldValues& v) { archive(v.items()); }
inline void describe(Reader& archive, FieldValues& v) {
    std::vector<FieldValues::Item> items;
    archive(items);
    v = {};
    if (items.size() > static_cast<std::size_t>(Field::kCount)) return archive.fail();
    for (const auto& item : items) v.set(item.field, item.value);
}
void describe(auto& archive, Either<Match> auto& v) { archive(v.l3_type, v.l4_type, v.values); }
void describe(auto& archive, Either<Forward> auto& v) {
    archive(v.kind, v.port, v.pipe, v.algorithm, v.queues);
}
void describe(auto& archive, Either<ActionDescriptor> auto& v) {
    archive(v.kind, v.destination, v.destination_bit, v.addend, v.source, v.source_bit, v.width);
}
void describe(auto& archive, Either<ActionTemplate> auto& v) {
    archive(v.values, v.mask, v.descriptors);
}
void describe(auto& archive, Either<Monitor> auto& v) { archive(v.counter); }
void describe(auto& archive, Either<PipeConfig> auto& v) {
    archive(v.name, v.type, v.is_root, v.entries_max, v.match, v.match_mask, v.actions, v.monitor,
            v.algorithms, v.forward, v.miss);
}
void describe(auto& archive, Either<EntryActions> auto& v) {
    archive(v.action_index, v.values, v.monitor, v.forward);
}
void describe(auto&, Either<Removal> auto&) {}
void describe(auto& archive, Either<BasicEntry> auto& v) { archive(v.match, v.actions); }
void describe(auto& archive, Either<ControlEntry> auto& v) {
    archive(v.priority, v.match, v.mask, v.actions, v.own_actions);
}
void describe(auto& archive, Either<HashEntry> auto& v) { archive(v.index, v.actions); }
void describe(auto& archive, Either<EntryOperation> auto& v) { archive(v.entry, v.pipe, v.what); }
void describe(auto& archive, Either<Error> auto& v) { archive(v.code, v.text); }
void describe(auto& archive, Either<OperationResult> auto& v) { archive(v.entry, v.op, v.error); }
void describe(auto& archive, Either<FlowCounters> auto& v) { archive(v.packets, v.bytes); }
void describe(auto& archive, Either<PortInfo> auto& v) {
    archive(v.id, v.kind, v.name, v.device, v.addresses);
}
void describe(auto& archive, Either<CapturedFrame> auto& v) { archive(v.queue, v.port, v.bytes); }
void describe(auto& archive, Either<AttachCommand> auto& v) {
    archive(v.pf, v.counters_max, v.hash_root_allowed);
}
void describe(auto& archive, Either<AttachReply> auto& v) { archive(v.device, v.card, v.ports); }
void describe(auto& archive, Either<FramesReply> auto& v) { archive(v.frames, v.dropped, v.more); }

}  // namespace rdmalab::flow

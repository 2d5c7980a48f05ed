#include "flow/trace.h"

#include <algorithm>

namespace rdmalab::flow {

Status Tracer::start(const Match& filter, const std::optional<FieldValues>& mask,
                     std::uint32_t count) {
    if (count == 0 || count > kPacketMax) {
        return Error{EINVAL, "packets to trace: expected 1 to " + std::to_string(kPacketMax) +
                                 ", found " + std::to_string(count)};
    }
    auto plan = MatchPlan::make(filter, mask, MatchPlan::Use::kLiteral);
    if (!plan.ok()) return plan.error();
    filter_ = std::move(*plan);
    packets_.clear();
    packets_.reserve(count);
    remaining_ = count;
    return {};
}

TracedPacket* Tracer::begin(const Packet& packet) {
    if (!filter_.matches(packet)) return nullptr;
    --remaining_;
    TracedPacket& record = packets_.emplace_back();  // reserved
    record.number = packets_.size();
    record.ingress = packet.ingress;
    record.length = packet.length;
    record.frame = *packet.frame;
    return &record;
}

TraceStep* next_step(TracedPacket& record) {
    if (record.step_count == TracedPacket::kStepMax) {
        record.is_cut = true;
        return nullptr;
    }
    return &record.steps[record.step_count++];
}

void note_match(TraceStep& step, const Pipe& pipe, const Packet& packet) {
    step.pipe = pipe.id();
    step.missing_layers = pipe.match().layers() & ~packet.layers;
    if (step.missing_layers != 0) return;
    for (const MaskedField& item : pipe.match().fields()) {
        if (step.match_count == TraceStep::kFieldMax) break;
        step.matched[step.match_count++] = {
            item.field, read_field(packet, item.field) & item.mask, {}};
    }
}

}  // namespace rdmalab::flow

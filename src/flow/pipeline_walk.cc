// The data path: from the root to where a packet leaves. `kTraced` is the same way with a record.

#include "flow/pipeline.h"
#include "wire/headers.h"

namespace rdmalab::flow {

[[gnu::always_inline]] inline void Pipeline::leave(Packet& packet, const Target& target,
                                                   Walk& state) {
    switch (target.kind) {
        case ForwardKind::kPort:
            state.has_left = true;
            return state.sink.to_port(PortId{target.number}, *packet.frame);
        case ForwardKind::kRss:
            state.has_left = true;
            return state.sink.to_queue(queue_for(packet, target), packet.ingress, *packet.frame);
        default:
            ++drops_.dropped;
    }
}

bool Pipeline::process(PortId ingress, wire::Frame& frame, PacketSink& sink) {
    if (root_ == nullptr) {
        ++drops_.no_root;
        return false;
    }
    const bool traces = tracer_.is_on();
    const bool with_types = uses_types_ || (traces && tracer_.uses_types());
    Packet packet;
    packet.start(frame, ingress, wire::wire_length(frame), with_types);
    Walk state{sink};
    if (traces) {
        state.record = tracer_.begin(packet);
        if (state.record != nullptr) {
            walk<true>(packet, root_, root_->config().algorithms, state);
            return state.has_left;
        }
    }
    step_through<false>(packet, root_, root_->config().algorithms, state);
    return state.has_left;
}

template <bool kTraced>
void Pipeline::walk(Packet& packet, Pipe* pipe, HashAlgorithm algorithm, Walk& state) {
    step_through<kTraced>(packet, pipe, algorithm, state);
}

template <bool kTraced>
inline void Pipeline::step_through(Packet& packet, Pipe* pipe, HashAlgorithm algorithm,
                                   Walk& state) {
    while (true) {
        if (--state.visits_left < 0) {
            ++drops_.loops;
            if constexpr (kTraced) {
                if (TraceStep* step = next_step(*state.record)) {
                    step->pipe = pipe->id();
                    step->outcome = TraceStep::Outcome::kLoop;
                    step->forward = ForwardKind::kDrop;
                }
            }
            return;
        }
        if (algorithm == HashAlgorithm::kFlooding) return flood<kTraced>(packet, *pipe, state);
        Entry* const entry = pipe->pick(packet, algorithm, random_);
        const Target* target = nullptr;
        if (entry != nullptr) {
            take<kTraced>(packet, *pipe, *entry, state);
            target = &entry->target;
        } else {
            ++pipe->misses.packets;
            pipe->misses.bytes += packet.length;
            if constexpr (kTraced) note_miss(packet, *pipe, state);
            target = &pipe->miss_target();
        }
        if (target->pipe == nullptr) return leave(packet, *target, state);
        algorithm = target->algorithm;
        pipe = target->pipe;
    }
}

// Match -> actions -> counter; the forward comes next.
template <bool kTraced>
void Pipeline::take(Packet& packet, Pipe& pipe, Entry& entry, Walk& state) {
    ++pipe.hits;
    if constexpr (kTraced) {
        note_hit(packet, pipe, entry, state);
    } else {
        if (entry.program != nullptr) entry.program->run(packet);
    }
    if (!entry.counts) return;
    ++entry.counters.packets;
    entry.counters.bytes += packet.length;
}

// A copy for every entry; the last one gets the packet itself.
template <bool kTraced>
void Pipeline::flood(Packet& packet, Pipe& pipe, Walk& state) {
    if (state.flood_depth == kFloodDepthMax) {
        ++drops_.loops;
        return;
    }
    ++state.flood_depth;
    Entry* last = nullptr;
    for (std::uint32_t index = 0; index < pipe.config().entries_max; ++index) {
        Entry* const entry = pipe.at_index(index);
        if (entry == nullptr) continue;
        if (last != nullptr) follow_copy<kTraced>(packet, pipe, *last, state);
        last = entry;
    }
    if (last != nullptr) {
        follow<kTraced>(packet, pipe, *last, state);
    } else {
        ++pipe.misses.packets;
        pipe.misses.bytes += packet.length;
        if constexpr (kTraced) note_miss(packet, pipe, state);
        const Target& miss = pipe.miss_target();
        if (miss.pipe == nullptr) {
            leave(packet, miss, state);
        } else {
            walk<kTraced>(packet, miss.pipe, miss.algorithm, state);
        }
    }
    --state.flood_depth;
}

template <bool kTraced>
void Pipeline::follow_copy(const Packet& packet, Pipe& pipe, Entry& entry, Walk& state) {
    wire::Frame frame = *packet.frame;
    Packet copy;
    copy.start_copy(packet, frame);
    const std::uint8_t branch = state.branch;
    if constexpr (kTraced) state.branch = ++state.record->branches;
    follow<kTraced>(copy, pipe, entry, state);
    state.branch = branch;
}

template <bool kTraced>
void Pipeline::follow(Packet& packet, Pipe& pipe, Entry& entry, Walk& state) {
    take<kTraced>(packet, pipe, entry, state);
    const Target& target = entry.target;
    if (target.pipe == nullptr) return leave(packet, target, state);
    walk<kTraced>(packet, target.pipe, target.algorithm, state);
}

// Packets of one flow go to one queue: addresses and ports decide.
std::uint16_t Pipeline::queue_for(const Packet& packet, const Target& target) {
    if (target.queues == nullptr) return target.number;
    std::array<std::uint64_t, 5> words{};
    const std::byte* const l3 = packet.base(Base::kL3);
    if ((packet.layers & kLayerIpv4) != 0) {
        words[0] = load_bytes<std::uint64_t>(l3 + 12);
    } else if ((packet.layers & kLayerIpv6) != 0) {
        for (std::size_t i = 0; i < 4; ++i) words[i] = load_bytes<std::uint64_t>(l3 + 8 + 8 * i);
    }
    if ((packet.layers & kLayerTransport) != 0) {
        words[4] = load_bytes<std::uint32_t>(packet.base(Base::kL4));
    }
    const std::uint64_t hash = hash_words(words.data(), words.size());
    return (*target.queues)[static_cast<std::uint32_t>(hash >> 32) % target.queues->size()];
}

// --- Records

namespace {

void note_target(TraceStep& step, const Target& target) {
    step.forward = target.kind;
    step.number = target.number;
    if (target.pipe != nullptr) step.next = target.pipe->id();
}

}  // namespace

void Pipeline::note_miss(const Packet& packet, const Pipe& pipe, Walk& state) {
    TraceStep* const step = next_step(*state.record);
    if (step == nullptr) return;
    step->branch = state.branch;
    note_match(*step, pipe, packet);
    step->outcome = TraceStep::Outcome::kMissKey;
    if (step->missing_layers != 0) {
        step->outcome = TraceStep::Outcome::kMissLayer;
    } else if (pipe.is_hash()) {
        step->outcome = TraceStep::Outcome::kMissIndex;
        step->index = packet.notes.u32[3] >> 16;
    }
    note_target(*step, pipe.miss_target());
}

// Runs the entry's program, watching.
void Pipeline::note_hit(Packet& packet, const Pipe& pipe, const Entry& entry, Walk& state) {
    TraceStep* const step = next_step(*state.record);
    if (step != nullptr) {
        step->branch = state.branch;
        note_match(*step, pipe, packet);
        step->outcome = TraceStep::Outcome::kHit;
        step->entry = pipe.id_of(entry);
        step->index = pipe.order_of(entry);
        note_target(*step, entry.target);
    }
    if (entry.program == nullptr) return;
    if (step == nullptr) return entry.program->run(packet);
    for (const Field field : entry.program->fields()) {
        const std::uint32_t needed = layout_of(field).layers;
        if (step->change_count == TraceStep::kFieldMax || (packet.layers & needed) != needed) {
            continue;
        }
        step->changed[step->change_count++] = {field, read_field(packet, field), {}};
    }
    entry.program->run(packet);
    for (std::size_t i = 0; i < step->change_count; ++i) {
        step->changed[i].after = read_field(packet, step->changed[i].field);
    }
}

}  // namespace rdmalab::flow

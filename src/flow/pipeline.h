// The pipes of one switch domain: takes the programs' operations, and takes packets through.
//
// A packet that comes in at a port starts at the root pipe and goes from pipe to pipe until a
// forward takes it out: to a port, to a queue of the owner, or to nowhere. Nothing on that way
// allocates, throws or logs. Random choices come from the seed: the same packets in the same order
// take the same ways in every run.
//
// Packets that visit too many pipes (the program has made a ring of them) are dropped and counted.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/prng.h"
#include "flow/frame_queue.h"
#include "flow/operations.h"
#include "flow/pipe.h"
#include "flow/trace.h"
#include "wire/frame.h"

namespace rdmalab::flow {

// Where packets leave the pipeline. `frame` may be changed by the receiver. The calls happen within
// Pipeline::process, and may call `process` of this or another pipeline.
class PacketSink {
public:
    virtual ~PacketSink() = default;
    virtual void to_port(PortId port, wire::Frame& frame) = 0;
    // The sink writes the frame out, with its payload, and puts it into the pipeline's `captured`.
    virtual void to_queue(std::uint16_t queue, PortId ingress, const wire::Frame& frame) = 0;
};

struct PipelineOptions {
    std::uint64_t seed = 1;
    std::uint32_t counters_max = 4096;
    bool hash_root_allowed = false;
};

// Packets that left the pipes by no forward.
struct PipelineDrops {
    std::uint64_t no_root = 0;  // there are no pipes
    std::uint64_t dropped = 0;  // a forward or a miss said so
    std::uint64_t loops = 0;    // too many pipes, or floods within floods
};

class Pipeline {
public:
    static constexpr int kVisitsMax = 1024;  // pipes that a packet and its copies may visit
    static constexpr int kFloodDepthMax = 8;
    static constexpr std::uint16_t kQueueMax = 64;

    Pipeline(std::vector<PortInfo> ports, const PipelineOptions& options)
        : ports_(std::move(ports)), options_(options), random_(options.seed) {}

    const std::vector<PortInfo>& ports() const { return ports_; }

    // --- Control; errors as in pipe_control.h.
    Result<PipeId> create_pipe(const PipeConfig& config);
    Status destroy_pipe(PipeId pipe);
    Status update_miss(PipeId pipe, const Forward& miss);
    void flush_pipes();
    // In their order. Operations are numbered from 1, over all calls.
    std::vector<OperationResult> apply(std::span<const EntryOperation> operations);
    // Entries that operations up to number `through` have replaced or removed leave their slots.
    void release_retired(std::uint64_t through);
    Result<std::vector<FlowCounters>> query_entries(std::span<const EntryId> entries) const;
    Result<FlowCounters> query_miss(PipeId pipe) const;
    FrameQueue& captured() { return captured_; }

    // --- Data path. A packet comes in at `ingress`. False: nothing of it has left.
    bool process(PortId ingress, wire::Frame& frame, PacketSink& sink);

    // --- Facts.
    const std::map<PipeId, std::unique_ptr<Pipe>>& pipes() const { return pipes_; }
    const Pipe* root() const { return root_; }
    const PipelineDrops& drops() const { return drops_; }
    const PipelineOptions& options() const { return options_; }
    std::uint32_t counters_used() const { return counters_used_; }
    Tracer& tracer() { return tracer_; }
    const Tracer& tracer() const { return tracer_; }

private:
    struct Place {
        Pipe* pipe = nullptr;
        std::uint32_t slot = 0;
    };
    struct Retired {
        std::uint64_t operation = 0;
        Place place;
    };
    struct Walk {
        PacketSink& sink;
        int visits_left = kVisitsMax;
        int flood_depth = 0;
        bool has_left = false;
        TracedPacket* record = nullptr;
        std::uint8_t branch = 0;
    };

    Pipe* find(PipeId pipe) const;
    Status check_root(const Pipe& pipe) const;
    Result<Target> resolve(const Forward& forward) const;
    Result<Target> resolve_pipe(const Forward& forward) const;
    Result<Target> resolve_miss(const Forward& forward) const;
    std::string name_of_port(PortId port) const;
    Error apply_one(const EntryOperation& operation);
    template <class EntryType>
    Error add(const EntryOperation& operation, const EntryType& entry);
    Error update(const EntryOperation& operation, const EntryActions& actions);
    Error remove(const EntryOperation& operation);
    Result<Pipe::Rule> rule_for(const Pipe& pipe, EntryId id, const EntryActions& actions,
                                const Forward* current) const;
    Status check_counter(const Pipe& pipe, const EntryActions& actions) const;
    void note_types(const MatchPlan& match) { uses_types_ |= match.uses_types(); }

    template <bool kTraced>
    void walk(Packet& packet, Pipe* pipe, HashAlgorithm algorithm, Walk& state);
    template <bool kTraced>
    [[gnu::always_inline]] void step_through(Packet& packet, Pipe* pipe, HashAlgorithm algorithm,
                                             Walk& state);  // the body of `walk`
    template <bool kTraced>
    void flood(Packet& packet, Pipe& pipe, Walk& state);
    template <bool kTraced>
    void follow(Packet& packet, Pipe& pipe, Entry& entry, Walk& state);
    template <bool kTraced>
    void follow_copy(const Packet& packet, Pipe& pipe, Entry& entry, Walk& state);
    template <bool kTraced>
    void take(Packet& packet, Pipe& pipe, Entry& entry, Walk& state);
    void leave(Packet& packet, const Target& target, Walk& state);
    static std::uint16_t queue_for(const Packet& packet, const Target& target);
    static void note_miss(const Packet& packet, const Pipe& pipe, Walk& state);
    static void note_hit(Packet& packet, const Pipe& pipe, const Entry& entry, Walk& state);

    std::vector<PortInfo> ports_;
    PipelineOptions options_;
    Prng random_;
    Pipe* root_ = nullptr;
    bool uses_types_ = false;
    PipelineDrops drops_;
    Tracer tracer_;
    std::map<PipeId, std::unique_ptr<Pipe>> pipes_;
    std::uint32_t next_pipe_ = 1;
    std::unordered_map<EntryId, Place> entries_;
    std::uint64_t operations_ = 0;
    std::deque<Retired> retired_;
    std::uint32_t counters_used_ = 0;
    FrameQueue captured_;
};

}  // namespace rdmalab::flow

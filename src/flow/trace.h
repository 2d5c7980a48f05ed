// Following chosen packets through the pipes: what each pipe made of them and why. While a trace is
// on, packets that match its filter leave a record; everything is allocated when it is switched on.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "flow/match_plan.h"
#include "flow/pipe.h"

namespace rdmalab::flow {

struct TraceStep {
    static constexpr std::size_t kFieldMax = 6;

    enum class Outcome : std::uint8_t {
        kHit,
        kMissLayer,  // the packet has not the headers that the pipe matches
        kMissKey,    // no entry has these values
        kMissIndex,  // HASH: nothing at the index
        kLoop,       // it has visited too many pipes
    };
    struct Seen {
        Field field{};
        FieldValue value, after;  // `after`: of a field that the entry writes
    };

    PipeId pipe;
    std::uint8_t branch = 0;  // copies made by flooding have numbers above that of the original, 0
    Outcome outcome{};
    EntryId entry;                     // kHit
    std::uint32_t index = 0;           // HASH
    std::uint32_t missing_layers = 0;  // kMissLayer
    std::uint8_t match_count = 0, change_count = 0;
    std::array<Seen, kFieldMax> matched;  // what the pipe looked at, under its masks
    std::array<Seen, kFieldMax> changed;
    ForwardKind forward{};
    std::uint16_t number = 0;  // port or queue
    PipeId next;
};

struct TracedPacket {
    static constexpr std::size_t kStepMax = 48;

    std::uint64_t number = 0;  // of the trace, from 1
    PortId ingress;
    std::uint32_t length = 0;
    wire::Frame frame;  // as it came in
    std::uint8_t step_count = 0;
    bool is_cut = false;  // there were more steps
    std::uint8_t branches = 0;
    std::array<TraceStep, kStepMax> steps;
};

class Tracer {
public:
    static constexpr std::uint32_t kPacketMax = 64;

    // Follows the next `count` packets that match; those of an earlier trace are forgotten.
    Status start(const Match& filter, const std::optional<FieldValues>& mask, std::uint32_t count);
    void stop() { remaining_ = 0; }
    bool is_on() const { return remaining_ > 0; }
    std::uint32_t remaining() const { return remaining_; }
    const std::vector<TracedPacket>& packets() const { return packets_; }
    // The filter looks at the types of the packet.
    bool uses_types() const { return is_on() && filter_.uses_types(); }

    // The record for a packet that is to be followed; nullptr for others.
    TracedPacket* begin(const Packet& packet);

private:
    MatchPlan filter_;
    std::uint32_t remaining_ = 0;
    std::vector<TracedPacket> packets_;
};

// The next step of a record; nullptr when it is full.
TraceStep* next_step(TracedPacket& record);
// Fills in what `pipe` sees of the packet.
void note_match(TraceStep& step, const Pipe& pipe, const Packet& packet);

}  // namespace rdmalab::flow

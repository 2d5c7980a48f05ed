// The pipes of one switch domain: takes the programs' operations, and takes packets through.
//
// A packet that comes in at a port starts at the root pipe and goes from pipe to pipe until a
// forward takes it out: to a port, to a queue of the owner, or to nowhere. Nothing on that way
// allocates, throws or logs. Random choices come from the seed: the same packets in the same order
// take the same ways in every run.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "flow/pipe_types.h"
#include "wire/frame.h"

namespace rdmalab::flow {

// Where packets leave the pipeline. `frame` may be changed by the receiver. The calls happen within
// Pipeline::process, and may call `process` of this or another pipeline.
class PacketSink {
public:
    virtual ~PacketSink() = default;
    virtual void to_port(PortId port, wire::Frame& frame) = 0;
    virtual void to_queue(std::uint16_t queue, PortId ingress, const wire::Frame& frame) = 0;
};

struct PipelineOptions {
    std::uint64_t seed = 1;
    std::uint32_t counters_max = 4096;
    bool hash_root_allowed = false;
};

class Pipeline {
public:
    Pipeline(std::vector<PortInfo> ports, const PipelineOptions& options);
    ~Pipeline();

    // A packet comes in at `ingress`. False: nothing of it has left (it was dropped).
    bool process(PortId ingress, wire::Frame& frame, PacketSink& sink);
};

}  // namespace rdmalab::flow

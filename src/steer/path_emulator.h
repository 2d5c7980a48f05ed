// The receiver's side: tells the paths apart, marks each path's probe flow by its own probability,
// takes the private mark away and delivers by the destination address.
//
//   INGRESS_ROCE_CHECK --> INGRESS_PATH_DEMUX --> PATHk_IP_MATCH --> RANDOM_SAMPLE_Pk
//          | not RoCE        counts per path          | another flow    | miss    | hit
//          |                                          v                 v         v
//          |                                       INGRESS_CLEAR_PATH <-+  PATHk_CE_MARK (counts)
//          v                                          v                         v
//      RECEIVER_IP_DEMUX <----------------------------+-------------------------+
//          --> DELIVER_SFk
//
// The sampler and the mark are two pipes because a match on random bits and a rewrite do not go
// into one rule. A new percentage makes a new sampler pipe, points the IP match at it and removes
// the old one: packets meet one or the other.
#pragma once

#include <vector>

#include "steer/path_marker.h"
#include "steer/pipe_builder.h"
#include "steer/sampling.h"
#include "steer/steer_options.h"

namespace rdmalab::steer {

struct EmulatorOptions {
    std::vector<std::uint32_t> receiver_ips;  // per path, host byte order
    std::vector<double> percents;             // per path, of all traffic
    std::vector<flow::PipeId> receivers;      // per path: delivers to its receiver
    std::vector<flow::PortId> ports;          // per path, when paths are ports; else empty
    Compat compat = Compat::k3_4;
};

struct PathCounters {
    std::uint64_t packets = 0, bytes = 0, marked = 0;
};

class PathEmulator {
public:
    PathEmulator(flow::PipeControl& control, EmulatorOptions options);

    // Makes the pipes; the first one, for what comes from the wire. Look at the builder's error.
    flow::PipeId build(PipeBuilder& builder);
    // While traffic runs.
    Status set_percent(std::uint32_t path, double percent);
    double percent(std::uint32_t path) const { return options_.percents[path]; }
    std::uint32_t paths() const { return static_cast<std::uint32_t>(options_.percents.size()); }
    // All paths at one moment.
    Result<std::vector<PathCounters>> read();

private:
    struct Path {
        flow::PipeId mark;     // PATHk_CE_MARK
        flow::PipeId sampler;  // 0 when all or nothing is marked
        flow::PipeId ip_match;
        flow::EntryId ip_entry, demux_entry, mark_entry;
    };
    void build_path(PipeBuilder& builder, std::uint32_t path, flow::PipeId deliver);
    void build_demux(PipeBuilder& builder, flow::PipeId* made);
    // Where the path's probe flow goes for this percentage.
    flow::Forward sampling(PipeBuilder& builder, std::uint32_t path, double percent,
                           flow::PipeId* sampler);

    flow::PipeControl& control_;
    EmulatorOptions options_;
    PathMarker marker_;
    flow::PipeId clear_;
    std::vector<Path> paths_;
};

}  // namespace rdmalab::steer

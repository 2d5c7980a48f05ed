// What every steering pipeline has in front and behind: delivery to ports, the checks that let ARP
// pass and copy connection management packets to the program, and the root that sorts packets by
// the port they come from.
//
//   PORT_DEMUX (root) --> ARP_CHECK_x --> QP1_CHECK_x --> the pipeline of that side --> DELIVER_y
//                            | ARP            | QP 1
//                            v                v
//                     to the other side   QP1_FLOOD_x: goes on as before, and a copy to queue 0
//
// DELIVER_* exist because a pipe's miss may go to a pipe, not to a port.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "steer/pipe_builder.h"
#include "steer/steer_options.h"

namespace rdmalab::steer {

inline constexpr std::uint16_t kCmQueue = 0;

// What is copied to the program on its way through.
enum class Copying : std::uint8_t {
    kNothing,
    kManagement,  // packets to QP 1
    kAllRoce,     // releases that cannot match the BTH: every RoCE packet
};

class PortStages {
public:
    explicit PortStages(PipeBuilder& builder) : builder_(builder) {}

    // DELIVER_<name>: everything to this port. Made once for each port.
    flow::PipeId deliver(flow::PortId port, const std::string& name);
    // One pipe, or a flood to all of them, for broadcasts.
    flow::PipeId deliver_to_all(const std::vector<flow::PipeId>& targets, const std::string& name);
    // The checks of one side ("WIRE", "SF"): ARP goes to `arp`, all else on to `next`.
    flow::PipeId checks(const std::string& side, flow::PipeId arp, flow::PipeId next,
                        Copying copying);
    // One in 2^bits RoCE packets is copied to the program, all go on to `next`.
    flow::PipeId sample(const std::string& name, unsigned bits, flow::PipeId next);
    // The root, at last: from then on packets flow.
    void demux(const std::map<flow::PortId, flow::PipeId>& heads);

private:
    flow::PipeId copy_and_go_on(const std::string& name, flow::PipeId next);

    PipeBuilder& builder_;
    std::map<flow::PortId, flow::PipeId> deliver_;
};

}  // namespace rdmalab::steer

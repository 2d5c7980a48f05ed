// The whole of what a program puts into the switch domain that it owns, for its role, and the part
// of its loop that needs no clock: frames in, intervals out.
#pragma once

#include <memory>
#include <optional>

#include "steer/console.h"
#include "steer/egress_controller.h"
#include "steer/ingress_meter.h"
#include "steer/port_stages.h"

namespace rdmalab::steer {

struct SwitchOptions {
    CommonOptions common;
    Role role = Role::kEgress;
    std::string role_text = "egress";
    // Representors: of each path's receiver (ingress, both), or of the sender alone (egress).
    std::vector<std::string> functions;
    bool steers = false;  // shares follow reports
};

class SwitchProgram {
public:
    SwitchProgram(flow::PipeControl& control, SwitchOptions options, Console& console);

    // Makes all pipes, the root last, and says so. EINVAL: a representor, port or address that the
    // card does not have.
    Status start();
    // What the pipelines have copied to the program; often, so that none is lost.
    Status poll();
    Status end_interval(const Interval& interval);
    // The pipes go; the caller's domain forwards by default again when it is given back.
    void stop();
    std::vector<std::string> summary() const;

    // Of the running program. EINVAL with the reason.
    Status set_percent(std::uint32_t path, double percent);
    Status set_shares(const std::vector<std::uint32_t>& shares);

    EgressController* egress() const { return controller_.get(); }
    IngressMeter* ingress() const { return meter_.get(); }
    std::uint64_t frames_missed() const { return frames_missed_; }

private:
    Result<flow::PortId> find(const std::string& name) const;
    Status find_ports();
    Status check_addresses() const;
    Status check_receivers() const;
    Status check_destinations() const;
    std::vector<flow::PipeId> wire_targets(PortStages& stages);
    void build(PipeBuilder& builder);
    void build_ingress(PipeBuilder& builder, PortStages& stages);
    void build_egress(PipeBuilder& builder, PortStages& stages);
    flow::PipeId deliver_to_senders(PipeBuilder& builder, PortStages& stages);
    bool is_wire(flow::PortId port) const;
    void say_ready();

    flow::PipeControl& control_;
    SwitchOptions options_;
    Console& console_;
    std::vector<flow::PortId> functions_, wires_;
    std::unique_ptr<PathEmulator> emulator_;
    std::unique_ptr<EgressSteering> steering_;
    std::unique_ptr<IngressMeter> meter_;
    std::unique_ptr<EgressController> controller_;
    std::map<flow::PortId, flow::PipeId> heads_;  // of PORT_DEMUX
    // Where packets from the wire go behind the sender's CNP counters; where broadcasts go.
    flow::PipeId return_next_, broadcast_;
    std::uint64_t frames_missed_ = 0;
};

}  // namespace rdmalab::steer

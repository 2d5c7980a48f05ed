#include "steer/switch_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "steer/messages.h"

namespace rdmalab::steer {

using flow::PipeId;
using flow::PortId;

namespace {

constexpr unsigned kFeedbackSampleBits = 8;

}  // namespace

SwitchProgram::SwitchProgram(flow::PipeControl& control, SwitchOptions options, Console& console)
    : control_(control), options_(std::move(options)), console_(console) {}

Result<PortId> SwitchProgram::find(const std::string& name) const {
    if (const std::optional<PortId> port = control_.find_port(name)) return *port;
    std::string known;
    for (const flow::PortInfo& port : control_.ports()) {
        known += (known.empty() ? "" : ", ") + port.name;
    }
    return Error{
        EINVAL, fmt::format("the switch has no port or representor '{}'; it has: {}", name, known)};
}

bool SwitchProgram::is_wire(PortId port) const {
    return std::ranges::any_of(control_.ports(), [port](const flow::PortInfo& info) {
        return info.id == port && info.kind == flow::PortKind::kWire;
    });
}

Status SwitchProgram::find_ports() {
    for (const std::string& name : options_.functions) {
        const Result<PortId> port = find(name);
        if (!port.ok()) return port.error();
        functions_.push_back(*port);
    }
    if (!options_.common.has_ports()) {
        const Result<PortId> wire = find("wire");
        if (!wire.ok()) return wire.error();
        wires_.push_back(*wire);
        return {};
    }
    for (const PathOptions& path : options_.common.paths) {
        const Result<PortId> port = find(path.port);
        if (!port.ok()) return port.error();
        if (!is_wire(*port)) {
            return Error{EINVAL, fmt::format("'{}' is a function, not a port of the card that "
                                             "could be a next hop",
                                             path.port)};
        }
        wires_.push_back(*port);
    }
    return {};
}

namespace {

std::string list_of(const std::vector<Gid>& addresses) {
    std::string text;
    for (const Gid& address : addresses) text += (text.empty() ? "" : ", ") + address.to_string();
    return text;
}

}  // namespace

// A receiver's address must be that of its representor's function; a card that does not tell its
// addresses is believed.
Status SwitchProgram::check_receivers() const {
    for (std::size_t path = 0; path < functions_.size(); ++path) {
        const auto port =
            std::ranges::find(control_.ports(), functions_[path], &flow::PortInfo::id);
        const Gid wanted = Gid::from_ipv4(options_.common.paths[path].ip);
        if (port->addresses.empty() || std::ranges::count(port->addresses, wanted) > 0) continue;
        return Error{EINVAL,
                     fmt::format("--path{}-ip: {} is not an address of {}, which has {}", path,
                                 wanted.to_string(), port->name, list_of(port->addresses))};
    }
    return {};
}

// Where a path ends is known to those behind the wire only, but not on this side of it.
Status SwitchProgram::check_destinations() const {
    for (std::size_t path = 0; path < options_.common.paths.size(); ++path) {
        const Gid wanted = Gid::from_ipv4(options_.common.paths[path].ip);
        for (const flow::PortInfo& port : control_.ports()) {
            if (std::ranges::count(port.addresses, wanted) == 0) continue;
            return Error{EINVAL,
                         fmt::format("--path{}-ip: {} is an address of {}, on the sender's side; "
                                     "expected that of a receiver behind the wire",
                                     path, wanted.to_string(), port.name)};
        }
    }
    return {};
}

Status SwitchProgram::check_addresses() const {
    return options_.role == Role::kEgress ? check_destinations() : check_receivers();
}

Status SwitchProgram::start() {
    if (Status status = find_ports(); !status.ok()) return status;
    if (Status status = check_addresses(); !status.ok()) return status;
    PipeBuilder builder(control_);
    build(builder);
    if (Status status = builder.finish(); !status.ok()) return status;
    if (steering_) {
        controller_ = std::make_unique<EgressController>(*steering_, options_.common.receiver_ips(),
                                                         options_.steers, console_);
    }
    if (emulator_) meter_ = std::make_unique<IngressMeter>(*emulator_, console_);
    say_ready();
    return {};
}

void SwitchProgram::build(PipeBuilder& builder) {
    PortStages stages(builder);
    if (options_.role != Role::kEgress) build_ingress(builder, stages);
    if (options_.role != Role::kIngress) build_egress(builder, stages);
    stages.demux(heads_);
}

std::vector<PipeId> SwitchProgram::wire_targets(PortStages& stages) {
    std::vector<PipeId> targets;
    for (std::size_t i = 0; i < wires_.size(); ++i) {
        targets.push_back(stages.deliver(
            wires_[i], wires_.size() == 1 ? std::string("WIRE") : fmt::format("WIRE{}", i)));
    }
    return targets;
}

// The wire side of roles "ingress" and "both"; the function side of role "ingress".
void SwitchProgram::build_ingress(PipeBuilder& builder, PortStages& stages) {
    const CommonOptions& common = options_.common;
    EmulatorOptions emulator;
    emulator.compat = common.compat;
    emulator.receiver_ips = common.receiver_ips();
    for (std::size_t path = 0; path < common.paths.size(); ++path) {
        emulator.percents.push_back(common.paths[path].percent);
        emulator.receivers.push_back(stages.deliver(functions_[path], fmt::format("SF{}", path)));
    }
    if (common.has_ports()) emulator.ports = wires_;
    const PipeId everyone = stages.deliver_to_all(emulator.receivers, "ARP_FLOOD_TO_SFS");
    emulator_ = std::make_unique<PathEmulator>(control_, emulator);
    PipeId head = emulator_->build(builder);
    if (options_.role == Role::kBoth) {
        // The CNP counters of the sender's side stand in front; build_egress makes the rest.
        return_next_ = head;
        broadcast_ = everyone;
        return;
    }
    const Copying copying =
        has_native_random(common.compat) ? Copying::kManagement : Copying::kNothing;
    const PipeId wire = wire_targets(stages).front();
    const PipeId from_wire = stages.checks("WIRE", everyone, head, copying);
    const PipeId from_function = stages.checks("SF", wire, wire, copying);
    for (PortId port : wires_) heads_[port] = from_wire;
    for (PortId port : functions_) heads_[port] = from_function;
}

// What comes back to a sender, by its address when there are several.
PipeId SwitchProgram::deliver_to_senders(PipeBuilder& builder, PortStages& stages) {
    std::vector<PipeId> senders;
    for (std::size_t i = 0; i < functions_.size(); ++i) {
        senders.push_back(stages.deliver(functions_[i], fmt::format("SF{}", i)));
    }
    broadcast_ = stages.deliver_to_all(senders, "ARP_FLOOD_TO_SFS");
    if (senders.size() == 1) return senders.front();
    flow::PipeConfig demux;
    demux.name = "SENDER_IP_DEMUX";
    demux.match.l3_type = flow::L3Type::kIpv4;
    demux.match.values.set_all_ones(flow::Field::kIpv4Dst);
    demux.miss = flow::Forward::to_pipe(senders.front());
    const PipeId pipe = builder.pipe(demux);
    for (std::size_t i = 0; i < functions_.size(); ++i) {
        const auto port = std::ranges::find(control_.ports(), functions_[i], &flow::PortInfo::id);
        for (const Gid& address : port->addresses) {
            if (!address.is_ipv4()) continue;
            flow::BasicEntry entry;
            entry.match.set(flow::Field::kIpv4Dst, address.ipv4());
            entry.actions.forward = flow::Forward::to_pipe(senders[i]);
            builder.entry(pipe, entry);
        }
    }
    return pipe;
}

void SwitchProgram::build_egress(PipeBuilder& builder, PortStages& stages) {
    const CommonOptions& common = options_.common;
    const bool native = has_native_random(common.compat);
    EgressOptions egress;
    egress.paths = static_cast<std::uint32_t>(common.paths.size());
    egress.buckets = common.buckets;
    egress.compat = common.compat;
    egress.force_path = common.force_path;
    egress.wires = wire_targets(stages);
    steering_ = std::make_unique<EgressSteering>(control_, egress);
    const PipeId head = steering_->build(builder);
    if (options_.role == Role::kEgress) return_next_ = deliver_to_senders(builder, stages);
    // Releases that see CM packets also look at a few of the packets that come back: a program that
    // starts in the middle of traffic has missed the connections' beginnings.
    PipeId back = return_next_;
    if (native) back = stages.sample("EGRESS_FEEDBACK_SAMPLE", kFeedbackSampleBits, back);
    back = steering_->build_return(builder, back);
    const PipeId from_wire =
        stages.checks("WIRE", broadcast_, back, native ? Copying::kManagement : Copying::kAllRoce);
    const PipeId from_function = stages.checks("SF", egress.wires.front(), head,
                                               native ? Copying::kManagement : Copying::kNothing);
    for (PortId port : wires_) heads_[port] = from_wire;
    for (PortId port : functions_) heads_[port] = from_function;
}

void SwitchProgram::say_ready() {
    const CommonOptions& common = options_.common;
    std::vector<double> percents;
    for (const PathOptions& path : common.paths) percents.push_back(path.percent);
    if (steering_ && steering_->has_classifier()) {
        console_.info(messages::dispatch_ready());
        console_.info(has_native_random(common.compat)
                          ? messages::classifier_ready()
                          : messages::legacy_classifier_ready(common.buckets));
    }
    if (emulator_) {
        for (std::uint32_t path = 0; path < percents.size(); ++path) {
            console_.info(messages::sampling(path, percents[path],
                                             selected_percent(percents[path], emulator_->paths())));
        }
    }
    console_.info(messages::started(options_.role_text, percents));
}

Status SwitchProgram::poll() {
    std::vector<flow::CapturedFrame> frames;
    const Result<std::uint64_t> missed = control_.poll_frames(frames);
    if (!missed.ok()) return missed.error();
    frames_missed_ += *missed;
    if (!controller_) return {};
    for (const flow::CapturedFrame& frame : frames) {
        controller_->handle_frame(frame.bytes, is_wire(frame.port));
    }
    return {};
}

Status SwitchProgram::end_interval(const Interval& interval) {
    if (meter_) {
        if (Status status = meter_->end_interval(interval); !status.ok()) return status;
    }
    return controller_ ? controller_->end_interval(interval) : Status();
}

void SwitchProgram::stop() { (void)control_.flush_pipes(); }

std::vector<std::string> SwitchProgram::summary() const {
    std::vector<std::string> lines;
    if (meter_) {
        const IngressSnapshot& last = meter_->snapshot();
        for (std::size_t path = 0; path < last.counters.size(); ++path) {
            lines.push_back(fmt::format("summary: ingress path{}: {} packets, {} bytes, {} marked",
                                        path, last.counters[path].packets,
                                        last.counters[path].bytes, last.counters[path].marked));
        }
    }
    if (controller_) {
        const EgressSnapshot& last = controller_->snapshot();
        for (std::uint32_t path = 0; path < last.counters.packets.size(); ++path) {
            lines.push_back(fmt::format("summary: egress path{}: {} packets, share {}/{}", path,
                                        last.counters.packets[path], last.applied.share(path),
                                        last.applied.buckets()));
        }
        lines.push_back(
            fmt::format("summary: {} reports, {} bucket updates, {} failed, {} connections mapped",
                        last.reports_total, last.updates_total, last.failures_total,
                        controller_->connections().connections().size()));
    }
    return lines;
}

Status SwitchProgram::set_percent(std::uint32_t path, double percent) {
    if (!emulator_) return Error{EINVAL, "this program emulates no paths; role ingress does"};
    if (path >= emulator_->paths()) {
        return Error{EINVAL, fmt::format("there is no path {}; the last is {}", path,
                                         emulator_->paths() - 1)};
    }
    if (!(percent >= 0 && percent <= 100)) {
        return Error{EINVAL, fmt::format("{} is not within 0 and 100 percent", percent)};
    }
    Status status = emulator_->set_percent(path, percent);
    if (status.ok()) {
        console_.info(
            messages::sampling(path, percent, selected_percent(percent, emulator_->paths())));
    }
    return status;
}

Status SwitchProgram::set_shares(const std::vector<std::uint32_t>& shares) {
    if (!controller_ || !steering_->has_classifier()) {
        return Error{EINVAL, "this program spreads no packets over paths"};
    }
    const BucketSplit& applied = steering_->applied();
    if (shares.size() + 1 != applied.paths() && shares.size() != applied.paths()) {
        return Error{EINVAL, fmt::format("{} shares for {} paths", shares.size(), applied.paths())};
    }
    BucketSplit split(applied.paths(), applied.buckets());
    std::uint64_t sum = 0;
    for (std::uint32_t path = 0; path < shares.size(); ++path) {
        sum += shares[path];
        if (sum > applied.buckets()) break;
        split.set_end(path, static_cast<std::uint32_t>(sum));
    }
    if (sum > applied.buckets() || (shares.size() == applied.paths() && sum < applied.buckets())) {
        return Error{
            EINVAL, fmt::format("the shares are {} buckets, there are {}", sum, applied.buckets())};
    }
    const ApplyResult result = controller_->force_split(split);
    return result.error.code == 0 ? Status() : Status(result.error);
}

}  // namespace rdmalab::steer

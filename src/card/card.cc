#include "card/card.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_map>

#include "base/limits.h"
#include "card/address_book.h"
#include "card/cm_service.h"
#include "card/congestion.h"
#include "card/control.h"
#include "card/control_reply.h"
#include "card/doorbells.h"
#include "card/flow_service.h"
#include "card/function.h"
#include "card/icrc_check.h"
#include "card/rule_delivery.h"
#include "card/switchboard.h"
#include "card/verbs_values.h"
#include "wire/headers.h"
#include "wire/icrc.h"

namespace rdmalab::card {

namespace {

// Frames that one round moves. More make the rounds cheaper and their completions later.
constexpr std::size_t kRoundFramesMax = 128;

// EUI-64 made from a MAC (RFC 4291, appendix A), as a number.
std::uint64_t guid_of(const MacAddress& mac) {
    const auto& b = mac.bytes;
    const std::array<std::uint8_t, 8> eui{
        static_cast<std::uint8_t>(b[0] ^ 2), b[1], b[2], 0xff, 0xfe, b[3], b[4], b[5]};
    std::uint64_t guid = 0;
    for (const std::uint8_t byte : eui) guid = guid << 8 | byte;
    return guid;
}

template <std::size_t Size>
void copy_text(char (&to)[Size], const std::string& from) {
    const std::size_t length = std::min(from.size(), Size - 1);
    std::memcpy(to, from.data(), length);
}

// Management datagrams go to the connection manager, all else to the engine.
bool is_for_gsi(const wire::Frame& frame) {
    return wire::is_roce(frame) &&
           wire::header_at<wire::Bth>(frame, frame.bth_offset)->destination_qp ==
               wire::kGsiQpn.value;
}

}  // namespace

struct Card::Impl final : FrameSink {
    Impl(const CardConfig& given, HostPort& host_port, transport::MemoryPort& memory_port);

    void deliver(std::uint32_t function, wire::Frame& frame, Instant now) override;
    bool departs(std::uint32_t function, const wire::Frame& frame, Instant now) override;
    bool keeps_payload() const override;
    void deliver_plain(Function& receiver, wire::Frame& frame, Instant now);
    bool scan_doorbells();
    bool handle_timeouts(Instant now);
    bool has_work(const Function& function) const;
    bool poll_frame(Function& function, Instant now, wire::Frame& frame);
    bool move_frames(Instant now);
    void finish_round(Instant now);
    bool any_touched() const;
    void refresh_line_rates(Instant now);
    Context* find(OwnerId owner) const;
    ControlReply query_port(const Context& context) const;

    CardConfig config;
    HostPort& host;
    transport::MemoryPort& memory;
    AddressBook addresses;
    Control control;
    RuleDelivery rules;
    std::vector<transport::CopyFault> faults;  // of this round
    std::vector<std::unique_ptr<Function>> functions;
    Switchboard switchboard;
    FlowService flow;
    CmService cm;
    std::unique_ptr<Congestion> congestion;  // when the functions are there
    std::unordered_map<OwnerId, std::unique_ptr<Context>> contexts;
    std::vector<Context*> context_list;  // what the doorbell scan walks
    std::size_t turn = 0;                // the function whose frames come first
};

Card::Impl::Impl(const CardConfig& given, HostPort& host_port, transport::MemoryPort& memory_port)
    : config(given),
      host(host_port),
      memory(memory_port),
      addresses(config, host),
      control(host, addresses),
      rules(memory),
      switchboard(config, host, memory, *this, faults),
      flow(config, switchboard),
      cm(config, host) {
    for (std::uint32_t i = 0; i < config.functions.size(); ++i) {
        transport::EngineConfig engine;
        engine.index = static_cast<std::uint8_t>(i);
        engine.mac = config.functions[i].mac;
        engine.port_mtu = config.port_mtu;
        engine.seed = config.seed * 0x9e37'79b9'7f4a'7c15 + i;
        functions.push_back(std::make_unique<Function>(engine, host, memory));
        functions.back()->set_flow_steering(config.functions[i].flow_steering);
        const std::vector<Gid>& gids = addresses.gids(i);
        for (std::size_t k = 0; k < gids.size(); ++k) {
            functions.back()->engine().set_gid(static_cast<std::uint8_t>(k), gids[k]);
        }
    }
    congestion = std::make_unique<Congestion>(config, host, functions);
    refresh_line_rates({});
}

// Rate 1.0 of a port is what its cable lets through.
void Card::Impl::refresh_line_rates(Instant now) {
    for (std::uint32_t i = 0; i < functions.size(); ++i)
        congestion->set_line_rate(i, switchboard.rate_of(i), now);
}

Context* Card::Impl::find(OwnerId owner) const {
    const auto found = contexts.find(owner);
    return found == contexts.end() ? nullptr : found->second.get();
}

// --- A round

// In the order that man page ibv_create_flow(3) gives: rules of verbs, RDMA, the network interface,
// and what is left to default rules.
void Card::Impl::deliver(std::uint32_t function, wire::Frame& frame, Instant now) {
    Function& receiver = *functions[function];
    const ReceiveSteering& steering = receiver.steering();
    if (steering.sees_arrivals() && rules.arrive(receiver, frame, now)) return;
    if (!wire::is_roce(frame)) return deliver_plain(receiver, frame, now);
    receiver.touch();
    if (!icrc_is_right(frame)) return receiver.engine().count_icrc_error();
    if (is_for_gsi(frame)) {
        if (!wire::invariants_unchanged(frame)) return receiver.engine().count_icrc_error();
        if (congestion->handle_mad(function, frame, now)) return;
        return cm.handle_frame(function, frame, now);
    }
    if (steering.has_defaults() && !receiver.engine().is_claimed(frame) &&
        rules.fall_through(receiver, frame, now))
        return;
    receiver.engine().handle_frame(frame, now);
}

// A network interface gets what is addressed to it or to a group. Which groups it has joined is not
// known here, so default rules get theirs as well; while there are none, the interface gets all.
void Card::Impl::deliver_plain(Function& receiver, wire::Frame& frame, Instant now) {
    const MacAddress to = wire::destination_mac(frame);
    const bool has_defaults = receiver.steering().has_defaults();
    const bool is_group = to.is_multicast();
    bool is_taken = false;
    if (!has_defaults || is_group || to == receiver.engine().config().mac)
        is_taken = host.deliver_to_netdev(receiver.index(), frame);
    if (is_taken && !(is_group && has_defaults)) return;
    receiver.touch();
    if (has_defaults) is_taken |= rules.fall_through(receiver, frame, now);
    if (!is_taken) receiver.engine().handle_frame(frame, now);  // counts it
}

bool Card::Impl::departs(std::uint32_t function, const wire::Frame& frame, Instant now) {
    return !rules.depart(*functions[function], frame, now);
}

bool Card::Impl::keeps_payload() const {
    return std::any_of(functions.begin(), functions.end(),
                       [](const auto& function) { return function->steering().rule_count() != 0; });
}

bool Card::Impl::scan_doorbells() {
    bool any = false;
    for (Context* context : context_list) {
        any |= drain_doorbells(context->doorbells(), [context](std::uint32_t slot) {
            if (slot >= context->slots.size() || context->slots[slot] == nullptr) return;
            context->function->touch();
            context->function->engine().handle_doorbell(context->slots[slot]->qpn);
        });
    }
    return any;
}

bool Card::Impl::handle_timeouts(Instant now) {
    bool any = false;
    for (const auto& function : functions) {
        if (function->next_deadline() > now) continue;
        function->touch();
        function->handle_timeout(now);
        any = true;
    }
    if (cm.next_deadline() <= now) {
        cm.handle_timeout(now);
        any = true;
    }
    return any;
}

// While its uplink is blocked a function has nothing that could be done.
bool Card::Impl::has_work(const Function& function) const {
    if (switchboard.is_blocked(function.index())) return false;
    return function.engine().has_work() || cm.has_work(function.index()) ||
           congestion->has_frames(function.index());
}

bool Card::Impl::poll_frame(Function& function, Instant now, wire::Frame& frame) {
    if (cm.poll_frame(function.index(), frame)) {
        congestion->note_connection(function.index(), frame);
        return true;
    }
    return congestion->poll_frame(function.index(), frame) ||
           function.engine().poll_frame(now, frame);
}

// Every engine in turn, so that answers overtake long messages of others.
bool Card::Impl::move_frames(Instant now) {
    const std::size_t share = std::max<std::size_t>(kRoundFramesMax / functions.size(), 8);
    std::size_t moved = 0;
    bool progress = true;
    wire::Frame frame;
    while (progress && moved < kRoundFramesMax) {
        progress = false;
        for (std::size_t k = 0; k < functions.size() && moved < kRoundFramesMax; ++k) {
            Function& function = *functions[(turn + k) % functions.size()];
            if (!has_work(function)) continue;
            function.touch();
            for (std::size_t n = 0; n < share && poll_frame(function, now, frame); ++n) {
                switchboard.handle_frame(function.index(), frame, now);
                ++moved;
                progress = true;
            }
        }
    }
    turn = (turn + 1) % functions.size();
    return moved > 0;
}

void Card::Impl::finish_round(Instant now) {
    memory.flush(faults);
    if (switchboard.must_send()) switchboard.send_uplinks();
    if (switchboard.must_reclaim()) switchboard.reclaim();
    // A fault may concern two engines: the one that placed the bytes and the one that sent them.
    if (!faults.empty()) {
        for (const auto& function : functions) function->touch();
    }
    for (const auto& function : functions) {
        if (function->is_touched()) function->commit(faults, now);
    }
    faults.clear();
}

bool Card::Impl::any_touched() const {
    return std::any_of(functions.begin(), functions.end(), [this](const auto& function) {
        return function->is_touched() || has_work(*function);
    });
}

ControlReply Card::Impl::query_port(const Context& context) const {
    abi::QueryPortReply reply{};
    const std::uint32_t function = context.function->index();
    // Functions of one e-switch reach each other without any cable; only an uplink can be down.
    reply.state = switchboard.is_up(function) ? kIbvPortActive : kIbvPortDown;
    reply.mtu_max = reply.mtu_active = config.port_mtu;
    reply.gid_count = static_cast<std::uint32_t>(addresses.gids(function).size());
    reply.rate_bps = switchboard.rate_of(function).bits_per_second;
    return success(reply);
}

// --- Card

Card::Card(const CardConfig& config, HostPort& host, transport::MemoryPort& memory)
    : impl_(std::make_unique<Impl>(config, host, memory)) {}
Card::~Card() = default;

const CardConfig& Card::config() const { return impl_->config; }

ControlReply Card::open_context(OwnerId owner, SpaceId space, std::uint32_t device) {
    if (device >= impl_->functions.size()) return {ENODEV, "no such device", {}};
    if (impl_->contexts.size() >= limits::kContextMax) return {ENOMEM, "too many contexts", {}};
    if (impl_->contexts.contains(owner)) return {EINVAL, "the context is open already", {}};
    auto region = impl_->host.allocate_region(owner, round_up(sizeof(abi::DoorbellArea), 4096));
    if (!region) return {region.error().code, region.error().text, {}};

    auto context = std::make_unique<Context>();
    context->owner = owner;
    context->space = space;
    context->speaker = space;
    context->function = impl_->functions[device].get();
    context->doorbell_region = *region;
    impl_->context_list.push_back(context.get());
    impl_->contexts.emplace(owner, std::move(context));
    return describe_context(owner);
}

ControlReply Card::describe_context(OwnerId owner) const {
    const Context* context = impl_->find(owner);
    if (context == nullptr) return {EINVAL, "no context is open", {}};
    const std::uint32_t device = context->function->index();
    return success(abi::OpenContextReply{.doorbell = context->doorbell_region.region,
                                         .node_guid = guid_of(config().functions[device].mac),
                                         .qp_max = limits::kQpMax,
                                         .wqe_max = limits::kWqeMax,
                                         .sge_max = limits::kSgeMax,
                                         .cq_max = limits::kCqMax,
                                         .cqe_max = limits::kCqeMax,
                                         .mr_max = limits::kMrMax,
                                         .pd_max = limits::kPdMax,
                                         .srq_max = limits::kSrqMax,
                                         .srq_wr_max = limits::kWqeMax,
                                         .ah_max = limits::kAhMax,
                                         .reads_max = limits::kReadsMax,
                                         .inline_max = limits::kInlineMax,
                                         .small_payload_max = limits::kSmallPayloadMax,
                                         .mcast_group_max = limits::kMcastGroupMax,
                                         .mcast_qp_max = limits::kMcastQpMax,
                                         .gid_max = limits::kGidMax,
                                         .message_max = limits::kMessageMax,
                                         .mw_max = limits::kMrMax,
                                         .xrcd_max = limits::kXrcdMax,
                                         .dm_max = limits::kDmMax,
                                         .device = device,
                                         .features = context->function->has_flow_steering()
                                                         ? std::uint32_t{abi::kFlowSteering}
                                                         : 0});
}

void Card::close_context(OwnerId owner) {
    Context* context = impl_->find(owner);
    if (context == nullptr) return;
    context->function->touch();
    impl_->control.release(*context);
    std::erase(impl_->context_list, context);
    impl_->contexts.erase(owner);
}

ControlReply Card::handle_request(OwnerId owner, abi::Op op, ByteView body, Instant now,
                                  SpaceId speaker) {
    Context* context = impl_->find(owner);
    if (context == nullptr) return {EINVAL, "no context is open", {}};
    if (op == abi::Op::kQueryPort) {
        if (!body.empty()) return {EINVAL, "the request has a body, expected none", {}};
        return impl_->query_port(*context);
    }
    context->speaker = speaker == SpaceId{} ? context->space : speaker;
    ControlReply reply = impl_->control.handle(*context, op, body, now);
    context->function->publish(now);
    context->function->touch();
    return reply;
}

std::vector<abi::DeviceInfo> Card::list_devices() const {
    std::vector<abi::DeviceInfo> devices;
    for (const FunctionConfig& function : config().functions) {
        abi::DeviceInfo info{};
        info.index = static_cast<std::uint32_t>(devices.size());
        info.uverbs_index = info.index;
        copy_text(info.name, function.device);
        copy_text(info.pci, function.pci);
        const auto pf = std::find_if(
            config().functions.begin(), config().functions.end(),
            [&](const FunctionConfig& other) { return other.device == function.pf_device; });
        if (function.pci.empty() && pf != config().functions.end()) copy_text(info.pci, pf->pci);
        info.node_guid = guid_of(function.mac);
        std::memcpy(info.mac, function.mac.bytes.data(), sizeof info.mac);
        devices.push_back(info);
    }
    return devices;
}

ControlReply Card::open_cm_session(CmSessionId session, std::uint64_t visible, ByteView body) {
    return impl_->cm.open_session(session, visible, body);
}
void Card::close_cm_session(CmSessionId session, Instant now) {
    impl_->cm.close_session(session, now);
}
ControlReply Card::handle_cm_request(CmSessionId session, abi::CmOp op, ByteView body,
                                     Instant now) {
    return impl_->cm.handle_request(session, op, body, now);
}

ControlReply Card::handle_flow_request(FlowSessionId session, const std::string& program,
                                       ByteView body) {
    return impl_->flow.handle_request(session, program, body);
}
void Card::close_flow_session(FlowSessionId session) { impl_->flow.close_session(session); }
std::vector<FlowDomainFacts> Card::flow_domains() const { return impl_->flow.domains(); }

Result<FlowDomainFacts> Card::find_flow_domain(const std::string& pf) const {
    const auto domain = impl_->flow.find_domain(pf);
    if (!domain.ok()) return domain.error();
    return impl_->flow.domains()[*domain];
}

Status Card::trace_flow(const std::string& pf, const flow::Match& filter,
                        const std::optional<flow::FieldValues>& mask, std::uint32_t packets) {
    const auto domain = impl_->flow.find_domain(pf);
    if (!domain.ok()) return domain.error();
    flow::Pipeline* const pipeline = impl_->switchboard.pipeline(*domain);
    if (pipeline == nullptr) {
        return Error{EINVAL, "no program owns the switch domain of " +
                                 impl_->switchboard.pf_of(*domain) + ": there are no pipes"};
    }
    return pipeline->tracer().start(filter, mask, packets);
}

bool Card::poll(Instant now) {
    Impl& card = *impl_;
    if (card.functions.empty()) return false;
    bool active = card.scan_doorbells();
    active |= card.switchboard.deliver_due(now, kRoundFramesMax) > 0;
    active |= card.handle_timeouts(now);
    active |= card.congestion->poll(now);
    active |= card.move_frames(now);
    if (active || card.any_touched() || card.switchboard.must_reclaim() ||
        card.switchboard.must_send()) {
        card.finish_round(now);
    }
    return card.any_touched() || card.switchboard.next_deadline() <= now;
}

Instant Card::next_deadline() const {
    Instant deadline = std::min({impl_->switchboard.next_deadline(), impl_->cm.next_deadline(),
                                 impl_->congestion->next_deadline()});
    for (const auto& function : impl_->functions) {
        deadline = std::min(deadline, function->next_deadline());
    }
    return deadline;
}

bool Card::doorbell_pending() const {
    return std::any_of(impl_->context_list.begin(), impl_->context_list.end(),
                       [](const Context* context) { return any_doorbell(context->doorbells()); }) ||
           impl_->congestion->has_answers() || impl_->any_touched();
}

bool Card::handle_netdev_frame(std::uint32_t function, ByteView bytes, Instant now) {
    return impl_->switchboard.handle_bytes(function, bytes, now);
}

void Card::handle_uplink(std::uint32_t port, ByteView bytes, std::uint32_t segment_length,
                         Instant now) {
    impl_->switchboard.handle_uplink(port, bytes, segment_length, now);
}
void Card::resume_uplink(std::uint32_t port) { impl_->switchboard.resume_uplink(port); }
void Card::forbid_bursts(std::uint32_t port) { impl_->switchboard.forbid_bursts(port); }

void Card::set_uplink_state(std::uint32_t port, bool is_up) {
    impl_->switchboard.set_uplink_state(port, is_up);
    const std::uint32_t event = event_to_verbs(is_up ? transport::AsyncEventType::kPortActive
                                                     : transport::AsyncEventType::kPortError);
    const std::string& pf = config().ports[port].pf_device;
    for (const Context* context : impl_->context_list) {
        if (config().functions[context->function->index()].pf_device != pf) continue;
        impl_->host.notify_async(context->owner, {event, 1, 0, 0});
    }
}

std::size_t Card::context_count() const { return impl_->context_list.size(); }

// --- Operation and facts

Status Card::set_impairments(const std::string& cable, std::optional<bool> a_to_b,
                             const Impairments& impairments, Instant now) {
    const Status status = impl_->switchboard.set_impairments(cable, a_to_b, impairments);
    impl_->refresh_line_rates(now);
    return status;
}

Status Card::attach_congestion(CongestionProcessId id, std::uint32_t device, std::uint32_t workers,
                               bool report_only, std::byte* memory, Instant now) {
    return impl_->congestion->attach(id, device, workers, report_only, memory, now);
}
void Card::detach_congestion(CongestionProcessId id, Instant now) {
    impl_->congestion->detach(id, now);
}
const pcc::Settings& Card::congestion_settings() const { return impl_->congestion->settings(); }
void Card::set_congestion_settings(const pcc::Settings& settings, Instant now) {
    impl_->congestion->set_settings(settings, now);
    impl_->refresh_line_rates(now);
}
std::vector<CongestionFacts> Card::congestion_facts() const { return impl_->congestion->facts(); }

Result<TapPoint> Card::find_tap(const std::string& name) const {
    for (std::uint32_t i = 0; i < config().ports.size(); ++i) {
        if (config().ports[i].name == name) return TapPoint{true, i};
    }
    for (std::uint32_t i = 0; i < config().functions.size(); ++i) {
        const FunctionConfig& function = config().functions[i];
        if (!name.empty() && (function.representor == name || function.device == name)) {
            return TapPoint{false, i};
        }
    }
    return Error{ENOENT, "no port, representor or device named \"" + name + "\""};
}

void Card::set_tap(TapPoint point, bool on) { impl_->switchboard.set_tap(point, on); }

const transport::Engine& Card::engine(std::uint32_t function) const {
    return impl_->functions[function]->engine();
}
std::size_t Card::flow_rule_count(std::uint32_t function) const {
    return impl_->functions[function]->steering().rule_count();
}
const transport::CmCounters& Card::cm_counters(std::uint32_t function) const {
    return impl_->cm.counters(function);
}
CmCounts Card::cm_counts() const { return impl_->cm.counts(); }
PortCounters Card::port_counters(std::uint32_t port) const {
    return impl_->switchboard.port_counters(port);
}
PortCounters Card::vport_counters(std::uint32_t function) const {
    return impl_->switchboard.vport_counters(function);
}
Rate Card::rate_of(std::uint32_t function) const { return impl_->switchboard.rate_of(function); }
CableCounters Card::cable_counters(std::uint32_t cable, bool a_to_b) const {
    return impl_->switchboard.direction(cable, a_to_b).counters();
}
Impairments Card::impairments(std::uint32_t cable, bool a_to_b) const {
    return impl_->switchboard.direction(cable, a_to_b).impairments();
}

}  // namespace rdmalab::card

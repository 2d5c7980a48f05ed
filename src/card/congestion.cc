#include "card/congestion.h"

#include <algorithm>
#include <cerrno>

namespace rdmalab::card {

using pcc::FlowId;
using pcc::ProcessState;

namespace {

pcc::FlowId flow_of(std::uint32_t function, Qpn qpn) {
    return pcc::make_flow_id(function, qpn.value);
}

pcc::NackKind kind_of(transport::NakKind kind) {
    return kind == transport::NakKind::kRnr ? pcc::NackKind::kRnr : pcc::NackKind::kOutOfSequence;
}

}  // namespace

struct Congestion::Process {
    CongestionProcessId id;
    std::uint32_t workers = 0;
    bool report_only = false;
    std::byte* memory = nullptr;
    ProcessState state = ProcessState::kStandby;
    pcc::PccPage& page() const { return *reinterpret_cast<pcc::PccPage*>(memory); }
};

// What belongs to one PF: its functions, its reaction point, the processes that want it.
struct Congestion::Domain final : pcc::ReactionPort {
    Domain(Congestion& owner, std::string name, std::uint32_t device_index, std::uint64_t seed,
           std::uint8_t port_number)
        : congestion(owner),
          pf(std::move(name)),
          device(device_index),
          reaction(owner.settings_, seed, port_number, *this) {}

    void watch(FlowId flow, bool on) override {
        congestion.functions_[pcc::unit_of(flow)]->engine().watch_qp(Qpn{pcc::number_of(flow)}, on);
    }
    void watch_all(bool on) override {
        for (const std::uint32_t function : functions)
            congestion.functions_[function]->engine().watch_all(on);
    }
    bool send_probe(FlowId flow, Instant now) override { return congestion.send_probe(flow, now); }
    void wake(std::atomic<std::uint32_t>& word) override { congestion.host_.wake(word); }

    Congestion& congestion;
    std::string pf;
    std::uint32_t device;  // function index of the PF
    std::vector<std::uint32_t> functions;
    pcc::ReactionPoint reaction;
    std::vector<std::unique_ptr<Process>> processes;  // in the order of their coming
    std::unique_ptr<pcc::EventLink> link;             // of the Active one
};

// What a function's engine reports to.
struct Congestion::Point final : transport::CongestionPort {
    Point(const pcc::Settings& given, Domain& of, std::uint32_t index)
        : settings(given), domain(of), function(index) {}

    bool owes_notification(transport::FlowPoint flow, Instant now) override {
        return notification.handle_mark(flow.slot, settings.cnp_interval, now);
    }
    void handle_cnp(transport::FlowPoint flow, Instant now) override {
        domain.reaction.handle_cnp(flow_of(function, flow.qpn), now);
    }
    Instant handle_sent(const transport::SentPacket& packet, Instant now) override {
        return domain.reaction.handle_sent({flow_of(function, packet.flow.qpn), packet.psn.value(),
                                            packet.bytes, packet.is_requester, packet.asks_ack},
                                           now);
    }
    Instant may_send(transport::FlowPoint flow, Instant now) override {
        return domain.reaction.may_send(flow_of(function, flow.qpn), now);
    }
    void handle_ack(transport::FlowPoint flow, Psn end, Instant now) override {
        domain.reaction.handle_ack(flow_of(function, flow.qpn), (end - 1).value(), now);
    }
    void handle_nak(transport::FlowPoint flow, transport::NakKind kind, Psn psn,
                    Instant now) override {
        domain.reaction.handle_nack(flow_of(function, flow.qpn), kind_of(kind), psn.value(), now);
    }
    void handle_gone(transport::FlowPoint flow) override {
        notification.forget(flow.slot);
        domain.reaction.forget(flow_of(function, flow.qpn));
    }

    const pcc::Settings& settings;
    Domain& domain;
    std::uint32_t function;
    pcc::NotificationPoint notification;
};

Congestion::Congestion(const CardConfig& config, HostPort& host, Functions& functions)
    : host_(host),
      functions_(functions),
      settings_(config.congestion),
      outboxes_(functions.size()),
      mads_(kMadsValid) {
    for (std::uint32_t i = 0; i < functions.size(); ++i) {
        const std::string& pf = config.functions[i].pf_device;
        auto found = std::find_if(domains_.begin(), domains_.end(),
                                  [&](const auto& domain) { return domain->pf == pf; });
        if (found == domains_.end()) {
            const auto index = [&](const auto& list, auto&& is_it) {
                return std::find_if(list.begin(), list.end(), is_it) - list.begin();
            };
            const auto device = index(config.functions, [&](const FunctionConfig& f) {
                return f.kind == FunctionKind::kPf && f.device == pf;
            });
            const auto port =
                index(config.ports, [&](const PortConfig& p) { return p.pf_device == pf; });
            domains_.push_back(
                std::make_unique<Domain>(*this, pf, static_cast<std::uint32_t>(device),
                                         config.seed * 0x9e37'79b9'7f4a'7c15 + domains_.size() + 1,
                                         static_cast<std::uint8_t>(port % 4)));
            found = std::prev(domains_.end());
        }
        (*found)->functions.push_back(i);
        domain_by_function_.push_back(found->get());
        points_.push_back(std::make_unique<Point>(settings_, **found, i));
        functions[i]->engine().set_congestion_port(points_.back().get());
    }
}

Congestion::~Congestion() {
    for (const auto& function : functions_) function->engine().set_congestion_port(nullptr);
}

// --- Probes

bool Congestion::send_probe(FlowId flow, Instant now) {
    const std::uint32_t function = pcc::unit_of(flow);
    const wire::LowerTemplate* const lower =
        functions_[function]->engine().probe_path(Qpn{pcc::number_of(flow)});
    if (lower == nullptr) return false;
    Outgoing& outgoing = outboxes_[function].emplace_back();
    outgoing.lower = *lower;
    wire::emit_probe({.flow = flow, .request_sent_ns = static_cast<std::uint64_t>(now.ns)},
                     outgoing.mad);
    return true;
}

bool Congestion::handle_mad(std::uint32_t function, const wire::Frame& frame, Instant now) {
    wire::MadBytes bytes;
    if (!wire::gather_mad(frame, bytes)) return false;
    const auto probe = wire::parse_probe(bytes);
    if (!probe) return false;
    if (!probe->is_response) {
        answer_probe(function, frame, *probe, now);
    } else if (pcc::unit_of(probe->flow) == function) {
        domain_of(function)->reaction.handle_rtt(
            probe->flow,
            {probe->request_sent_ns, probe->request_received_ns, probe->response_sent_ns}, now);
    }
    return true;
}

void Congestion::answer_probe(std::uint32_t function, const wire::Frame& frame, wire::CcProbe probe,
                              Instant now) {
    constexpr std::size_t kUnansweredMax = 4096;
    if (outboxes_[function].size() >= kUnansweredMax) return;
    wire::Path path;
    path.source_mac = functions_[function]->engine().config().mac;
    path.destination_mac = wire::source_mac(frame);
    path.source = wire::destination_gid(frame);
    path.destination = wire::source_gid(frame);
    path.traffic_class = wire::traffic_class(frame) & 0xfc;
    path.source_port = wire::header_at<wire::UdpHeader>(frame, frame.l4_offset)->source_port;
    probe.is_response = true;
    probe.request_received_ns = probe.response_sent_ns = static_cast<std::uint64_t>(now.ns);
    Outgoing& outgoing = outboxes_[function].emplace_back();
    outgoing.lower = wire::make_lower_template(path);
    wire::emit_probe(probe, outgoing.mad);
}

bool Congestion::poll_frame(std::uint32_t function, wire::Frame& out) {
    auto& outbox = outboxes_[function];
    if (outbox.empty()) return false;
    wire::MadBytes& mad = mads_[mad_index_++ % kMadsValid];
    mad = outbox.front().mad;
    wire::start_mad_frame(outbox.front().lower, mad, out);
    outbox.pop_front();
    return true;
}

void Congestion::note_connection(std::uint32_t function, const wire::Frame& frame) {
    wire::MadBytes bytes;
    wire::CmMessage message;
    if (!wire::gather_mad(frame, bytes)) return;
    if (wire::parse_cm(bytes, message) != wire::MadError::kNone) return;
    Qpn qpn{};
    if (const auto* request = std::get_if<wire::ReqMessage>(&message)) qpn = request->qpn;
    if (const auto* reply = std::get_if<wire::RepMessage>(&message)) qpn = reply->qpn;
    // Programs without a QP of their own on this card name any number.
    if (qpn.value > 1 && functions_[function]->engine().has_qp(qpn))
        domain_of(function)->reaction.set_negotiated(flow_of(function, qpn));
}

// --- Rounds

bool Congestion::poll(Instant now) {
    bool active = false;
    for (const auto& domain : domains_) {
        if (!domain->reaction.is_attached()) continue;
        active |= domain->reaction.poll(now);
        const pcc::ErrorReason fault = domain->reaction.fault();
        if (fault != pcc::ErrorReason::kNone) give_up(*domain, fault, now);
    }
    return active;
}

Instant Congestion::next_deadline() const {
    Instant deadline = Instant::never();
    for (const auto& domain : domains_)
        deadline = std::min(deadline, domain->reaction.next_deadline());
    return deadline;
}

bool Congestion::has_answers() const {
    return std::any_of(domains_.begin(), domains_.end(),
                       [](const auto& domain) { return domain->reaction.has_answer(); });
}

// --- Processes

Congestion::Process* Congestion::find(CongestionProcessId id) const {
    for (const auto& domain : domains_)
        for (const auto& process : domain->processes)
            if (process->id == id) return process.get();
    return nullptr;
}

void Congestion::set_state(Process& process, ProcessState state) {
    process.state = state;
    process.page().state.store(static_cast<std::uint32_t>(state), std::memory_order_release);
    host_.wake(process.page().state);
}

Status Congestion::attach(CongestionProcessId id, std::uint32_t device, std::uint32_t workers,
                          bool report_only, std::byte* memory, Instant now) {
    const auto found = std::find_if(domains_.begin(), domains_.end(),
                                    [&](const auto& domain) { return domain->device == device; });
    if (found == domains_.end()) {
        return Error{EOPNOTSUPP,
                     "congestion control is programmed by the PF: expected the device "
                     "of a PF"};
    }
    auto process = std::make_unique<Process>(
        Process{id, workers, report_only, memory, ProcessState::kStandby});
    pcc::format_shared(memory, workers);
    set_state(*process, ProcessState::kStandby);
    (*found)->processes.push_back(std::move(process));
    elect(**found, now);
    return {};
}

// The first that is not out of order becomes the Active one.
void Congestion::elect(Domain& domain, Instant now) {
    const ProcessState idle =
        settings_.allows_algorithms ? ProcessState::kStandby : ProcessState::kDeactivated;
    for (const auto& process : domain.processes) {
        if (process->state == ProcessState::kError || process->state == ProcessState::kActive)
            continue;
        if (domain.link == nullptr && settings_.allows_algorithms) {
            domain.link = std::make_unique<pcc::EventLink>(process->memory, process->workers);
            domain.reaction.attach(*domain.link, process->report_only, now);
            set_state(*process, ProcessState::kActive);
        } else if (process->state != idle) {
            set_state(*process, idle);
        }
    }
}

void Congestion::detach(CongestionProcessId id, Instant now) {
    for (const auto& domain : domains_) {
        const auto found = std::find_if(domain->processes.begin(), domain->processes.end(),
                                        [id](const auto& process) { return process->id == id; });
        if (found == domain->processes.end()) continue;
        if ((*found)->state == ProcessState::kActive) {
            domain->reaction.detach(now);
            domain->link.reset();
        }
        domain->processes.erase(found);
        return elect(*domain, now);
    }
}

void Congestion::give_up(Domain& domain, pcc::ErrorReason reason, Instant now) {
    domain.reaction.detach(now);
    domain.link.reset();
    for (const auto& process : domain.processes) {
        if (process->state != ProcessState::kActive) continue;
        process->page().error.store(static_cast<std::uint32_t>(reason), std::memory_order_release);
        set_state(*process, ProcessState::kError);
        host_.congestion_process_failed(process->id, reason);
    }
    elect(domain, now);
}

// --- Operation

void Congestion::set_settings(const pcc::Settings& settings, Instant now) {
    settings_ = settings;
    for (const auto& domain : domains_) {
        if (!settings_.allows_algorithms && domain->link != nullptr) {
            domain->reaction.detach(now);
            domain->link.reset();
            for (const auto& process : domain->processes)
                if (process->state == ProcessState::kActive)
                    set_state(*process, ProcessState::kDeactivated);
        }
        domain->reaction.settings_changed(now);
        elect(*domain, now);
    }
}

void Congestion::set_line_rate(std::uint32_t device, Rate rate, Instant now) {
    for (const auto& domain : domains_) {
        if (domain->device != device) continue;
        domain->reaction.set_line_rate(
            rate.is_unlimited() ? settings_.line_rate_bps : rate.bits_per_second, now);
    }
}

std::vector<CongestionFacts> Congestion::facts() const {
    std::vector<CongestionFacts> all;
    for (const auto& domain : domains_) {
        CongestionFacts& facts = all.emplace_back();
        facts.pf = domain->pf;
        facts.line_rate_bps = domain->reaction.line_rate();
        facts.counters = domain->reaction.counters();
        facts.flows = domain->reaction.flows();
        for (const auto& process : domain->processes)
            facts.processes.push_back(
                {process->id, process->state, process->workers, process->report_only});
    }
    return all;
}

}  // namespace rdmalab::card

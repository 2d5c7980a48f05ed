#include "pcc/reaction_point.h"

#include <algorithm>

namespace rdmalab::pcc {
namespace {

// How often a process is asked whether it makes progress.
constexpr Duration kStuckLook = milliseconds(50);
// Answers that one round takes.
constexpr int kAnswersMax = 1024;

std::uint32_t clock_of(Instant now) { return static_cast<std::uint32_t>(now.ns); }

}  // namespace

ReactionPoint::ReactionPoint(const Settings& settings, std::uint64_t seed, std::uint8_t port_number,
                             ReactionPort& port)
    : settings_(settings),
      port_(port),
      port_number_(port_number),
      prng_(seed),
      line_bps_(settings.line_rate_bps) {}

// --- Rates

void ReactionPoint::set_rate(Flow& flow, std::uint32_t rate, Instant now) {
    flow.rate = rate;
    flow.pacer.set_rate(is_enforced(flow) ? rate : kRateMax, line_bps_, now);
}

// The rate of the built-in algorithm has been computed. A flow without a limit costs nothing: it is
// not watched.
void ReactionPoint::follow_internal(Flow& flow, Instant now) {
    const bool was_limited = flow.rate < kRateMax;
    set_rate(flow, flow.dcqcn.current, now);
    const bool is_limited = flow.rate < kRateMax;
    if (is_limited != was_limited && link_ == nullptr) port_.watch(flow.id, is_limited);
}

void ReactionPoint::set_line_rate(std::uint64_t bps, Instant now) {
    if (bps == line_bps_ || bps == 0) return;
    line_bps_ = bps;
    if (link_ != nullptr) link_->page().line_rate_bps.store(bps, std::memory_order_relaxed);
    settings_changed(now);
}

void ReactionPoint::settings_changed(Instant now) {
    flows_.for_each([&](Flow& flow) { set_rate(flow, flow.rate, now); });
}

// --- Facts

void ReactionPoint::handle_cnp(FlowId id, Instant now) {
    Flow& flow = flows_.find_or_add(id);
    ++flow.cnps;
    ++counter(EventType::kCnp).handled;
    if (is_served(flow)) {
        add(flow, flow.cnp, flow.tx.sn, now);
        if (flow.cnp.count >= settings_.cnps_per_event)
            end_feedback(flow, flow.cnp, EventType::kCnp, now);
        return;
    }
    dcqcn_advance(&flow.dcqcn, &settings_.dcqcn, line_mbps(), clock_of(now));
    dcqcn_cnp(&flow.dcqcn, &settings_.dcqcn, line_mbps(), clock_of(now));
    follow_internal(flow, now);
}

Instant ReactionPoint::handle_sent(const SentFacts& sent, Instant now) {
    Flow& flow = flows_.find_or_add(sent.flow);
    ++counter(EventType::kTx).handled;
    if (is_served(flow)) {
        add(flow, flow.tx, sent.sn, now);
        flow.tx.bytes += sent.bytes;
        if (sent.asks_ack) flow.tx.flags |= kTxAckExpected;
        if (sent.is_requester) flow.tx.flags |= kTxIsRequester;
        if (flow.tx.count >= settings_.tx_packets_per_event) end_tx(flow, now);
    } else if (flow.dcqcn.is_limited) {
        dcqcn_advance(&flow.dcqcn, &settings_.dcqcn, line_mbps(), clock_of(now));
        dcqcn_sent(&flow.dcqcn, &settings_.dcqcn, line_mbps(), sent.bytes);
        follow_internal(flow, now);
    }
    if (flow.pacer.is_unlimited()) return {};
    ++counters_.packets_paced;
    flow.pacer.charge(sent.bytes, now);
    return flow.pacer.ready_at(now);
}

Instant ReactionPoint::may_send(FlowId id, Instant now) {
    Flow* const flow = flows_.find(id);
    if (flow == nullptr) return {};
    if (!is_served(*flow) && flow->dcqcn.is_limited) {
        dcqcn_advance(&flow->dcqcn, &settings_.dcqcn, line_mbps(), clock_of(now));
        follow_internal(*flow, now);
    }
    return flow->pacer.ready_after_wait(now);
}

void ReactionPoint::handle_ack(FlowId id, std::uint32_t sn, Instant now) {
    Flow& flow = flows_.find_or_add(id);
    ++counter(EventType::kAck).handled;
    if (!is_served(flow)) return;
    add(flow, flow.ack, sn, now);
    if (flow.ack.count >= settings_.acks_per_event)
        end_feedback(flow, flow.ack, EventType::kAck, now);
}

void ReactionPoint::handle_nack(FlowId id, NackKind kind, std::uint32_t sn, Instant now) {
    Flow& flow = flows_.find_or_add(id);
    ++counter(EventType::kNack).handled;
    if (!is_served(flow)) return;
    Event event = event_for(flow, EventType::kNack, now);
    event.subtype = static_cast<std::uint8_t>(kind);
    event.sn = sn;
    event.feedback = {static_cast<std::uint64_t>(now.ns), sn, 1, 0};
    push(flow, event);
}

void ReactionPoint::handle_rtt(FlowId id, const RttFacts& rtt, Instant now) {
    Flow* const flow = flows_.find(id);
    const auto sent = static_cast<std::uint64_t>(flow == nullptr ? 0 : flow->probe_time.ns);
    if (flow == nullptr || !flow->is_probing || rtt.request_sent_ns != sent) {
        ++counters_.probes_lost;  // late: it was given up
        return;
    }
    flow->is_probing = false;
    ++counters_.probes_answered;
    ++counter(EventType::kRtt).handled;
    if (!is_served(*flow)) return;
    Event event = event_for(*flow, EventType::kRtt, now);
    event.rtt = rtt;
    push(*flow, event);
}

void ReactionPoint::set_negotiated(FlowId id) { flows_.find_or_add(id).is_negotiated = true; }

void ReactionPoint::forget(FlowId id) {
    const Flow* const flow = flows_.find(id);
    if (flow == nullptr) return;
    if (is_served(*flow)) gone_.push_back(id);
    flows_.erase(id);
}

// --- Events

void ReactionPoint::add(Flow& flow, Burst& burst, std::uint32_t sn, Instant now) {
    if (burst.count++ == 0) {
        burst.first = now;
        burst.first_sn = sn;
        if (!flow.is_pending) {
            flow.is_pending = true;
            pending_.push_back({flow.id, now + settings_.tx_delay});
        }
    }
    burst.sn = sn;
}

Event ReactionPoint::event_for(const Flow& flow, EventType type, Instant now) const {
    Event event;
    event.type = type;
    event.port = port_number_;
    event.flow = flow.id;
    event.qpn = number_of(flow.id);
    event.timestamp_ns = static_cast<std::uint64_t>(now.ns);
    return event;
}

void ReactionPoint::end_tx(Flow& flow, Instant now) {
    Event event = event_for(flow, EventType::kTx, now);
    event.sn = flow.tx.sn;
    event.flags = flow.tx.flags;
    if (flow.probe_sent) event.flags |= kTxProbeSent;
    if (flow.is_overloaded) event.flags |= kTxOverloaded;
    event.tx = {static_cast<std::uint64_t>(flow.tx.first.ns), flow.tx.bytes, flow.tx.count, 0};
    flow.probe_sent = flow.is_overloaded = false;
    const std::uint32_t sn = flow.tx.sn;
    flow.tx = {};
    flow.tx.sn = sn;
    push(flow, event);
}

void ReactionPoint::end_feedback(Flow& flow, Burst& burst, EventType type, Instant now) {
    Event event = event_for(flow, type, now);
    event.sn = burst.sn;
    event.feedback = {static_cast<std::uint64_t>(burst.first.ns), burst.first_sn, burst.count, 0};
    burst = {};
    push(flow, event);
}

void ReactionPoint::end_all(Flow& flow, Instant now) {
    if (flow.cnp.count > 0) end_feedback(flow, flow.cnp, EventType::kCnp, now);
    if (flow.ack.count > 0) end_feedback(flow, flow.ack, EventType::kAck, now);
    if (flow.tx.count > 0) end_tx(flow, now);
}

void ReactionPoint::push(Flow& flow, const Event& event) {
    ReactionCounters::Type& type = counter(event.type);
    ++type.events;
    if (settings_.event_loss > 0 && prng_.chance(settings_.event_loss)) {
        ++type.lost_injected;
        flow.is_overloaded = true;
    } else if (!link_->push(event)) {
        ++type.lost;
        flow.is_overloaded = true;
    } else {
        return;
    }
    link_->page().events_lost.fetch_add(1, std::memory_order_relaxed);
}

// --- The process

void ReactionPoint::attach(EventLink& link, bool report_only, Instant now) {
    link_ = &link;
    report_only_ = report_only;
    fault_ = ErrorReason::kNone;
    stuck_look_ = now;
    link.page().line_rate_bps.store(line_bps_, std::memory_order_relaxed);
    flows_.for_each([&](Flow& flow) {
        flow.tx = flow.cnp = flow.ack = {};
        flow.is_probing = flow.wants_probe = false;
        if (!is_served(flow)) return;
        dcqcn_release(&flow.dcqcn);
        set_rate(flow, kRateMax, now);
    });
    port_.watch_all(true);
}

void ReactionPoint::detach(Instant now) {
    if (link_ == nullptr) return;
    std::vector<FlowId> limited;
    flows_.for_each([&](Flow& flow) {
        const bool was_served = is_served(flow);
        flow.tx = flow.cnp = flow.ack = {};
        flow.is_pending = flow.wants_probe = false;
        if (was_served) flow.rate = kRateMax;
        if (flow.rate < kRateMax) limited.push_back(flow.id);
    });
    link_ = nullptr;
    report_only_ = false;
    pending_.clear();
    probes_.clear();
    gone_.clear();
    settings_changed(now);
    port_.watch_all(false);
    for (const FlowId id : limited) port_.watch(id, true);
}

bool ReactionPoint::take_answers(Instant now) {
    Answer answer;
    int taken = 0;
    while (taken < kAnswersMax && fault_ == ErrorReason::kNone && link_->pop(answer)) {
        ++taken;
        take(answer, now);
    }
    if (link_->is_broken()) fault_ = ErrorReason::kBrokenRing;
    return taken > 0;
}

void ReactionPoint::take(const Answer& answer, Instant now) {
    ++counters_.answers;
    if (answer.rate == 0 || answer.rate > kRateMax) {
        ++counters_.answers_refused;
        fault_ = ErrorReason::kBadRate;
        return;
    }
    Flow* const flow = flows_.find(answer.flow);
    if (flow == nullptr || !is_served(*flow)) return;
    set_rate(*flow, answer.rate, now);
    if ((answer.flags & kAnswerProbe) != 0) want_probe(*flow, now);
}

// --- Probes

void ReactionPoint::want_probe(Flow& flow, Instant now) {
    if (flow.is_probing && now < flow.probe_time + settings_.probe_timeout) return;
    if (flow.wants_probe) return;
    const Instant due = flow.probe_time + settings_.probe_interval;
    if (due <= now) return send_probe(flow, now);
    flow.wants_probe = true;
    probes_.push_back({flow.id, due});
}

void ReactionPoint::send_probe(Flow& flow, Instant now) {
    if (flow.is_probing) ++counters_.probes_lost;
    flow.wants_probe = false;
    flow.probe_time = now;
    flow.is_probing = port_.send_probe(flow.id, now);
    if (!flow.is_probing) return;
    flow.probe_sent = true;
    ++counters_.probes_sent;
}

void ReactionPoint::send_waiting_probes(Instant now) {
    while (!probes_.empty() && probes_.front().time <= now) {
        const FlowId id = probes_.front().flow;
        probes_.pop_front();
        Flow* const flow = flows_.find(id);
        if (flow != nullptr && flow->wants_probe) send_probe(*flow, now);
    }
}

// --- Rounds

void ReactionPoint::end_bursts(Instant now) {
    while (!pending_.empty() && pending_.front().time <= now) {
        const FlowId id = pending_.front().flow;
        pending_.pop_front();
        Flow* const flow = flows_.find(id);
        if (flow == nullptr) continue;
        flow->is_pending = false;
        // Bursts that have begun since then wait for their own time.
        Instant oldest = Instant::never();
        for (const Burst* burst : {&flow->tx, &flow->cnp, &flow->ack})
            if (burst->count > 0) oldest = std::min(oldest, burst->first);
        if (oldest.is_never()) continue;
        if (oldest + settings_.tx_delay <= now) {
            end_all(*flow, now);
        } else {
            flow->is_pending = true;
            pending_.push_back({id, oldest + settings_.tx_delay});
        }
    }
}

void ReactionPoint::push_gone() {
    while (!gone_.empty()) {
        Event event;
        event.type = EventType::kFlowGone;
        event.flow = gone_.front();
        if (!link_->push(event)) return;
        gone_.pop_front();
    }
}

bool ReactionPoint::poll(Instant now) {
    if (link_ == nullptr) return false;
    const bool active = take_answers(now);
    end_bursts(now);
    send_waiting_probes(now);
    if (!gone_.empty()) push_gone();
    link_->publish(now, [this](std::atomic<std::uint32_t>& word) { port_.wake(word); });
    if (now >= stuck_look_) {
        stuck_look_ = now + kStuckLook;
        if (link_->stuck_for(now) > settings_.patience) fault_ = ErrorReason::kNoProgress;
    }
    if (fault_ != ErrorReason::kNone) ++counters_.fallbacks;
    return active;
}

Instant ReactionPoint::next_deadline() const {
    if (link_ == nullptr) return Instant::never();
    Instant deadline = link_->next_deadline();
    if (!pending_.empty()) deadline = std::min(deadline, pending_.front().time);
    if (!probes_.empty()) deadline = std::min(deadline, probes_.front().time);
    return deadline;
}

std::vector<FlowFacts> ReactionPoint::flows() const {
    std::vector<FlowFacts> facts;
    flows_.for_each([&](const Flow& flow) {
        FlowFacts& fact = facts.emplace_back();
        fact.id = flow.id;
        fact.is_internal = !is_served(flow);
        fact.slot = fact.is_internal ? kSlotInternal : std::uint8_t{0};
        fact.rate = is_enforced(flow) ? flow.rate : kRateMax;
        fact.cnps = flow.cnps;
    });
    return facts;
}

std::uint32_t ReactionPoint::limited_count() const {
    std::uint32_t count = 0;
    flows_.for_each([&](const Flow& flow) { count += is_enforced(flow) && flow.rate < kRateMax; });
    return count;
}

}  // namespace rdmalab::pcc

#include "card/function.h"

#include <algorithm>

#include "card/verbs_values.h"

namespace rdmalab::card {

using transport::AsyncEvent;
using transport::AsyncEventType;

std::optional<std::uint32_t> Context::take_slot(QpRecord& qp) {
    if (!free_slots.empty()) {
        const std::uint32_t slot = free_slots.back();
        free_slots.pop_back();
        slots[slot] = &qp;
        return slot;
    }
    if (slots.size() == abi::kDoorbellSlots) return std::nullopt;
    slots.push_back(&qp);
    return static_cast<std::uint32_t>(slots.size() - 1);
}

void Context::free_slot(std::uint32_t slot) {
    slots[slot] = nullptr;
    free_slots.push_back(slot);
}

namespace {
bool looks_inside_of(const HashSpread& spread) {
    return spread.is_inner || (spread.fields & kHashEspSpi) != 0;
}
}  // namespace

Function::Function(const transport::EngineConfig& config, HostPort& host,
                   transport::MemoryPort& memory)
    : host_(host), engine_(config, memory, *this, *this) {}

void Function::remove(const CqRecord& cq) {
    cqs_.erase(cq.id.value);
    std::erase(touched_cqs_, &cq);
    std::erase(moderated_cqs_, &cq);
}
void Function::remove(const SrqRecord& srq) { srqs_.erase(srq.id.value); }
void Function::remove(const QpRecord& qp) {
    qps_.erase(qp.qpn.value);
    std::erase(broken_qps_, &qp);
    if (qp.may_have_rules) steering_.remove_rules_of(qp.qpn);
    if (const auto spread = spreads_.find(qp.qpn.value); spread != spreads_.end()) {
        inner_spreads_ -= looks_inside_of(spread->second);
        spreads_.erase(spread);
    }
}

void Function::add_spread(Qpn qpn, HashSpread spread) {
    inner_spreads_ += looks_inside_of(spread);
    spreads_.emplace(qpn.value, std::move(spread));
}

const HashSpread* Function::find_spread(Qpn qpn) const {
    if (spreads_.empty()) return nullptr;
    const auto found = spreads_.find(qpn.value);
    return found == spreads_.end() ? nullptr : &found->second;
}

void Function::forget_closed_xrcds() {
    std::erase_if(xrcds_, [this](const auto& entry) { return !engine_.has_xrcd(entry.second); });
}

// --- Work

bool Function::fetch_send(Qpn qpn, transport::SendWqe& out) {
    QpRecord* qp = qps_.find(qpn.value);
    if (qp == nullptr) return false;
    if (qp->send.fetch(out)) return true;
    if (qp->send.is_broken()) note_broken(*qp);
    return false;
}

bool Function::fetch_recv(Qpn qpn, transport::RecvWqe& out) {
    QpRecord* qp = qps_.find(qpn.value);
    if (qp == nullptr) return false;
    if (qp->srq != nullptr) return fetch_srq(qp->srq->id, out);
    if (qp->recv.fetch(out)) return true;
    if (qp->recv.is_broken()) note_broken(*qp);
    return false;
}

bool Function::fetch_srq(SrqId id, transport::RecvWqe& out) {
    SrqRecord* srq = srqs_.find(id.value);
    if (srq == nullptr) return false;
    if (srq->ring.fetch(out)) return true;
    if (srq->ring.is_broken()) note_broken(*srq);
    return false;
}

std::uint32_t Function::srq_depth(SrqId id) {
    SrqRecord* srq = srqs_.find(id.value);
    return srq == nullptr ? 0 : srq->ring.depth();
}

// --- Outcomes

bool Function::push_completion(CqId id, const transport::Completion& completion) {
    CqRecord* cq = cqs_.find(id.value);
    const QpRecord* qp = qps_.find(completion.qpn.value);
    // A client that is just going away: nobody will look at it.
    if (cq == nullptr || qp == nullptr) return true;
    const std::uint32_t queue = completion.from_srq ? completion.srq.value : qp->slot;
    if (!cq->ring.push(completion, queue)) return false;
    if (!cq->is_touched) {
        cq->is_touched = true;
        touched_cqs_.push_back(cq);
    }
    return true;
}

std::uint32_t Function::generation_of(const AsyncEvent& event) const {
    switch (event.type) {
        case AsyncEventType::kCqError: {
            const CqRecord* cq = cqs_.find(event.object);
            return cq == nullptr ? 0 : cq->generation;
        }
        case AsyncEventType::kSrqError:
        case AsyncEventType::kSrqLimitReached: {
            const SrqRecord* srq = srqs_.find(event.object);
            return srq == nullptr ? 0 : srq->generation;
        }
        case AsyncEventType::kDeviceFatal:
        case AsyncEventType::kPortActive:
        case AsyncEventType::kPortError:
        case AsyncEventType::kGidChange:
            return 0;  // of the device or its port, of which there is one
        default: {
            const QpRecord* qp = qps_.find(event.object);
            return qp == nullptr ? 0 : qp->generation;
        }
    }
}

void Function::push_event(const AsyncEvent& event) {
    host_.notify_async(event.owner,
                       {event_to_verbs(event.type), event.object, generation_of(event), 0});
}

// What the round has brought to a CQ becomes visible; its channel is told, or, with moderation,
// once enough has come or enough time has passed.
void Function::notify(CqRecord& cq, Instant now, bool must_tell) {
    const std::uint32_t untold = cq.ring.producer() - cq.told;
    const bool may_tell = must_tell || untold >= cq.moderation_count;
    const CompletionRing::Notice notice = cq.ring.publish(may_tell);
    if (notice.event && cq.channel != abi::kNoChannel) {
        host_.notify_channel(cq.owner, cq.channel, {cq.id.value, cq.generation});
    }
    if (notice.wake) host_.wake(cq.ring.producer_word());
    if (may_tell) {
        cq.told = cq.ring.producer();
        if (!cq.due.is_never()) std::erase(moderated_cqs_, &cq);
        cq.due = Instant::never();
    } else if (cq.due.is_never()) {
        cq.due = now + cq.moderation_period;
        moderated_cqs_.push_back(&cq);
    }
}

void Function::publish(Instant now) {
    for (CqRecord* cq : touched_cqs_) {
        cq->is_touched = false;
        notify(*cq, now, cq->moderation_count <= 1);
    }
    touched_cqs_.clear();
}

Instant Function::next_deadline() const {
    Instant deadline = engine_.next_deadline();
    for (const CqRecord* cq : moderated_cqs_) deadline = std::min(deadline, cq->due);
    return deadline;
}

void Function::handle_timeout(Instant now) {
    if (engine_.next_deadline() <= now) engine_.handle_timeout(now);
    for (std::size_t i = 0; i < moderated_cqs_.size();) {
        CqRecord& cq = *moderated_cqs_[i];
        if (cq.due <= now)
            notify(cq, now, true);  // leaves the list
        else
            ++i;
    }
}

void Function::remoderate(CqRecord& cq, Instant now) {
    if (!cq.due.is_never()) notify(cq, now, true);
}

// --- Broken rings

void Function::note_broken(QpRecord& qp) {
    if (qp.is_settled) return;
    qp.is_settled = true;
    broken_qps_.push_back(&qp);
}

void Function::note_broken(SrqRecord& srq) {
    if (srq.is_settled) return;
    srq.is_settled = true;
    push_event({AsyncEventType::kSrqError, srq.owner, srq.id.value});
}

// The engine asks for work in the middle of its own steps, so the QP goes down only afterwards.
void Function::settle_broken(Instant now) {
    transport::QpAttributes error;
    error.state = transport::QpState::kErr;
    for (QpRecord* qp : broken_qps_) {
        engine_.modify_qp(qp->owner, qp->qpn, error, transport::kQpState, now);
        push_event({AsyncEventType::kQpFatal, qp->owner, qp->qpn.value});
    }
    broken_qps_.clear();
}

void Function::commit(std::span<const transport::CopyFault> faults, Instant now) {
    is_touched_ = false;
    engine_.commit(faults, now);
    if (!broken_qps_.empty()) {
        settle_broken(now);
        is_touched_ = true;  // what the error state flushes is committed next
    }
    publish(now);
}

}  // namespace rdmalab::card

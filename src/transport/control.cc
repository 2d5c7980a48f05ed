// Control calls: objects come and go, QPs change state. Errors are the errno values of the man
// pages. Nothing is changed by a call that fails.
#include <bit>
#include <cerrno>

#include "transport/address.h"
#include "transport/engine_impl.h"
#include "transport/qp_errors.h"
#include "transport/qp_state.h"

namespace rdmalab::transport {
namespace {

constexpr std::uint32_t kQpAccess = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead |
                                    kAccessRemoteAtomic | kAccessMwBind | kAccessRelaxedOrdering;

Error failure(int code) { return {code, {}}; }

bool is_path_mtu(std::uint32_t mtu) {
    return std::has_single_bit(mtu) && mtu >= 256 && mtu <= limits::kMtuMax;
}

// Removes an object that nothing else refers to.
template <class Id, class Object>
int destroy(ObjectTable<Id, Object>& table, OwnerId owner, Id id) {
    const Object* const object = table.find(owner, id);
    if (object == nullptr) return EINVAL;
    if (object->uses > 0) return EBUSY;
    table.erase(id);
    return 0;
}

}  // namespace

void Engine::set_gid(std::uint8_t index, const Gid& gid) {
    if (index < limits::kGidMax) impl_->core.gids[index] = gid;
}

void Engine::set_congestion_port(CongestionPort* port) { impl_->core.congestion = port; }

void Engine::watch_qp(Qpn qpn, bool on) {
    if (Qp* const qp = impl_->core.qps.find(qpn)) impl_->watch(*qp, on);
}

void Engine::watch_all(bool on) {
    Core& core = impl_->core;
    core.watches_all = on && core.congestion != nullptr;
    for (std::uint32_t slot = 0; slot < core.qps.slot_count(); ++slot) {
        Qp* const qp = core.qps.at(slot);
        if (qp != nullptr && qp->is_connected()) impl_->watch(*qp, on);
    }
}

void Engine::Impl::watch(Qp& qp, bool on) {
    qp.is_watched = on && core.congestion != nullptr && !qp.is_raw();
    if (qp.is_watched || qp.hold_until <= core.now) return;
    qp.hold_until = {};
    core.ready.push_back(qp);
}

bool Engine::has_qp(Qpn qpn) const { return impl_->core.qps.find(qpn) != nullptr; }

const wire::LowerTemplate* Engine::probe_path(Qpn qpn) const {
    const Qp* const qp = impl_->core.qps.find(qpn);
    if (qp == nullptr || !qp->is_connected() || qp->state < QpState::kRtr) return nullptr;
    const bool agreed = (qp->attributes.ece_options & kEceRttProbes) != 0;
    return agreed ? &qp->lower : nullptr;
}

Result<PdId> Engine::create_pd(OwnerId owner) {
    const auto id = impl_->core.pds.insert({owner});
    if (!id) return failure(ENOMEM);
    return *id;
}

bool Engine::has_pd(OwnerId owner, PdId pd) const {
    return impl_->core.pds.find(owner, pd) != nullptr;
}

int Engine::destroy_pd(OwnerId owner, PdId pd) { return destroy(impl_->core.pds, owner, pd); }

Result<MrKeys> Engine::register_mr(const MrInit& init) {
    Pd* const pd = impl_->core.pds.find(init.owner, init.pd);
    if (pd == nullptr) return failure(EINVAL);
    auto keys = impl_->core.regions.insert(init);
    if (keys) ++pd->uses;
    return keys;
}

int Engine::deregister_mr(OwnerId owner, Lkey lkey) {
    PdId pd;
    if (const int error = impl_->core.regions.erase(owner, lkey, pd)) return error;
    --impl_->core.pds.find(pd)->uses;
    return 0;
}

int Engine::reregister_mr(OwnerId owner, Lkey lkey, const MrChange& change) {
    Core& core = impl_->core;
    const std::optional<MrFacts> before = core.regions.facts(owner, lkey);
    if (!before) return EINVAL;
    if (change.pd && core.pds.find(owner, *change.pd) == nullptr) return EINVAL;
    if (const int error = core.regions.change(owner, lkey, change)) return error;
    if (change.pd) {
        --core.pds.find(before->pd)->uses;
        ++core.pds.find(*change.pd)->uses;
    }
    return 0;
}

Result<MrFacts> Engine::mr_facts(OwnerId owner, Lkey lkey) const {
    const std::optional<MrFacts> facts = impl_->core.regions.facts(owner, lkey);
    if (!facts) return failure(EINVAL);
    return *facts;
}

Result<Rkey> Engine::create_window(OwnerId owner, PdId pd_id, WindowType type) {
    Pd* const pd = impl_->core.pds.find(owner, pd_id);
    if (pd == nullptr) return failure(EINVAL);
    auto rkey = impl_->core.regions.insert_window(owner, pd_id, type);
    if (rkey) ++pd->uses;
    return rkey;
}

int Engine::destroy_window(OwnerId owner, std::uint32_t index) {
    PdId pd;
    if (!impl_->core.regions.erase_window(owner, index, pd)) return EINVAL;
    --impl_->core.pds.find(pd)->uses;
    return 0;
}

Result<CqId> Engine::create_cq(OwnerId owner, std::uint32_t capacity) {
    if (capacity == 0 || capacity > limits::kCqeMax + 1) return failure(EINVAL);
    const auto id = impl_->core.cqs.insert({owner});
    if (!id) return failure(ENOMEM);
    return *id;
}

int Engine::destroy_cq(OwnerId owner, CqId cq) { return destroy(impl_->core.cqs, owner, cq); }

// --- XRC domains and SRQs

Result<XrcdId> Engine::create_xrcd(OwnerId owner) {
    const auto id = impl_->core.xrcds.insert({OwnerId{}, {{owner, 1, 0}}});
    if (!id) return failure(ENOMEM);
    return *id;
}

int Engine::open_xrcd(OwnerId owner, XrcdId id) {
    Xrcd* const xrcd = impl_->core.xrcds.find(id);
    if (xrcd == nullptr) return EINVAL;
    if (Xrcd::Member* const member = xrcd->find(owner))
        ++member->opens;
    else
        xrcd->members.push_back({owner, 1, 0});
    return 0;
}

int Engine::close_xrcd(OwnerId owner, XrcdId id) {
    Xrcd* const xrcd = impl_->core.xrcds.find(id);
    Xrcd::Member* const member = xrcd == nullptr ? nullptr : xrcd->find(owner);
    if (member == nullptr) return EINVAL;
    if (member->opens == 1 && member->uses > 0) return EBUSY;
    if (--member->opens == 0) impl_->leave_xrcd(owner, id);
    return 0;
}

bool Engine::has_xrcd(XrcdId id) const { return impl_->core.xrcds.find(id) != nullptr; }

void Engine::Impl::leave_xrcd(OwnerId owner, XrcdId id) {
    Xrcd& xrcd = *core.xrcds.find(id);
    std::erase_if(xrcd.members,
                  [owner](const Xrcd::Member& member) { return member.owner == owner; });
    if (xrcd.members.empty()) core.xrcds.erase(id);
}

Xrcd::Member* Engine::Impl::find_member(OwnerId owner, XrcdId id) {
    Xrcd* const xrcd = core.xrcds.find(id);
    return xrcd == nullptr ? nullptr : xrcd->find(owner);
}

Result<SrqId> Engine::create_srq(const SrqInit& init) {
    Core& core = impl_->core;
    Pd* const pd = core.pds.find(init.owner, init.pd);
    if (pd == nullptr || init.wr_max > limits::kWqeMax || init.sge_max > limits::kSgeMax)
        return failure(EINVAL);
    Cq* const cq = init.xrcd ? core.cqs.find(init.owner, init.cq) : nullptr;
    Xrcd::Member* const member = init.xrcd ? impl_->find_member(init.owner, *init.xrcd) : nullptr;
    if (init.xrcd && (cq == nullptr || member == nullptr)) return failure(EINVAL);
    const auto id = core.srqs.insert({init.owner, init.pd, init.xrcd, init.cq});
    if (!id) return failure(ENOMEM);
    ++pd->uses;
    if (cq != nullptr) ++cq->uses;
    if (member != nullptr) ++member->uses;
    return *id;
}

int Engine::set_srq_limit(OwnerId owner, SrqId srq, std::uint32_t limit) {
    Srq* const found = impl_->core.srqs.find(owner, srq);
    if (found == nullptr) return EINVAL;
    found->limit = limit;
    return 0;
}

Result<std::uint32_t> Engine::srq_limit(OwnerId owner, SrqId srq) const {
    const Srq* const found = impl_->core.srqs.find(owner, srq);
    if (found == nullptr) return failure(EINVAL);
    return found->limit;
}

int Engine::destroy_srq(OwnerId owner, SrqId id) {
    Core& core = impl_->core;
    const Srq* const found = core.srqs.find(owner, id);
    if (found == nullptr) return EINVAL;
    const Srq srq = *found;
    if (const int error = destroy(core.srqs, owner, id)) return error;
    --core.pds.find(srq.pd)->uses;
    if (!srq.xrcd) return 0;
    --core.cqs.find(srq.cq)->uses;
    --impl_->find_member(owner, *srq.xrcd)->uses;
    impl_->forget_target(id);
    return 0;
}

// Target QPs of others may be in the middle of a message for the SRQ that goes: the rest of it
// finds none, and what was taken from it has gone too.
void Engine::Impl::forget_target(SrqId srq) {
    for (std::uint32_t slot = 0; slot < core.qps.slot_count(); ++slot) {
        Qp* const qp = core.qps.at(slot);
        if (qp == nullptr || !qp->is_xrc_target() || qp->recv_target.srq != srq) continue;
        qp->recv_target = {};
        qp->responder.has_recv = false;
    }
}

Result<AhId> Engine::create_ah(OwnerId owner, PdId pd_id, const AddressVector& av) {
    Core& core = impl_->core;
    Pd* const pd = core.pds.find(owner, pd_id);
    if (pd == nullptr) return failure(EINVAL);
    const auto path = resolve_path(core, av, Qpn{}, Qpn{});
    if (!path) return path.error();
    const auto id = core.ahs.insert({owner, pd_id, av, wire::make_lower_template(*path)});
    if (!id) return failure(ENOMEM);
    ++pd->uses;
    return *id;
}

int Engine::destroy_ah(OwnerId owner, AhId ah) {
    Core& core = impl_->core;
    const Ah* const found = core.ahs.find(owner, ah);
    if (found == nullptr) return EINVAL;
    --core.pds.find(found->pd)->uses;
    core.ahs.erase(ah);
    return 0;
}

int Engine::Impl::check_qp_init(const QpInit& init) {
    const bool is_target = init.type == QpType::kXrcRecv;
    const bool is_xrc = is_target || init.type == QpType::kXrcSend;
    if (is_target && (!init.xrcd || find_member(init.owner, *init.xrcd) == nullptr)) return EINVAL;
    if (!is_target && core.pds.find(init.owner, init.pd) == nullptr) return EINVAL;
    if (!is_target && core.cqs.find(init.owner, init.send_cq) == nullptr) return EINVAL;
    if (!is_xrc && core.cqs.find(init.owner, init.recv_cq) == nullptr) return EINVAL;
    if (init.srq) {
        const Srq* const srq = core.srqs.find(init.owner, *init.srq);
        if (srq == nullptr || srq->xrcd || is_xrc) return EINVAL;
    }
    const QpCaps& caps = init.caps;
    const bool fits = caps.send_wr_max <= limits::kWqeMax && caps.recv_wr_max <= limits::kWqeMax &&
                      caps.send_sge_max <= limits::kSgeMax &&
                      caps.recv_sge_max <= limits::kSgeMax && caps.inline_max <= limits::kInlineMax;
    return fits ? 0 : EINVAL;
}

Result<Qpn> Engine::create_qp(const QpInit& init) {
    Core& core = impl_->core;
    if (const int error = impl_->check_qp_init(init)) return failure(error);
    Qp* const qp = core.qps.create();
    if (qp == nullptr) return failure(ENOMEM);
    qp->init = init;
    impl_->reset(*qp);
    qp->is_watched = core.watches_all && qp->is_connected();
    impl_->count_uses(*qp, 1);
    return qp->qpn;
}

// What a QP refers to stays as long as the QP.
void Engine::Impl::count_uses(const Qp& qp, std::uint32_t by) {
    const QpInit& init = qp.init;
    if (qp.is_xrc_target()) {
        find_member(init.owner, *init.xrcd)->uses += by;
        return;
    }
    core.pds.find(init.pd)->uses += by;
    core.cqs.find(init.send_cq)->uses += by;
    if (!qp.is_xrc()) core.cqs.find(init.recv_cq)->uses += by;
    if (init.srq) core.srqs.find(*init.srq)->uses += by;
}

int Engine::pass_on_qp(OwnerId from, Qpn qpn, OwnerId to) {
    Qp* const qp = impl_->find_qp(from, qpn);
    if (qp == nullptr || !qp->is_xrc_target()) return EINVAL;
    if (impl_->find_member(to, *qp->init.xrcd) == nullptr) return EINVAL;
    impl_->count_uses(*qp, ~0u);
    qp->init.owner = to;
    impl_->count_uses(*qp, 1);
    return 0;
}

Qp* Engine::Impl::find_qp(OwnerId owner, Qpn qpn) {
    Qp* const qp = core.qps.find(qpn);
    return qp != nullptr && qp->init.owner == owner ? qp : nullptr;
}

int Engine::destroy_qp(OwnerId owner, Qpn qpn) {
    Qp* const qp = impl_->find_qp(owner, qpn);
    if (qp == nullptr) return EINVAL;
    if (qp->multicast_groups > 0) return EBUSY;
    impl_->remove_qp(*qp);
    return 0;
}

void Engine::Impl::remove_qp(Qp& qp) {
    count_uses(qp, ~0u);
    if (qp.multicast_groups > 0) core.multicast.detach_all(qp.qpn);
    if (core.congestion != nullptr) core.congestion->handle_gone(qp.flow());
    core.deadlines.remove(qp.slot);
    core.qps.erase(qp.slot);
}

int Engine::attach_multicast(OwnerId owner, Qpn qpn, const Gid& group) {
    Qp* const qp = impl_->find_qp(owner, qpn);
    if (qp == nullptr || !qp->is_ud() || !group.is_multicast()) return EINVAL;
    bool is_new = false;
    const int error = impl_->core.multicast.attach(group, qpn, is_new);
    if (is_new) ++qp->multicast_groups;
    return error;
}

int Engine::detach_multicast(OwnerId owner, Qpn qpn, const Gid& group) {
    Qp* const qp = impl_->find_qp(owner, qpn);
    if (qp == nullptr) return EINVAL;
    const int error = impl_->core.multicast.detach(group, qpn);
    if (error == 0) --qp->multicast_groups;
    return error;
}

int Engine::modify_qp(OwnerId owner, Qpn qpn, const QpAttributes& attributes, std::uint32_t mask,
                      Instant now) {
    impl_->core.now = now;
    Qp* const qp = impl_->find_qp(owner, qpn);
    return qp == nullptr ? EINVAL : impl_->modify(*qp, attributes, mask);
}

int Engine::Impl::modify(Qp& qp, const QpAttributes& attributes, std::uint32_t mask) {
    const QpState from = qp.state;
    if ((mask & kQpEce) != 0) return set_ece(qp, attributes, mask);
    const QpState to = (mask & kQpState) != 0 ? attributes.state : from;
    if (!is_transition_allowed(qp.init.type, from, to, mask)) return EINVAL;
    const bool may_differ = to == QpState::kReset || to == QpState::kErr;
    if ((mask & kQpCurState) != 0 && attributes.current_state != from && !may_differ) return EINVAL;
    if (const int error = check_attributes(qp, attributes, mask)) return error;
    if (const int error = resolve_peer(qp, attributes, mask)) return error;
    assign(qp, attributes, mask);
    if ((mask & kQpMaxDestRdAtomic) != 0) responder.size_resources(qp);
    enter(qp, from, to);
    return 0;
}

// Options are settled before the peer is known to the QP; those that the card does not know fall
// away.
int Engine::Impl::set_ece(Qp& qp, const QpAttributes& attributes, std::uint32_t mask) {
    const bool is_early = qp.state == QpState::kReset || qp.state == QpState::kInit;
    if (mask != kQpEce || !is_early) return EINVAL;
    qp.attributes.ece_options = attributes.ece_options & kEceSupported;
    return 0;
}

int Engine::Impl::check_attributes(const Qp& qp, const QpAttributes& attributes,
                                   std::uint32_t mask) const {
    const auto is_wrong = [mask](std::uint32_t bit, bool condition) {
        return (mask & bit) != 0 && condition;
    };
    const std::uint32_t mtu = attributes.path_mtu;
    const bool wrong =
        is_wrong(kQpAltPath, true) || is_wrong(kQpPkeyIndex, attributes.pkey_index != 0) ||
        is_wrong(kQpPort, attributes.port != 1) ||
        is_wrong(kQpAccessFlags, (attributes.access & ~kQpAccess) != 0) ||
        is_wrong(kQpPathMtu, !is_path_mtu(mtu) || mtu > core.config.port_mtu) ||
        is_wrong(kQpTimeout, attributes.timeout > 31) ||
        is_wrong(kQpRetryCnt, attributes.retry_count > 7) ||
        is_wrong(kQpRnrRetry, attributes.rnr_retry > 7) ||
        is_wrong(kQpMinRnrTimer, attributes.min_rnr_timer > 31) ||
        is_wrong(kQpMaxQpRdAtomic, attributes.reads_outstanding > limits::kReadsMax) ||
        is_wrong(kQpMaxDestRdAtomic, attributes.responder_resources > limits::kReadsMax) ||
        is_wrong(kQpDestQpn, attributes.destination_qpn.value > Psn::kMask) ||
        (mask & ~0x3ff'ffffu) != 0;
    // A QP with reads to answer keeps the places that they need.
    const bool is_busy = qp.responder.stored_end != qp.responder.emit_index;
    return wrong || is_wrong(kQpMaxDestRdAtomic, is_busy) ? EINVAL : 0;
}

int Engine::Impl::resolve_peer(Qp& qp, const QpAttributes& attributes, std::uint32_t mask) {
    if ((mask & kQpAv) == 0) return 0;
    const Qpn peer =
        (mask & kQpDestQpn) != 0 ? attributes.destination_qpn : qp.attributes.destination_qpn;
    const auto path = resolve_path(core, attributes.av, qp.qpn, peer);
    if (!path) return path.error().code;
    qp.lower = wire::make_lower_template(*path);
    qp.cnp_lower = wire::make_lower_template(notification_path(*path));
    return 0;
}

void Engine::Impl::assign(Qp& qp, const QpAttributes& given, std::uint32_t mask) const {
    QpAttributes& own = qp.attributes;
    if ((mask & kQpEnSqdAsyncNotify) != 0) own.sqd_async_notify = given.sqd_async_notify;
    if ((mask & kQpAccessFlags) != 0) own.access = given.access;
    if ((mask & kQpPkeyIndex) != 0) own.pkey_index = given.pkey_index;
    if ((mask & kQpPort) != 0) own.port = given.port;
    if ((mask & kQpQkey) != 0) own.qkey = given.qkey;
    if ((mask & kQpAv) != 0) own.av = given.av;
    if ((mask & kQpPathMtu) != 0) own.path_mtu = qp.mtu = given.path_mtu;
    if ((mask & kQpTimeout) != 0) own.timeout = given.timeout;
    if ((mask & kQpRetryCnt) != 0) own.retry_count = given.retry_count;
    if ((mask & kQpRnrRetry) != 0) own.rnr_retry = given.rnr_retry;
    if ((mask & kQpRqPsn) != 0) own.rq_psn = given.rq_psn;
    if ((mask & kQpSqPsn) != 0) own.sq_psn = given.sq_psn;
    if ((mask & kQpMaxQpRdAtomic) != 0) own.reads_outstanding = given.reads_outstanding;
    if ((mask & kQpMaxDestRdAtomic) != 0) own.responder_resources = given.responder_resources;
    if ((mask & kQpMinRnrTimer) != 0) own.min_rnr_timer = given.min_rnr_timer;
    if ((mask & kQpDestQpn) != 0) own.destination_qpn = given.destination_qpn;
    if ((mask & kQpRateLimit) != 0) own.rate_limit_kbps = given.rate_limit_kbps;
}

void Engine::Impl::enter(Qp& qp, QpState from, QpState to) {
    if (to == QpState::kErr) {
        responder.cancel_answers(qp);
        return move_to_error(core, qp);
    }
    if (to == QpState::kReset) return reset(qp);
    qp.state = to;
    if (from == QpState::kInit && to == QpState::kRtr) responder.start(qp);
    if (to == QpState::kRts) {
        if (from == QpState::kRtr)
            requester.start(qp);
        else
            requester.resume(qp);
    }
    if (from == QpState::kRts && to == QpState::kSqd) requester.drain(qp);
}

void Engine::Impl::reset(Qp& qp) {
    qp.state = QpState::kReset;
    qp.attributes = {};
    qp.mtu = qp.is_ud() ? core.config.port_mtu : 0;
    qp.requester = {};
    qp.responder = {};
    qp.recv_target = {qp.init.recv_cq, qp.init.srq, qp.init.pd};
    if (qp.init.srq) qp.recv_target.pd = core.srqs.find(*qp.init.srq)->pd;
    qp.notification = {};
    qp.hold_until = {};
    if (core.congestion != nullptr) core.congestion->handle_gone(qp.flow());
    qp.timers.fill(Instant::never());
    qp.comm_established = false;
}

Result<QpAttributes> Engine::query_qp(OwnerId owner, Qpn qpn) const {
    const Qp* const qp = impl_->find_qp(owner, qpn);
    if (qp == nullptr) return failure(EINVAL);
    QpAttributes attributes = qp->attributes;
    attributes.state = attributes.current_state = qp->state;
    attributes.caps = qp->init.caps;
    attributes.sq_draining = qp->requester.is_draining;
    if (qp->state == QpState::kRts) attributes.sq_psn = qp->requester.next_psn;
    return attributes;
}

void Engine::release_owner(OwnerId owner) {
    Core& core = impl_->core;
    for (std::uint32_t slot = 0; slot < core.qps.slot_count(); ++slot) {
        Qp* const qp = core.qps.at(slot);
        if (qp != nullptr && qp->init.owner == owner) impl_->remove_qp(*qp);
    }
    core.regions.erase_of(owner);
    core.ahs.erase_of(owner);
    for (std::uint32_t i = 0; i < core.srqs.slot_count(); ++i) {
        const Srq* const srq = core.srqs.find(owner, SrqId{i});
        if (srq != nullptr && srq->xrcd) impl_->forget_target(SrqId{i});
    }
    core.srqs.erase_of(owner);
    for (std::uint32_t i = 0; i < core.xrcds.slot_count(); ++i)
        if (impl_->find_member(owner, XrcdId{i}) != nullptr) impl_->leave_xrcd(owner, XrcdId{i});
    core.cqs.erase_of(owner);
    core.pds.erase_of(owner);
}

std::vector<QpFacts> Engine::list_qps() const {
    std::vector<QpFacts> facts;
    const QpTable& qps = impl_->core.qps;
    for (std::uint32_t slot = 0; slot < qps.slot_count(); ++slot) {
        const Qp* const qp = qps.at(slot);
        if (qp == nullptr) continue;
        facts.push_back({qp->qpn, qp->init.owner, qp->init.type, qp->state,
                         qp->attributes.destination_qpn, qp->tx_bytes, qp->rx_bytes});
    }
    return facts;
}

Engine::ObjectCounts Engine::object_counts() const {
    const Core& core = impl_->core;
    return {core.pds.size(),  core.regions.size(), core.cqs.size(),
            core.srqs.size(), core.qps.size(),     core.ahs.size()};
}

}  // namespace rdmalab::transport

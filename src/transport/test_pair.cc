#include "transport/test_pair.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "wire/icrc.h"
#include "wire/print.h"

namespace rdmalab::transport {
namespace {

std::byte* pointer(std::uint64_t address) { return reinterpret_cast<std::byte*>(address); }

void must(bool condition, const char* what) {
    if (!condition) throw std::runtime_error(what);
}

EngineConfig numbered(EngineConfig config, std::uint8_t index, std::uint64_t seed) {
    config.index = index;
    config.mac = {{2, 0, 0, 0, 0, static_cast<std::uint8_t>(index + 1)}};
    config.seed = seed + index;
    return config;
}

}  // namespace

void TestMemory::copy(SpaceId, std::uint64_t target_address, const PayloadSegment& source,
                      CopyOwner owner) {
    queue_.push_back({target_address, source, owner});
}

bool TestMemory::read(SpaceId, std::uint64_t address, ByteSpan out) {
    carry_out(early_faults_);
    if (!is_mapped(address, out.size())) return false;
    std::memcpy(out.data(), pointer(address), out.size());
    return true;
}

bool TestMemory::write(SpaceId, std::uint64_t address, ByteView bytes) {
    carry_out(early_faults_);
    if (!is_mapped(address, bytes.size())) return false;
    std::memcpy(pointer(address), bytes.data(), bytes.size());
    return true;
}

void TestMemory::flush(std::vector<CopyFault>& faults) {
    faults.insert(faults.end(), early_faults_.begin(), early_faults_.end());
    early_faults_.clear();
    carry_out(faults);
}

void TestMemory::carry_out(std::vector<CopyFault>& faults) {
    for (const Copy& copy : queue_) {
        const bool is_source_there = is_mapped(copy.source.address, copy.source.length);
        if (!is_source_there || !is_mapped(copy.target, copy.source.length)) {
            faults.push_back({copy.owner, !is_source_there});
            continue;
        }
        bytes_copied += copy.source.length;
        if (is_dry) continue;
        std::memmove(pointer(copy.target), pointer(copy.source.address), copy.source.length);
    }
    queue_.clear();
}

void TestMemory::unmap(const void* start, std::size_t length) {
    const auto from = reinterpret_cast<std::uint64_t>(start);
    unmapped_.emplace_back(from, from + length);
}

bool TestMemory::is_mapped(std::uint64_t address, std::uint64_t length) const {
    return std::none_of(unmapped_.begin(), unmapped_.end(), [&](const auto& range) {
        return address < range.second && range.first < address + length;
    });
}

Host::Host(const EngineConfig& config, TestMemory& memory, const Gid& own_gid)
    : engine(config, memory, *this, *this), gid(own_gid), mac(config.mac) {
    engine.set_gid(0, gid);
    pd = *engine.create_pd(kOwner);
    send_cq = *engine.create_cq(kOwner, 1024);
    recv_cq = *engine.create_cq(kOwner, 1024);
    srq = *engine.create_srq({kOwner, pd, 128, 4, {}, {}});
}

Host::Region& Host::region(std::size_t length, std::uint32_t access) {
    auto& region = *regions_.emplace_back(std::make_unique<Region>());
    region.bytes.resize(length);
    region.keys = *engine.register_mr({.owner = kOwner,
                                       .space = kSpace,
                                       .pd = pd,
                                       .address = region.address(),
                                       .length = length,
                                       .iova = region.address(),
                                       .access = access});
    return region;
}

QpType Host::type_of(Qpn qpn) const {
    for (const QpFacts& facts : engine.list_qps())
        if (facts.qpn == qpn) return facts.type;
    return QpType::kUd;
}

SrqId Host::create_xrc_srq(XrcdId xrcd) {
    return *engine.create_srq({kOwner, pd, 128, 4, xrcd, recv_cq});
}

Qpn Host::create_target(XrcdId xrcd) {
    QpInit init;
    init.owner = kOwner;
    init.type = QpType::kXrcRecv;
    init.xrcd = xrcd;
    return *engine.create_qp(init);
}

Qpn Host::create_qp(QpType type, bool with_srq) {
    QpInit init;
    init.owner = kOwner;
    init.space = kSpace;
    init.type = type;
    init.pd = pd;
    init.send_cq = send_cq;
    init.recv_cq = recv_cq;
    if (with_srq) init.srq = srq;
    init.caps = {.send_wr_max = 1024,
                 .recv_wr_max = 1024,
                 .send_sge_max = 32,
                 .recv_sge_max = 32,
                 .inline_max = 256};
    const Qpn qpn = *engine.create_qp(init);
    uses_srq_[qpn] = with_srq;
    return qpn;
}

void Host::post_send(Qpn qpn, const SendWqe& wqe) {
    sends_[qpn].push_back(wqe);
    engine.handle_doorbell(qpn);
}

bool Host::has_event(AsyncEventType type) const {
    return std::any_of(events_.begin(), events_.end(),
                       [type](const AsyncEvent& event) { return event.type == type; });
}

bool Host::fetch_send(Qpn qpn, SendWqe& out) {
    auto& queue = sends_[qpn];
    if (queue.empty()) return false;
    out = queue.front();
    queue.pop_front();
    return true;
}

bool Host::fetch_recv(Qpn qpn, RecvWqe& out) {
    auto& queue = uses_srq_[qpn] ? srq_entries_ : recvs_[qpn];
    if (queue.empty()) return false;
    out = queue.front();
    queue.pop_front();
    return true;
}

bool Host::fetch_srq(SrqId, RecvWqe& out) {
    if (srq_entries_.empty()) return false;
    out = srq_entries_.front();
    srq_entries_.pop_front();
    return true;
}

std::uint32_t Host::srq_depth(SrqId) { return static_cast<std::uint32_t>(srq_entries_.size()); }

bool Host::push_completion(CqId cq, const Completion& completion) {
    if (cq_room == 0) return false;
    --cq_room;
    (cq == send_cq ? send_completions_ : recv_completions_).push_back(completion);
    return true;
}

Bench::Bench(std::uint64_t seed, const EngineConfig& config)
    : a(numbered(config, 0, seed), memory, Gid::from_ipv4(0x0a00'0001)),
      b(numbered(config, 1, seed + 77), memory, Gid::from_ipv4(0x0a00'0002)),
      prng_(seed) {}

AddressVector Bench::vector_to(const Gid& gid, const MacAddress& mac) const {
    AddressVector av;
    av.destination = gid;
    av.is_global = true;
    av.hop_limit = 64;
    av.destination_mac = mac;
    return av;
}

AhId Bench::address_of(Host& from, const Host& to, std::uint32_t flow_label) {
    AddressVector av = vector_to(to.gid, to.mac);
    av.flow_label = flow_label;
    return *from.engine.create_ah(Host::kOwner, from.pd, av);
}

void Bench::connect(Qpn a_qpn, Qpn b_qpn, const Connection& connection) {
    struct End {
        Host& host;
        const Host& peer;
        Qpn qpn, peer_qpn;
        Psn sq_psn, rq_psn;
    };
    const End ends[] = {{a, b, a_qpn, b_qpn, connection.psn_a, connection.psn_b},
                        {b, a, b_qpn, a_qpn, connection.psn_b, connection.psn_a}};
    for (const End& end : ends) {
        const QpType type = end.host.type_of(end.qpn);
        // What only acknowledged service needs, at the end that answers and at the end that asks.
        const bool answers = type == QpType::kRc || type == QpType::kXrcRecv;
        const bool asks = type == QpType::kRc || type == QpType::kXrcSend;
        QpAttributes attributes;
        attributes.state = QpState::kInit;
        attributes.access = connection.access;
        const auto modify = [&](std::uint32_t mask) {
            must(end.host.engine.modify_qp(Host::kOwner, end.qpn, attributes, mask, now) == 0,
                 "modify_qp");
        };
        modify(kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags);
        attributes.state = QpState::kRtr;
        attributes.av = vector_to(end.peer.gid, end.peer.mac);
        attributes.av.traffic_class = connection.traffic_class;
        attributes.path_mtu = connection.mtu;
        attributes.destination_qpn = end.peer_qpn;
        attributes.rq_psn = end.rq_psn;
        attributes.responder_resources = connection.resources;
        attributes.min_rnr_timer = connection.min_rnr_timer;
        modify(kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn |
               (answers ? kQpMaxDestRdAtomic | kQpMinRnrTimer : 0));
        attributes.state = QpState::kRts;
        attributes.sq_psn = end.sq_psn;
        attributes.timeout = connection.timeout;
        attributes.retry_count = connection.retry_count;
        attributes.rnr_retry = connection.rnr_retry;
        attributes.reads_outstanding = connection.reads;
        modify(kQpState | kQpSqPsn | (asks ? kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic : 0) |
               (asks || answers ? std::uint32_t{kQpTimeout} : 0));
    }
}

void Bench::ready_datagram(Host& host, Qpn qpn, std::uint32_t qkey, Psn psn) {
    QpAttributes attributes;
    attributes.qkey = qkey;
    attributes.sq_psn = psn;
    const auto modify = [&](QpState state, std::uint32_t mask) {
        attributes.state = state;
        must(host.engine.modify_qp(Host::kOwner, qpn, attributes, kQpState | mask, now) == 0,
             "modify_qp");
    };
    modify(QpState::kInit, kQpPkeyIndex | kQpPort | kQpQkey);
    modify(QpState::kRtr, 0);
    modify(QpState::kRts, kQpSqPsn);
}

void Bench::deliver(wire::Frame& frame) {
    for (Host* const host : {&a, &b}) {
        const MacAddress mac = wire::destination_mac(frame);
        if (mac == host->mac || mac.is_multicast()) host->engine.handle_frame(frame, now);
    }
}

void Bench::hold(const wire::Frame& frame, Duration delay) {
    Held held{now + delay, std::make_unique<wire::Frame>(frame),
              std::make_unique<std::vector<std::byte>>(frame.payload_length)};
    std::size_t offset = 0;
    for (std::size_t i = 0; i < frame.segment_count; ++i) {
        const PayloadSegment& segment = frame.segments[i];
        const CopyOwner owner = owner_of_payload(frame);
        memory.copy(kCardSpace, reinterpret_cast<std::uint64_t>(held.payload->data() + offset),
                    segment, owner);
        offset += segment.length;
    }
    held.frame->segment_count = 0;
    held.frame->payload_length = 0;
    if (offset > 0) {
        held.frame->add_segment({kCardSpace, static_cast<std::uint32_t>(offset),
                                 reinterpret_cast<std::uint64_t>(held.payload->data())});
    }
    held_.push_back(std::move(held));
}

void Bench::carry(wire::Frame& frame) {
    ++frames_sent;
    if (is_tracing) trace.push_back(wire::print(frame));
    if (!fate) return deliver(frame);
    const Fate lot = fate(frame);
    if (lot.is_lost) return;
    for (int copy = 0; copy < (lot.is_repeated ? 2 : 1); ++copy) {
        wire::Frame arriving = frame;
        if (lot.is_corrupted) {
            arriving.keep_emitted_header();
            // A bit of the last header byte, which is no variant field.
            arriving.header[arriving.header_length - 1u] ^= std::byte{1};
        }
        if (lot.is_marked) wire::set_ecn(arriving, wire::kEcnCe);
        if (lot.delay.ns > 0)
            hold(arriving, lot.delay);
        else
            deliver(arriving);
    }
}

bool Bench::release_held() {
    bool any = false;
    for (std::size_t i = 0; i < held_.size(); ++i) {
        if (!held_[i].frame || held_[i].due > now) continue;
        any = true;
        deliver(*held_[i].frame);
        held_[i].frame.reset();  // the payload stays until the copies are done
    }
    return any;
}

void Bench::inject(Host& host, const wire::Frame& frame) {
    wire::Frame arriving = frame;
    host.engine.handle_frame(arriving, now);
    settle();
}

bool Bench::round() {
    bool any = false;
    for (Host* const host : {&a, &b})
        if (host->engine.next_deadline() <= now) host->engine.handle_timeout(now);
    any |= release_held();
    wire::Frame frame;
    for (Host* const host : {&a, &b}) {
        for (int budget = 256; budget > 0 && host->engine.poll_frame(now, frame); --budget) {
            any = true;
            carry(frame);
        }
    }
    faults_.clear();
    memory.flush(faults_);
    a.engine.commit(faults_, now);
    b.engine.commit(faults_, now);
    std::erase_if(held_, [](const Held& held) { return !held.frame; });
    return any || a.engine.has_work() || b.engine.has_work();
}

void Bench::settle() {
    while (round()) {
    }
}

Instant Bench::next_deadline() const {
    Instant next = std::min(a.engine.next_deadline(), b.engine.next_deadline());
    for (const Held& held : held_) next = std::min(next, held.due);
    return next;
}

void Bench::run(Duration limit) {
    const Instant end = now + limit;
    for (;;) {
        settle();
        const Instant next = next_deadline();
        if (next > end) break;
        now = std::max(now, next);
        ++deadlines_met;
    }
}

SendWqe send_wqe(WrOpcode opcode, std::vector<Sge> sges, std::uint64_t wr_id) {
    SendWqe wqe;
    wqe.opcode = opcode;
    wqe.wr_id = wr_id;
    for (const Sge& sge : sges) {
        wqe.sges[wqe.sge_count++] = sge;
        wqe.length += sge.length;
    }
    return wqe;
}

SendWqe rdma_wqe(WrOpcode opcode, std::vector<Sge> sges, const Host::Region& target,
                 std::size_t offset, std::uint64_t wr_id) {
    SendWqe wqe = send_wqe(opcode, std::move(sges), wr_id);
    wqe.remote_address = target.address(offset);
    wqe.rkey = target.keys.rkey;
    return wqe;
}

RecvWqe recv_wqe(std::vector<Sge> sges, std::uint64_t wr_id) {
    RecvWqe wqe;
    wqe.wr_id = wr_id;
    for (const Sge& sge : sges) wqe.sges[wqe.sge_count++] = sge;
    return wqe;
}

}  // namespace rdmalab::transport

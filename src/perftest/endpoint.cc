#include "perftest/endpoint.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/random.h>

#include <algorithm>

#include "perftest/failure.h"
#include "perftest/placement.h"

namespace rdmalab::perftest {

namespace {

constexpr std::uint8_t kHopLimit = 64;
// Answer "not ready" with the shortest wait (0.01 ms): the receives come back within microseconds.
constexpr std::uint8_t kRnrTimer = 1;
constexpr std::uint8_t kRnrRetryForever = 7;
constexpr std::uint32_t kLatencyInline = 220;

std::uint32_t random_psn() {
    std::uint32_t value = 0;
    if (getrandom(&value, sizeof value, 0) != sizeof value) value = 1;
    return value & 0xff'ffff;
}

ibv_qp_type qp_type(Transport transport) {
    switch (transport) {
        case Transport::kUc:
            return IBV_QPT_UC;
        case Transport::kUd:
            return IBV_QPT_UD;
        default:
            return IBV_QPT_RC;
    }
}

ibv_mtu mtu_code(std::uint32_t bytes) {
    switch (bytes) {
        case 256:
            return IBV_MTU_256;
        case 512:
            return IBV_MTU_512;
        case 1024:
            return IBV_MTU_1024;
        case 2048:
            return IBV_MTU_2048;
        default:
            return IBV_MTU_4096;
    }
}

Json ece_json(const ibv_ece& ece) {
    return {{"vendorId", ece.vendor_id}, {"options", ece.options}, {"compMask", ece.comp_mask}};
}

ibv_ece ece_of(const Json& json) {
    ibv_ece ece{};
    ece.vendor_id = json.at("vendorId").get<std::uint32_t>();
    ece.options = json.at("options").get<std::uint32_t>();
    ece.comp_mask = json.at("compMask").get<std::uint32_t>();
    return ece;
}

// Iterations that are in flight at most, on one queue pair.
std::uint32_t in_flight(const Plan& plan) {
    auto group = static_cast<std::uint32_t>(plan.operations.size());
    return std::max(plan.tx_depth / group / plan.block, 1u) * plan.block;
}

std::uint32_t slots_of(const Plan& plan) {
    return plan.metric == Metric::kLatency ? 1 : in_flight(plan);
}

}  // namespace

std::string completion_error_text(const ibv_wc& completion) {
    std::string hint;
    switch (completion.status) {
        case IBV_WC_RETRY_EXC_ERR:
            hint =
                ": the peer does not answer; it has died, or the path between the two GIDs is "
                "cut";
            break;
        case IBV_WC_RNR_RETRY_EXC_ERR:
            hint = ": the peer has no receive posted";
            break;
        case IBV_WC_REM_ACCESS_ERR:
            hint = ": the peer's memory region refused the access";
            break;
        case IBV_WC_LOC_LEN_ERR:
            hint = ": a message did not fit into its receive";
            break;
        case IBV_WC_WR_FLUSH_ERR:
            hint = ": the queue pair had failed before";
            break;
        default:
            break;
    }
    return fmt::format("a work request on QP {} failed with status {} '{}', vendor error {:#x}{}",
                       completion.qp_num, static_cast<int>(completion.status),
                       ibv_wc_status_str(completion.status), completion.vendor_err, hint);
}

Adapter::Adapter(const Side& side, std::optional<int> core) : device(side) {
    require_memory(side);
    if (side.memory == Memory::kHost) numa_node = buffer_node(device.name(), core);
    pd.reset(ibv_alloc_pd(device.context()));
    if (!pd) {
        throw Failure(fmt::format("ibv_alloc_pd on {}: {}", device.name(), strerror(errno)));
    }
}

Endpoint::Endpoint(const Plan& plan, const Side& side, Roles roles,
                   std::shared_ptr<Adapter> adapter)
    : plan_(plan),
      side_(side),
      roles_(roles),
      adapter_(std::move(adapter)),
      device_(adapter_->device),
      mtu_(device_.mtu()) {
    if (plan_.mtu > mtu_) {
        throw Failure(fmt::format("--mtu {}: port {} of {} has an active MTU of {}", plan_.mtu,
                                  device_.port(), device_.name(), mtu_));
    }
    make_queues();
    make_buffers();
    make_qps();
}

void Endpoint::fail(const std::string& what, int error) const {
    throw Failure(fmt::format("{} on {}: {}", what, device_.name(), strerror(error)));
}

void Endpoint::make_queues() {
    std::uint64_t sends = std::uint64_t{plan_.qps} * in_flight(plan_) / plan_.block + 1;
    bool receives = plan_.sends_receives();
    std::uint64_t recvs = receives ? std::uint64_t{plan_.qps} * plan_.rx_depth : kLockstepReceives;
    auto most = static_cast<std::uint64_t>(device_.attr().max_cqe);
    if (sends > most || recvs > most) {
        throw Failure(fmt::format(
            "--qps {} with --tx_depth {} and --rx_depth {}: the completion queue would need {} "
            "entries, {} allows {}",
            plan_.qps, plan_.tx_depth, plan_.rx_depth, std::max(sends, recvs), device_.name(),
            most));
    }
    send_cq_.reset(ibv_create_cq(device_.context(), static_cast<int>(sends), nullptr, nullptr, 0));
    if (!send_cq_) fail(fmt::format("ibv_create_cq of {} entries", sends), errno);
    recv_cq_.reset(ibv_create_cq(device_.context(), static_cast<int>(recvs), nullptr, nullptr, 0));
    if (!recv_cq_) fail(fmt::format("ibv_create_cq of {} entries", recvs), errno);
}

void Endpoint::make_buffers() {
    constexpr int kTarget = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                            IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    for (std::size_t i = 0; i < plan_.operations.size(); ++i) {
        const Operation& operation = plan_.operations[i];
        std::uint32_t slots = slots_of(plan_);
        Layout layout = plan_.validate ? Layout::with_slots(operation.size, plan_.qps, slots)
                                       : Layout::of(operation.size, plan_.qps, slots);
        // One message over all queue pairs, in two halves of which one is being checked.
        if (plan_.lockstep) layout = Layout::with_slots(operation.size, 1, 2);
        target_layouts_.push_back(layout);
        if (roles_.requests) {
            locals_.emplace_back(adapter_->pd.get(), side_.memory, layout, IBV_ACCESS_LOCAL_WRITE,
                                 fmt::format("operation {}", i), adapter_->numa_node);
        }
        if (!roles_.responds) continue;
        Layout target = is_send(operation.verb) ? Layout::of(0, 1, 1) : layout;
        targets_.emplace_back(adapter_->pd.get(), side_.memory, target, kTarget,
                              fmt::format("the target of operation {}", i), adapter_->numa_node);
        // A null MR that cannot be named by a peer: the peer's data needs a place of its own.
        if (side_.memory == Memory::kNullMr && targets_.back().rkey() == 0) {
            targets_.pop_back();
            targets_.emplace_back(adapter_->pd.get(), Memory::kHost, target, kTarget,
                                  fmt::format("the target of operation {}", i),
                                  adapter_->numa_node);
        }
    }
    if (!plan_.sends_receives() || !roles_.responds) return;
    std::uint64_t bytes =
        plan_.largest_receive() + (plan_.transport == Transport::kUd ? kGrhBytes : 0);
    Layout layout = plan_.validate ? Layout::with_slots(bytes, plan_.qps, plan_.rx_depth)
                                   : Layout::of(bytes, plan_.qps, plan_.rx_depth);
    receives_.emplace_back(adapter_->pd.get(), side_.memory, layout, IBV_ACCESS_LOCAL_WRITE,
                           "receives", adapter_->numa_node);
}

Owned<ibv_qp, ibv_destroy_qp> Endpoint::make_qp(std::uint32_t inline_size) {
    ibv_qp_init_attr attr{};
    attr.send_cq = send_cq_.get();
    attr.recv_cq = recv_cq_.get();
    attr.qp_type = qp_type(plan_.transport);
    attr.sq_sig_all = 0;
    attr.cap.max_send_wr = in_flight(plan_) * static_cast<std::uint32_t>(plan_.operations.size());
    if (plan_.lockstep) attr.cap.max_send_wr = 2;
    attr.cap.max_recv_wr =
        plan_.sends_receives() && roles_.responds ? plan_.rx_depth : kLockstepReceives;
    attr.cap.max_send_sge = 1;
    attr.cap.max_recv_sge = 1;
    attr.cap.max_inline_data = inline_size;
    return Owned<ibv_qp, ibv_destroy_qp>(ibv_create_qp(adapter_->pd.get(), &attr));
}

void Endpoint::make_qps() {
    std::uint32_t wish = plan_.inline_size.value_or(
        plan_.metric == Metric::kLatency && plan_.bytes_per_iteration() <= kLatencyInline
            ? kLatencyInline
            : 0);
    if (side_.memory != Memory::kHost) wish = 0;
    inline_size_ = wish;
    for (;;) {
        qps_.push_back(make_qp(inline_size_));
        if (qps_.back()) break;
        int error = errno;
        qps_.clear();
        if (inline_size_ == 0) {
            fail(fmt::format("ibv_create_qp {} with {} sends and {} receives (the device allows "
                             "{} of each)",
                             name_of(plan_.transport), plan_.tx_depth, plan_.rx_depth,
                             device_.attr().max_qp_wr),
                 error);
        }
        inline_size_ /= 2;
    }
    if (inline_size_ < plan_.inline_size.value_or(0)) {
        inline_note_ = fmt::format("--inline_size {}: {} takes {}", *plan_.inline_size,
                                   device_.name(), inline_size_);
    }
    while (qps_.size() < plan_.qps) {
        qps_.push_back(make_qp(inline_size_));
        if (!qps_.back()) {
            fail(fmt::format("ibv_create_qp, number {} of {}", qps_.size(), plan_.qps), errno);
        }
    }
    for (const auto& qp : qps_) {
        psns_.push_back(plan_.start_psn.value_or(random_psn()));
        if (!plan_.use_ece) continue;
        ibv_ece ece{};
        if (int error = ibv_query_ece(qp.get(), &ece)) {
            fail(
                "--use_ece: the device offers no enhanced connection establishment: "
                "ibv_query_ece",
                error);
        }
        eces_.push_back(ece);
    }
}

void Endpoint::choose_gid(const Json& peer) {
    gid_ = device_.choose_gid(side_, plan_.gid_family,
                              peer.is_object() ? peer.value("gid", Json()) : Json());
}

Json Endpoint::ece() const {
    Json out = Json::array();
    for (const ibv_ece& ece : eces_) out.push_back(ece_json(ece));
    return out;
}

Json Endpoint::describe() const {
    Json targets = Json::array(), qpns = Json::array();
    for (const Buffer& target : targets_) {
        targets.push_back({{"address", target.address(0, 0)}, {"rkey", target.rkey()}});
    }
    for (const auto& qp : qps_) qpns.push_back(qp->qp_num);
    return {{"device", device_.name()},
            {"ibPort", device_.port()},
            {"linkLayer", device_.is_ethernet() ? "Ethernet" : "InfiniBand"},
            {"lid", device_.port_attr().lid},
            {"gid", gid_ ? gid_->to_json() : Json()},
            {"gidRaw",
             gid_ ? Json(std::vector<std::uint8_t>(gid_->gid.raw, gid_->gid.raw + 16)) : Json()},
            {"mtu", mtu_},
            {"qpns", qpns},
            {"psns", psns_},
            {"targets", targets},
            {"readsMax", device_.attr().max_qp_rd_atom},
            {"readsInitMax", device_.attr().max_qp_init_rd_atom},
            {"ece", ece()},
            {"inlineSize", inline_size_},
            {"note", inline_note_},
            {"hugePages", !locals_.empty() && locals_.front().is_huge()},
            {"numaNode", adapter_->numa_node ? Json(*adapter_->numa_node) : Json()},
            {"memoryType", name_of(side_.memory)}};
}

void Endpoint::check_gid(const Json& peer) const {
    const Json gid = peer.value("gid", Json());
    if (peer.value("linkLayer", "") != (device_.is_ethernet() ? "Ethernet" : "InfiniBand")) {
        throw Failure(fmt::format("link layers differ: port {} of {} is {}, the peer's {} is {}",
                                  device_.port(), device_.name(),
                                  device_.is_ethernet() ? "Ethernet" : "InfiniBand",
                                  peer.value("device", "?"), peer.value("linkLayer", "?")));
    }
    if (gid.is_object() != gid_.has_value()) {
        throw Failure(
            "GIDs differ: one side uses a GID, the other none; give --gid_index to both "
            "or to none");
    }
    if (!gid_) return;
    bool same = gid.value("type", "") == gid_->type &&
                gid.value("linkLocal", false) == gid_->link_local &&
                gid.value("family", "") == (gid_->family == 4 ? "ipv4" : "ipv6");
    if (!same) {
        throw Failure(fmt::format(
            "GIDs do not match: {} uses index {}, {} {}; the peer's {} uses index {}, {} {}{} {}",
            device_.name(), gid_->index, gid_->kind(), gid_->text, peer.value("device", "?"),
            gid.value("index", 0), gid.value("type", "?"),
            gid.value("family", "") == "ipv4" ? "IPv4" : "IPv6",
            gid.value("linkLocal", false) ? " link-local" : "", gid.value("address", "?")));
    }
}

void Endpoint::settle_mtu(const Json& peer) {
    mtu_ = std::min(mtu_, peer.at("mtu").get<std::uint32_t>());
    if (plan_.mtu > mtu_) {
        throw Failure(fmt::format("--mtu {}: the two ports have {} in common", plan_.mtu, mtu_));
    }
    if (plan_.mtu > 0) mtu_ = plan_.mtu;
    for (const Operation& operation : plan_.operations) {
        if (plan_.transport == Transport::kUd && operation.size > mtu_) {
            throw Failure(
                fmt::format("--msg_size {}: a UD message is one packet, and the path MTU "
                            "is {}",
                            operation.size, mtu_));
        }
    }
}

// The five steps: the client has proposed what its device offers; the server takes that, goes to
// INIT and answers with what its device made of it; the client takes the answer, goes to INIT and
// checks that its device agrees.
void Endpoint::apply_ece(const Json& peer, bool is_server) {
    const Json& offers = peer.at("ece");
    if (offers.size() != qps_.size()) {
        throw Failure(fmt::format("--use_ece: expected {} offers from the peer, found {}",
                                  qps_.size(), offers.size()));
    }
    for (std::size_t i = 0; i < qps_.size(); ++i) {
        ibv_ece offered = ece_of(offers[i]);
        if (int error = ibv_set_ece(qps_[i].get(), &offered)) fail("--use_ece: ibv_set_ece", error);
        to_init(qps_[i].get());
        ibv_ece settled{};
        if (int error = ibv_query_ece(qps_[i].get(), &settled)) {
            fail("--use_ece: ibv_query_ece in INIT", error);
        }
        if (!is_server && settled.options != offered.options) {
            throw Failure(
                fmt::format("--use_ece: the server settled on options {:#x}, {} made {:#x} of them",
                            offered.options, device_.name(), settled.options));
        }
        eces_[i] = settled;
    }
}

void Endpoint::to_init(ibv_qp* qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = device_.port();
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if (plan_.transport == Transport::kUd) {
        attr.qkey = kQkey;
        mask |= IBV_QP_QKEY;
    } else {
        attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        if (plan_.transport == Transport::kRc) {
            attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        }
        mask |= IBV_QP_ACCESS_FLAGS;
    }
    if (int error = ibv_modify_qp(qp, &attr, mask)) fail("ibv_modify_qp to INIT", error);
}

ibv_ah_attr Endpoint::path_to(const Json& peer) const {
    ibv_ah_attr path{};
    path.port_num = device_.port();
    path.sl = plan_.service_level;
    path.dlid = peer.at("lid").get<std::uint16_t>();
    if (gid_) {
        auto raw = peer.at("gidRaw").get<std::vector<std::uint8_t>>();
        if (raw.size() != sizeof path.grh.dgid.raw) throw Failure("the peer sent no GID");
        path.is_global = 1;
        memcpy(path.grh.dgid.raw, raw.data(), raw.size());
        path.grh.sgid_index = gid_->index;
        path.grh.hop_limit = kHopLimit;
        path.grh.traffic_class = plan_.traffic_class;
    }
    return path;
}

void Endpoint::to_ready(std::uint32_t index, const Json& peer) {
    ibv_qp* qp = qps_[index].get();
    bool rc = plan_.transport == Transport::kRc, ud = plan_.transport == Transport::kUd;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    int mask = IBV_QP_STATE;
    if (!ud) {
        attr.ah_attr = path_to(peer);
        attr.path_mtu = mtu_code(mtu_);
        attr.dest_qp_num = peer_qpns_[index];
        attr.rq_psn = peer.at("psns").at(index).get<std::uint32_t>();
        mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    }
    if (rc) {
        attr.max_dest_rd_atomic = static_cast<std::uint8_t>(
            std::min({device_.attr().max_qp_rd_atom, peer.at("readsInitMax").get<int>(), 255}));
        attr.min_rnr_timer = kRnrTimer;
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    }
    if (int error = ibv_modify_qp(qp, &attr, mask)) fail("ibv_modify_qp to RTR", error);
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = psns_[index];
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (rc) {
        attr.timeout = plan_.qp_timeout;
        attr.retry_cnt = plan_.retry_count;
        attr.rnr_retry = kRnrRetryForever;
        attr.max_rd_atomic = static_cast<std::uint8_t>(
            std::min({device_.attr().max_qp_init_rd_atom, peer.at("readsMax").get<int>(), 255}));
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    if (int error = ibv_modify_qp(qp, &attr, mask)) fail("ibv_modify_qp to RTS", error);
}

void Endpoint::connect(const Json& peer, bool is_server) {
    check_gid(peer);
    settle_mtu(peer);
    peer_qpns_ = peer.at("qpns").get<std::vector<std::uint32_t>>();
    if (peer_qpns_.size() != qps_.size() || peer.at("psns").size() != qps_.size()) {
        throw Failure(fmt::format("the peer has {} queue pairs, expected {}", peer_qpns_.size(),
                                  qps_.size()));
    }
    for (const Json& target : peer.at("targets")) {
        remotes_.push_back(
            {target.at("address").get<std::uint64_t>(), target.at("rkey").get<std::uint32_t>()});
    }
    if (roles_.requests && remotes_.size() != plan_.operations.size()) {
        throw Failure(fmt::format("the peer offers {} targets, expected {}", remotes_.size(),
                                  plan_.operations.size()));
    }
    if (plan_.use_ece) {
        apply_ece(peer, is_server);
    } else {
        for (const auto& qp : qps_) to_init(qp.get());
    }
    for (std::uint32_t i = 0; i < qps_.size(); ++i) to_ready(i, peer);
    if (plan_.transport == Transport::kUd) {
        ibv_ah_attr path = path_to(peer);
        ah_.reset(ibv_create_ah(adapter_->pd.get(), &path));
        if (!ah_) fail("ibv_create_ah", errno);
    }
}

}  // namespace rdmalab::perftest

#include "card/verbs_values.h"

#include <bit>
#include <cstring>

namespace rdmalab::card {

using transport::AsyncEventType;
using transport::QpState;
using transport::QpType;

namespace {
// enum ibv_qp_state has the order of QpState.
constexpr std::uint32_t kIbvQpsErr = 6;
static_assert(static_cast<std::uint32_t>(QpState::kErr) == kIbvQpsErr);

constexpr std::uint32_t kQpAccess = transport::kAccessLocalWrite | transport::kAccessRemoteWrite |
                                    transport::kAccessRemoteRead | transport::kAccessRemoteAtomic |
                                    transport::kAccessMwBind;
// Rights of a region that mean nothing for a QP. Programs pass the flags of their regions on, and
// adapters ignore them.
constexpr std::uint32_t kRegionOnly =
    transport::kAccessZeroBased | transport::kAccessOnDemand | kIbvAccessHugetlb;
constexpr std::uint32_t kMrAccess = kQpAccess | kRegionOnly;
}  // namespace

std::optional<QpType> qp_type_from_verbs(std::uint32_t type) {
    switch (type) {
        case kIbvQptRc:
            return QpType::kRc;
        case kIbvQptUc:
            return QpType::kUc;
        case kIbvQptUd:
            return QpType::kUd;
        case kIbvQptRawPacket:
            return QpType::kRaw;
        case kIbvQptXrcSend:
            return QpType::kXrcSend;
        case kIbvQptXrcRecv:
            return QpType::kXrcRecv;
        default:
            return std::nullopt;
    }
}

std::uint32_t event_to_verbs(AsyncEventType type) {
    switch (type) {
        case AsyncEventType::kCqError:
            return kIbvEventCqErr;
        case AsyncEventType::kQpFatal:
            return kIbvEventQpFatal;
        case AsyncEventType::kQpRequestError:
            return kIbvEventQpReqErr;
        case AsyncEventType::kQpAccessError:
            return kIbvEventQpAccessErr;
        case AsyncEventType::kCommEstablished:
            return kIbvEventCommEst;
        case AsyncEventType::kSqDrained:
            return kIbvEventSqDrained;
        case AsyncEventType::kPathMigrated:
            return kIbvEventPathMig;
        case AsyncEventType::kQpLastWqeReached:
            return kIbvEventQpLastWqeReached;
        case AsyncEventType::kSrqError:
            return kIbvEventSrqErr;
        case AsyncEventType::kSrqLimitReached:
            return kIbvEventSrqLimitReached;
        case AsyncEventType::kDeviceFatal:
            return kIbvEventDeviceFatal;
        case AsyncEventType::kPortActive:
            return kIbvEventPortActive;
        case AsyncEventType::kPortError:
            return kIbvEventPortErr;
        case AsyncEventType::kGidChange:
            return kIbvEventGidChange;
    }
    return kIbvEventDeviceFatal;
}

std::uint32_t mtu_to_verbs(std::uint32_t bytes) {
    return bytes < 256 ? 0 : static_cast<std::uint32_t>(std::bit_width(bytes)) - 8;
}
std::optional<std::uint32_t> mtu_from_verbs(std::uint32_t mtu) {
    if (mtu < 1 || mtu > 5) return std::nullopt;
    return 128u << mtu;
}

transport::AddressVector av_from_abi(const abi::AhAttributes& attributes) {
    transport::AddressVector av;
    std::memcpy(av.destination.bytes.data(), attributes.dgid, sizeof attributes.dgid);
    av.gid_index = attributes.sgid_index;
    av.traffic_class = attributes.traffic_class;
    av.hop_limit = attributes.hop_limit;
    av.service_level = attributes.service_level;
    av.static_rate = attributes.static_rate;
    av.port = attributes.port;
    av.is_global = attributes.is_global != 0;
    av.flow_label = attributes.flow_label & 0xf'ffff;
    return av;
}

namespace {
abi::AhAttributes av_to_abi(const transport::AddressVector& av) {
    abi::AhAttributes attributes{};
    std::memcpy(attributes.dgid, av.destination.bytes.data(), sizeof attributes.dgid);
    attributes.flow_label = av.flow_label;
    attributes.sgid_index = av.gid_index;
    attributes.hop_limit = av.hop_limit;
    attributes.traffic_class = av.traffic_class;
    attributes.is_global = av.is_global;
    attributes.service_level = av.service_level;
    attributes.static_rate = av.static_rate;
    attributes.port = av.port;
    return attributes;
}
}  // namespace

std::optional<transport::QpAttributes> attributes_from_abi(const abi::QpAttributes& in,
                                                           std::uint32_t mask) {
    const auto given = [mask](std::uint32_t bit) { return (mask & bit) != 0; };
    transport::QpAttributes out;
    if (given(transport::kQpState)) {
        if (in.state > kIbvQpsErr) return std::nullopt;
        out.state = static_cast<QpState>(in.state);
    }
    if (given(transport::kQpCurState)) {
        if (in.current_state > kIbvQpsErr) return std::nullopt;
        out.current_state = static_cast<QpState>(in.current_state);
    }
    if (given(transport::kQpPathMtu)) {
        const auto bytes = mtu_from_verbs(in.path_mtu);
        if (!bytes) return std::nullopt;
        out.path_mtu = *bytes;
    }
    if (given(transport::kQpAccessFlags) &&
        (in.access & ~(kQpAccess | kRegionOnly | kIbvAccessOptionalRange)) != 0) {
        return std::nullopt;
    }
    out.sqd_async_notify = in.sqd_async_notify != 0;
    out.access = in.access & kQpAccess;
    out.pkey_index = in.pkey_index;
    out.port = in.port;
    out.qkey = in.qkey;
    out.av = av_from_abi(in.ah);
    out.timeout = in.timeout;
    out.retry_count = in.retry_count;
    out.rnr_retry = in.rnr_retry;
    out.rq_psn = Psn(in.rq_psn);
    out.sq_psn = Psn(in.sq_psn);
    out.reads_outstanding = in.reads_outstanding;
    out.responder_resources = in.responder_resources;
    out.min_rnr_timer = in.min_rnr_timer;
    out.destination_qpn = {in.destination_qpn & 0xff'ffff};
    out.caps = {in.send_wr_max, in.recv_wr_max, in.send_sge_max, in.recv_sge_max, in.inline_max};
    out.rate_limit_kbps = in.rate_limit_kbps;
    static_assert(abi::kEceSupported == transport::kEceSupported);
    static_assert(abi::kModifyEce == transport::kQpEce);
    out.ece_options = in.ece_options;
    return out;
}

abi::QpAttributes attributes_to_abi(const transport::QpAttributes& in) {
    abi::QpAttributes out{};
    out.state = static_cast<std::uint32_t>(in.state);
    out.current_state = static_cast<std::uint32_t>(in.current_state);
    out.path_mtu = mtu_to_verbs(in.path_mtu);
    out.qkey = in.qkey;
    out.rq_psn = in.rq_psn.value();
    out.sq_psn = in.sq_psn.value();
    out.destination_qpn = in.destination_qpn.value;
    out.access = in.access;
    out.ah = av_to_abi(in.av);
    out.pkey_index = in.pkey_index;
    out.sqd_async_notify = in.sqd_async_notify;
    out.sq_draining = in.sq_draining;
    out.reads_outstanding = in.reads_outstanding;
    out.responder_resources = in.responder_resources;
    out.min_rnr_timer = in.min_rnr_timer;
    out.port = in.port;
    out.timeout = in.timeout;
    out.retry_count = in.retry_count;
    out.rnr_retry = in.rnr_retry;
    out.rate_limit_kbps = in.rate_limit_kbps;
    out.ece_options = static_cast<std::uint8_t>(in.ece_options);
    out.send_wr_max = in.caps.send_wr_max;
    out.recv_wr_max = in.caps.recv_wr_max;
    out.send_sge_max = in.caps.send_sge_max;
    out.recv_sge_max = in.caps.recv_sge_max;
    out.inline_max = in.caps.inline_max;
    return out;
}

std::optional<std::uint32_t> mr_access_from_verbs(std::uint32_t access) {
    if ((access & ~(kMrAccess | kIbvAccessOptionalRange)) != 0) return std::nullopt;
    const std::uint32_t remote_change =
        transport::kAccessRemoteWrite | transport::kAccessRemoteAtomic;
    if ((access & remote_change) != 0 && (access & transport::kAccessLocalWrite) == 0) {
        return std::nullopt;
    }
    return access & ~kIbvAccessHugetlb & (kMrAccess | transport::kAccessRelaxedOrdering);
}

}  // namespace rdmalab::card

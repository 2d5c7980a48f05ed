// Layouts of the communication management messages. The view structs follow tables 106 to 126 of
// IBTA vol. 1, chapter 12, byte by byte; where several fields share a byte the comment gives them
// from the most significant bit on with their widths.
#include "wire/mad.h"

#include <algorithm>
#include <type_traits>

namespace rdmalab::wire {
namespace {

constexpr std::size_t kMessageLength = kMadLength - sizeof(MadHeader);

struct PathView {
    Be16 local_lid, remote_lid;
    std::array<std::uint8_t, 16> local_gid, remote_gid;
    Be32 label_rate;  // flow label 20, reserved 6, packet rate 6
    std::uint8_t traffic_class;
    std::uint8_t hop_limit;
    std::uint8_t level_subnet;  // service level 4, subnet local 1, reserved 3
    std::uint8_t ack_timeout;   // 5, reserved 3
};
struct ReqView {
    Be32 local_comm_id;
    std::uint8_t reserved0;
    Be24 vendor_id;
    Be64 service_id;
    Be64 ca_guid;
    Be32 reserved1;
    Be32 qkey;
    Be24 qpn;
    std::uint8_t responder_resources;
    Be24 local_eecn;
    std::uint8_t initiator_depth;
    Be24 remote_eecn;
    std::uint8_t timeout_service_flow;  // remote response timeout 5, service 2, flow control 1
    Be24 starting_psn;
    std::uint8_t timeout_retry;  // local response timeout 5, retry count 3
    Be16 pkey;
    std::uint8_t mtu_rnr;      // path MTU 4, RDC exists 1, RNR retry count 3
    std::uint8_t retries_srq;  // max CM retries 4, SRQ 1, extended transport type 3
    PathView primary, alternate;
    PrivateData<92> private_data;
};
struct MraView {
    Be32 local_comm_id, remote_comm_id;
    std::uint8_t subject;          // 2, reserved 6
    std::uint8_t service_timeout;  // 5, reserved 3
    PrivateData<222> private_data;
};
struct RejView {
    Be32 local_comm_id, remote_comm_id;
    std::uint8_t subject;      // 2, reserved 6
    std::uint8_t info_length;  // 7, reserved 1
    Be16 reason;
    std::array<std::uint8_t, 72> info;
    PrivateData<148> private_data;
};
struct RepView {
    Be32 local_comm_id, remote_comm_id;
    Be32 qkey;
    Be24 qpn;
    std::uint8_t vendor_id_high;
    Be24 eecn;
    std::uint8_t vendor_id_middle;
    Be24 starting_psn;
    std::uint8_t vendor_id_low;
    std::uint8_t responder_resources;
    std::uint8_t initiator_depth;
    std::uint8_t delay_failover_flow;  // target ACK delay 5, failover accepted 2, flow control 1
    std::uint8_t rnr_srq;              // RNR retry count 3, SRQ 1, reserved 4
    Be64 ca_guid;
    PrivateData<196> private_data;
};
struct RtuView {  // and DREP
    Be32 local_comm_id, remote_comm_id;
    PrivateData<224> private_data;
};
struct DreqView {
    Be32 local_comm_id, remote_comm_id;
    Be24 remote_qpn;
    std::uint8_t reserved;
    PrivateData<220> private_data;
};
struct SidrReqView {
    Be32 request_id;
    Be16 pkey;
    Be16 reserved;
    Be64 service_id;
    PrivateData<216> private_data;
};
struct SidrRepView {
    Be32 request_id;
    std::uint8_t status;
    std::uint8_t info_length;
    Be16 vendor_id_high;
    Be24 qpn;
    std::uint8_t vendor_id_low;
    Be64 service_id;
    Be32 qkey;
    std::array<std::uint8_t, 72> info;
    PrivateData<136> private_data;
};
struct LapView {
    Be32 local_comm_id, remote_comm_id;
    Be32 reserved0;
    Be24 remote_qpn;
    std::uint8_t response_timeout;  // 5, reserved 3
    Be32 reserved1;
    Be16 local_lid, remote_lid;
    std::array<std::uint8_t, 16> local_gid, remote_gid;
    Be24 flow_label;  // 20, reserved 4
    std::uint8_t traffic_class;
    std::uint8_t hop_limit;
    std::uint8_t packet_rate;   // reserved 2, rate 6
    std::uint8_t level_subnet;  // service level 4, subnet local 1, reserved 3
    std::uint8_t ack_timeout;   // 5, reserved 3
    PrivateData<168> private_data;
};
struct AprView {
    Be32 local_comm_id, remote_comm_id;
    std::uint8_t info_length;
    std::uint8_t status;
    Be16 reserved;
    std::array<std::uint8_t, 72> info;
    PrivateData<148> private_data;
};
struct IpCmView {
    std::uint8_t version;
    std::uint8_t ip_version;  // 4, reserved 4
    Be16 source_port;
    std::array<std::uint8_t, 16> source, destination;  // IPv4 in the last four bytes
};
static_assert(sizeof(PathView) == 44);
static_assert(sizeof(ReqView) == kMessageLength && sizeof(MraView) == kMessageLength);
static_assert(sizeof(RejView) == kMessageLength && sizeof(RepView) == kMessageLength);
static_assert(sizeof(RtuView) == kMessageLength && sizeof(DreqView) == kMessageLength);
static_assert(sizeof(SidrReqView) == kMessageLength && sizeof(SidrRepView) == kMessageLength);
static_assert(sizeof(LapView) == kMessageLength && sizeof(AprView) == kMessageLength);
static_assert(sizeof(IpCmView) == kIpCmHeaderLength);

// Fields that share a byte: `width` bits whose lowest is bit `shift`.
constexpr std::uint8_t put(unsigned value, unsigned shift, unsigned width) {
    return static_cast<std::uint8_t>((value & ((1u << width) - 1)) << shift);
}
constexpr std::uint8_t get(unsigned byte, unsigned shift, unsigned width) {
    return static_cast<std::uint8_t>(byte >> shift & ((1u << width) - 1));
}
constexpr std::uint8_t byte_of(std::uint32_t value, unsigned shift) {
    return static_cast<std::uint8_t>(value >> shift);
}

PathView view_of(const CmPath& path) {
    PathView view{};
    view.local_lid = path.local_lid;
    view.remote_lid = path.remote_lid;
    view.local_gid = path.local_gid.bytes;
    view.remote_gid = path.remote_gid.bytes;
    view.label_rate = path.flow_label << 12 | put(path.packet_rate, 0, 6);
    view.traffic_class = path.traffic_class;
    view.hop_limit = path.hop_limit;
    view.level_subnet =
        static_cast<std::uint8_t>(put(path.service_level, 4, 4) | put(path.subnet_local, 3, 1));
    view.ack_timeout = put(path.ack_timeout, 3, 5);
    return view;
}

CmPath value_of(const PathView& view) {
    CmPath path;
    path.local_lid = view.local_lid;
    path.remote_lid = view.remote_lid;
    path.local_gid.bytes = view.local_gid;
    path.remote_gid.bytes = view.remote_gid;
    path.flow_label = view.label_rate >> 12;
    path.packet_rate = get(view.label_rate & 0xff, 0, 6);
    path.traffic_class = view.traffic_class;
    path.hop_limit = view.hop_limit;
    path.service_level = get(view.level_subnet, 4, 4);
    path.subnet_local = get(view.level_subnet, 3, 1) != 0;
    path.ack_timeout = get(view.ack_timeout, 3, 5);
    return path;
}

ReqView view_of(const ReqMessage& m) {
    ReqView view{};
    view.local_comm_id = m.local_comm_id;
    view.vendor_id = m.ece.vendor_id;
    view.service_id = m.service_id;
    view.ca_guid = m.ca_guid;
    view.qkey = m.qkey;
    view.qpn = m.qpn.value;
    view.responder_resources = m.responder_resources;
    view.initiator_depth = m.initiator_depth;
    view.timeout_service_flow = static_cast<std::uint8_t>(
        put(m.remote_response_timeout, 3, 5) | put(static_cast<unsigned>(m.service), 1, 2) |
        put(m.flow_control, 0, 1));
    view.starting_psn = m.starting_psn.value();
    view.timeout_retry =
        static_cast<std::uint8_t>(put(m.local_response_timeout, 3, 5) | put(m.retry_count, 0, 3));
    view.pkey = m.pkey;
    view.mtu_rnr = static_cast<std::uint8_t>(put(m.path_mtu, 4, 4) | put(m.rnr_retry_count, 0, 3));
    view.retries_srq = static_cast<std::uint8_t>(put(m.max_cm_retries, 4, 4) | put(m.srq, 3, 1) |
                                                 put(m.extended_service, 0, 3));
    view.primary = view_of(m.primary);
    view.alternate = view_of(m.alternate);
    view.private_data = m.private_data;
    return view;
}

MadError load_view(const ReqView& view, ReqMessage& m) {
    m.local_comm_id = view.local_comm_id;
    m.ece.vendor_id = view.vendor_id;
    m.service_id = view.service_id;
    m.ca_guid = view.ca_guid;
    m.qkey = view.qkey;
    m.qpn = Qpn{view.qpn};
    m.responder_resources = view.responder_resources;
    m.initiator_depth = view.initiator_depth;
    m.remote_response_timeout = get(view.timeout_service_flow, 3, 5);
    m.service = static_cast<CmService>(get(view.timeout_service_flow, 1, 2));
    m.flow_control = get(view.timeout_service_flow, 0, 1) != 0;
    m.starting_psn = Psn(view.starting_psn);
    m.local_response_timeout = get(view.timeout_retry, 3, 5);
    m.retry_count = get(view.timeout_retry, 0, 3);
    m.pkey = view.pkey;
    m.path_mtu = get(view.mtu_rnr, 4, 4);
    m.rnr_retry_count = get(view.mtu_rnr, 0, 3);
    m.max_cm_retries = get(view.retries_srq, 4, 4);
    m.srq = get(view.retries_srq, 3, 1) != 0;
    m.extended_service = get(view.retries_srq, 0, 3);
    m.primary = value_of(view.primary);
    m.alternate = value_of(view.alternate);
    m.private_data = view.private_data;
    return MadError::kNone;
}

MraView view_of(const MraMessage& m) {
    MraView view{};
    view.local_comm_id = m.local_comm_id;
    view.remote_comm_id = m.remote_comm_id;
    view.subject = put(static_cast<unsigned>(m.subject), 6, 2);
    view.service_timeout = put(m.service_timeout, 3, 5);
    view.private_data = m.private_data;
    return view;
}

MadError load_view(const MraView& view, MraMessage& m) {
    m.local_comm_id = view.local_comm_id;
    m.remote_comm_id = view.remote_comm_id;
    m.subject = static_cast<CmSubject>(get(view.subject, 6, 2));
    m.service_timeout = get(view.service_timeout, 3, 5);
    m.private_data = view.private_data;
    return MadError::kNone;
}

RejView view_of(const RejMessage& m) {
    RejView view{};
    view.local_comm_id = m.local_comm_id;
    view.remote_comm_id = m.remote_comm_id;
    view.subject = put(static_cast<unsigned>(m.subject), 6, 2);
    view.info_length = put(m.info_length, 1, 7);
    view.reason = m.reason;
    view.info = m.info;
    view.private_data = m.private_data;
    return view;
}

MadError load_view(const RejView& view, RejMessage& m) {
    m.local_comm_id = view.local_comm_id;
    m.remote_comm_id = view.remote_comm_id;
    m.subject = static_cast<CmSubject>(get(view.subject, 6, 2));
    m.info_length = get(view.info_length, 1, 7);
    m.reason = view.reason;
    m.info = view.info;
    m.private_data = view.private_data;
    return m.info_length > m.info.size() ? MadError::kBadField : MadError::kNone;
}

RepView view_of(const RepMessage& m) {
    RepView view{};
    view.local_comm_id = m.local_comm_id;
    view.remote_comm_id = m.remote_comm_id;
    view.qkey = m.qkey;
    view.qpn = m.qpn.value;
    view.eecn = m.eecn;
    view.vendor_id_high = byte_of(m.ece.vendor_id, 16);
    view.vendor_id_middle = byte_of(m.ece.vendor_id, 8);
    view.vendor_id_low = byte_of(m.ece.vendor_id, 0);
    view.starting_psn = m.starting_psn.value();
    view.responder_resources = m.responder_resources;
    view.initiator_depth = m.initiator_depth;
    view.delay_failover_flow = static_cast<std::uint8_t>(
        put(m.target_ack_delay, 3, 5) | put(m.failover_accepted, 1, 2) | put(m.flow_control, 0, 1));
    view.rnr_srq = static_cast<std::uint8_t>(put(m.rnr_retry_count, 5, 3) | put(m.srq, 4, 1));
    view.ca_guid = m.ca_guid;
    view.private_data = m.private_data;
    return view;
}

MadError load_view(const RepView& view, RepMessage& m) {
    m.local_comm_id = view.local_comm_id;
    m.remote_comm_id = view.remote_comm_id;
    m.qkey = view.qkey;
    m.qpn = Qpn{view.qpn};
    m.ece.vendor_id = std::uint32_t{view.vendor_id_high} << 16 |
                      std::uint32_t{view.vendor_id_middle} << 8 | view.vendor_id_low;
    m.eecn = view.eecn;
    m.starting_psn = Psn(view.starting_psn);
    m.responder_resources = view.responder_resources;
    m.initiator_depth = view.initiator_depth;
    m.target_ack_delay = get(view.delay_failover_flow, 3, 5);
    m.failover_accepted = get(view.delay_failover_flow, 1, 2);
    m.flow_control = get(view.delay_failover_flow, 0, 1) != 0;
    m.rnr_retry_count = get(view.rnr_srq, 5, 3);
    m.srq = get(view.rnr_srq, 4, 1) != 0;
    m.ca_guid = view.ca_guid;
    m.private_data = view.private_data;
    return MadError::kNone;
}

RtuView view_of(const RtuMessage& m) { return {m.local_comm_id, m.remote_comm_id, m.private_data}; }
RtuView view_of(const DrepMessage& m) {
    return {m.local_comm_id, m.remote_comm_id, m.private_data};
}
template <class Message>
requires std::is_same_v<Message, RtuMessage> || std::is_same_v<Message, DrepMessage> MadError
load_view(const RtuView& view, Message& m) {
    m.local_comm_id = view.local_comm_id;
    m.remote_comm_id = view.remote_comm_id;
    m.private_data = view.private_data;
    return MadError::kNone;
}

DreqView view_of(const DreqMessage& m) {
    return {m.local_comm_id, m.remote_comm_id, m.remote_qpn.value, 0, m.private_data};
}
MadError load_view(const DreqView& view, DreqMessage& m) {
    m.local_comm_id = view.local_comm_id;
    m.remote_comm_id = view.remote_comm_id;
    m.remote_qpn = Qpn{view.remote_qpn};
    m.private_data = view.private_data;
    return MadError::kNone;
}

SidrReqView view_of(const SidrReqMessage& m) {
    return {m.request_id, m.pkey, 0, m.service_id, m.private_data};
}
MadError load_view(const SidrReqView& view, SidrReqMessage& m) {
    m.request_id = view.request_id;
    m.pkey = view.pkey;
    m.service_id = view.service_id;
    m.private_data = view.private_data;
    return MadError::kNone;
}

SidrRepView view_of(const SidrRepMessage& m) {
    SidrRepView view{};
    view.request_id = m.request_id;
    view.status = m.status;
    view.info_length = m.info_length;
    view.vendor_id_high = static_cast<std::uint16_t>(m.ece.vendor_id >> 8);
    view.vendor_id_low = byte_of(m.ece.vendor_id, 0);
    view.qpn = m.qpn.value;
    view.service_id = m.service_id;
    view.qkey = m.qkey;
    view.info = m.info;
    view.private_data = m.private_data;
    return view;
}

MadError load_view(const SidrRepView& view, SidrRepMessage& m) {
    m.request_id = view.request_id;
    m.status = view.status;
    m.info_length = view.info_length;
    m.ece.vendor_id = std::uint32_t{view.vendor_id_high} << 8 | view.vendor_id_low;
    m.qpn = Qpn{view.qpn};
    m.service_id = view.service_id;
    m.qkey = view.qkey;
    m.info = view.info;
    m.private_data = view.private_data;
    return m.info_length > m.info.size() ? MadError::kBadField : MadError::kNone;
}

LapView view_of(const LapMessage& m) {
    LapView view{};
    view.local_comm_id = m.local_comm_id;
    view.remote_comm_id = m.remote_comm_id;
    view.remote_qpn = m.remote_qpn.value;
    view.response_timeout = put(m.remote_response_timeout, 3, 5);
    view.local_lid = m.alternate.local_lid;
    view.remote_lid = m.alternate.remote_lid;
    view.local_gid = m.alternate.local_gid.bytes;
    view.remote_gid = m.alternate.remote_gid.bytes;
    view.flow_label = m.alternate.flow_label << 4 & 0xff'fff0;
    view.traffic_class = m.alternate.traffic_class;
    view.hop_limit = m.alternate.hop_limit;
    view.packet_rate = put(m.alternate.packet_rate, 0, 6);
    view.level_subnet = static_cast<std::uint8_t>(put(m.alternate.service_level, 4, 4) |
                                                  put(m.alternate.subnet_local, 3, 1));
    view.ack_timeout = put(m.alternate.ack_timeout, 3, 5);
    view.private_data = m.private_data;
    return view;
}

MadError load_view(const LapView& view, LapMessage& m) {
    m.local_comm_id = view.local_comm_id;
    m.remote_comm_id = view.remote_comm_id;
    m.remote_qpn = Qpn{view.remote_qpn};
    m.remote_response_timeout = get(view.response_timeout, 3, 5);
    m.alternate.local_lid = view.local_lid;
    m.alternate.remote_lid = view.remote_lid;
    m.alternate.local_gid.bytes = view.local_gid;
    m.alternate.remote_gid.bytes = view.remote_gid;
    m.alternate.flow_label = view.flow_label >> 4;
    m.alternate.traffic_class = view.traffic_class;
    m.alternate.hop_limit = view.hop_limit;
    m.alternate.packet_rate = get(view.packet_rate, 0, 6);
    m.alternate.service_level = get(view.level_subnet, 4, 4);
    m.alternate.subnet_local = get(view.level_subnet, 3, 1) != 0;
    m.alternate.ack_timeout = get(view.ack_timeout, 3, 5);
    m.private_data = view.private_data;
    return MadError::kNone;
}

AprView view_of(const AprMessage& m) {
    return {m.local_comm_id, m.remote_comm_id, m.info_length, m.status, 0, m.info, m.private_data};
}

MadError load_view(const AprView& view, AprMessage& m) {
    m.local_comm_id = view.local_comm_id;
    m.remote_comm_id = view.remote_comm_id;
    m.info_length = view.info_length;
    m.status = view.status;
    m.info = view.info;
    m.private_data = view.private_data;
    return m.info_length > m.info.size() ? MadError::kBadField : MadError::kNone;
}

template <class Message>
MadError load_message(const MadHeader& header, ByteView body, CmMessage& out) {
    Message message;
    message.transaction_id = header.transaction_id;
    if constexpr (requires { message.ece; }) message.ece.options = header.attribute_modifier;
    using View = decltype(view_of(message));
    const MadError error = load_view(load_bytes<View>(body.data()), message);
    if (error == MadError::kNone) out = message;
    return error;
}

MadError check_header(const MadHeader& header) {
    if (header.base_version != kMadBaseVersion) return MadError::kBadVersion;
    if (header.management_class != kMadClassCm) return MadError::kBadClass;
    if (header.method != kMadMethodSend) return MadError::kBadMethod;
    return header.class_version == kMadClassVersionCm ? MadError::kNone
                                                      : MadError::kBadClassVersion;
}

}  // namespace

MadError parse_cm(ByteView bytes, CmMessage& out) {
    if (bytes.size() != kMadLength) return MadError::kBadLength;
    const auto header = load_bytes<MadHeader>(bytes.data());
    if (const MadError error = check_header(header); error != MadError::kNone) return error;
    const ByteView body = bytes.subspan(sizeof header);
    switch (static_cast<CmAttribute>(std::uint16_t{header.attribute_id})) {
        case CmAttribute::kReq:
            return load_message<ReqMessage>(header, body, out);
        case CmAttribute::kMra:
            return load_message<MraMessage>(header, body, out);
        case CmAttribute::kRej:
            return load_message<RejMessage>(header, body, out);
        case CmAttribute::kRep:
            return load_message<RepMessage>(header, body, out);
        case CmAttribute::kRtu:
            return load_message<RtuMessage>(header, body, out);
        case CmAttribute::kDreq:
            return load_message<DreqMessage>(header, body, out);
        case CmAttribute::kDrep:
            return load_message<DrepMessage>(header, body, out);
        case CmAttribute::kSidrReq:
            return load_message<SidrReqMessage>(header, body, out);
        case CmAttribute::kSidrRep:
            return load_message<SidrRepMessage>(header, body, out);
        case CmAttribute::kLap:
            return load_message<LapMessage>(header, body, out);
        case CmAttribute::kApr:
            return load_message<AprMessage>(header, body, out);
    }
    return MadError::kBadAttribute;
}

void emit_cm(const CmMessage& message, std::span<std::byte, kMadLength> out) {
    std::visit(
        [out](const auto& m) {
            MadHeader header{};
            header.base_version = kMadBaseVersion;
            header.management_class = kMadClassCm;
            header.class_version = kMadClassVersionCm;
            header.method = kMadMethodSend;
            header.transaction_id = m.transaction_id;
            header.attribute_id = static_cast<std::uint16_t>(m.kAttribute);
            if constexpr (requires { m.ece; }) header.attribute_modifier = m.ece.options;
            store_bytes(out.data(), header);
            store_bytes(out.data() + sizeof header, view_of(m));
        },
        message);
}

ForeignVersion parse_foreign_version(std::span<const std::byte, kMadLength> bytes) {
    const auto header = load_bytes<MadHeader>(bytes.data());
    return {header.transaction_id, header.attribute_id,
            load_bytes<Be32>(bytes.data() + sizeof header)};
}

std::optional<std::uint64_t> RejMessage::ca_guid() const {
    if (info_length < sizeof(Be64)) return std::nullopt;
    return load_bytes<Be64>(reinterpret_cast<const std::byte*>(info.data()));
}

void RejMessage::set_ca_guid(std::uint64_t guid) {
    info_length = sizeof(Be64);
    store_bytes(reinterpret_cast<std::byte*>(info.data()), Be64(guid));
}

std::optional<IpCmHeader> parse_ip_cm_header(std::span<const std::uint8_t> private_data) {
    if (private_data.size() < kIpCmHeaderLength) return std::nullopt;
    const auto view = load_bytes<IpCmView>(reinterpret_cast<const std::byte*>(private_data.data()));
    IpCmHeader header;
    header.ip_version = get(view.ip_version, 4, 4);
    if (view.version != 0 || (header.ip_version != 4 && header.ip_version != 6))
        return std::nullopt;
    header.source_port = view.source_port;
    header.source.bytes = view.source;
    header.destination.bytes = view.destination;
    if (header.ip_version == 4) {
        const auto address = [](const auto& field) {
            return Gid::from_ipv4(
                load_bytes<Be32>(reinterpret_cast<const std::byte*>(field.data() + 12)));
        };
        header.source = address(view.source);
        header.destination = address(view.destination);
    }
    return header;
}

void emit_ip_cm_header(const IpCmHeader& header, std::span<std::uint8_t> private_data) {
    IpCmView view{};
    view.ip_version = put(header.ip_version, 4, 4);
    view.source_port = header.source_port;
    // An IPv4 address has zeros before its four bytes here, not the mapped prefix of a GID.
    const std::size_t skip = header.ip_version == 4 ? 12 : 0;
    std::copy(header.source.bytes.begin() + skip, header.source.bytes.end(),
              view.source.begin() + skip);
    std::copy(header.destination.bytes.begin() + skip, header.destination.bytes.end(),
              view.destination.begin() + skip);
    store_bytes(reinterpret_cast<std::byte*>(private_data.data()), view);
}

}  // namespace rdmalab::wire

// Management datagrams of the communication management class (IBTA vol. 1, 13.4 and chapter 12): a
// common header of 24 bytes and one of eleven messages of 232 bytes, sent as UD packets to QP 1.
//
// Each message has a *view struct* with the layout of the wire (size and bit positions as in tables
// 106 to 120) and a value struct with plain fields. `parse_cm` turns 256 bytes into one of the
// value structs, `emit_cm` does the reverse and cannot fail.
//
// The RDMA IP CM service (annex A11) puts a header of 36 bytes in front of the private data of REQ
// and SIDR_REQ: IP addresses and the source port. The destination port and the port space are in
// the service id. Two fields that were reserved at first carry the enhanced connection
// establishment: vendor id and, in the attribute modifier of the common header, its options.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "base/address.h"
#include "base/bytes.h"
#include "base/ids.h"

namespace rdmalab::wire {

inline constexpr std::size_t kMadLength = 256;
inline constexpr Qpn kGsiQpn{1};                        // general services interface
inline constexpr std::uint32_t kGsiQkey = 0x8001'0000;  // IBTA 10.2.5: well-known Q_Key of QP 1
inline constexpr std::uint8_t kMadClassCm = 0x07;
inline constexpr std::uint8_t kMadBaseVersion = 1, kMadClassVersionCm = 2, kMadMethodSend = 3;

using MadBytes = std::array<std::byte, kMadLength>;

struct MadHeader {
    std::uint8_t base_version;
    std::uint8_t management_class;
    std::uint8_t class_version;
    std::uint8_t method;
    Be16 status;
    Be16 class_specific;
    Be64 transaction_id;
    Be16 attribute_id;
    Be16 reserved;
    Be32 attribute_modifier;
};
static_assert(sizeof(MadHeader) == 24);

enum class CmAttribute : std::uint16_t {
    kReq = 0x10,
    kMra = 0x11,
    kRej = 0x12,
    kRep = 0x13,
    kRtu = 0x14,
    kDreq = 0x15,
    kDrep = 0x16,
    kSidrReq = 0x17,
    kSidrRep = 0x18,
    kLap = 0x19,
    kApr = 0x1a,
};
const char* to_string(CmAttribute attribute);

// Which message an MRA or REJ is about (tables 107 and 108).
enum class CmSubject : std::uint8_t { kReq = 0, kRep = 1, kOther = 2 };

// Table 109, those that a CM of RoCE can meet or send; others pass through as numbers.
enum class RejectReason : std::uint16_t {
    kNoQp = 1,
    kNoResources = 3,
    kTimeout = 4,
    kUnsupportedRequest = 5,
    kInvalidCommId = 6,
    kInvalidCommInstance = 7,
    kInvalidServiceId = 8,
    kInvalidTransportService = 9,
    kStaleConnection = 10,
    kPrimaryGid = 12,
    kInvalidMtu = 26,
    kInsufficientResources = 27,
    kConsumer = 28,
    kRnrRetryCount = 29,
    kDuplicateCommId = 30,
    kInvalidClassVersion = 31,
    kVendorOption = 35,
};

// Transport service type of a REQ; the extended type says XRC.
enum class CmService : std::uint8_t { kRc = 0, kUc = 1, kRd = 2, kExtended = 3 };

struct Ece {
    std::uint32_t vendor_id = 0;  // 24 bits
    std::uint32_t options = 0;
    auto operator<=>(const Ece&) const = default;
};

template <std::size_t N>
using PrivateData = std::array<std::uint8_t, N>;

struct CmPath {
    std::uint16_t local_lid = 0, remote_lid = 0;
    Gid local_gid, remote_gid;
    std::uint32_t flow_label = 0;  // 20 bits
    std::uint8_t packet_rate = 0;  // 6 bits
    std::uint8_t traffic_class = 0, hop_limit = 0;
    std::uint8_t service_level = 0;  // 4 bits
    bool subnet_local = false;
    std::uint8_t ack_timeout = 0;  // 5 bits: 4.096 us * 2^n
    bool operator==(const CmPath&) const = default;
};

// Common header fields of every message.
struct CmHeader {
    std::uint64_t transaction_id = 0;
    bool operator==(const CmHeader&) const = default;
};

struct ReqMessage : CmHeader {
    static constexpr CmAttribute kAttribute = CmAttribute::kReq;
    std::uint32_t local_comm_id = 0;
    std::uint64_t service_id = 0, ca_guid = 0;
    std::uint32_t qkey = 0;
    Qpn qpn;
    Psn starting_psn;
    std::uint8_t responder_resources = 0, initiator_depth = 0;
    std::uint8_t remote_response_timeout = 0, local_response_timeout = 0;  // 5 bits
    std::uint8_t max_cm_retries = 0;                                       // 4 bits
    CmService service = CmService::kRc;
    std::uint8_t extended_service = 0;  // 3 bits; 1 = XRC
    bool flow_control = false, srq = false;
    std::uint8_t retry_count = 0, rnr_retry_count = 0;  // 3 bits
    std::uint16_t pkey = 0xffff;
    std::uint8_t path_mtu = 0;  // code 1..5
    CmPath primary, alternate;  // alternate: none while its remote GID is zero
    Ece ece;
    PrivateData<92> private_data{};
    bool operator==(const ReqMessage&) const = default;
};

struct MraMessage : CmHeader {
    static constexpr CmAttribute kAttribute = CmAttribute::kMra;
    std::uint32_t local_comm_id = 0, remote_comm_id = 0;
    CmSubject subject = CmSubject::kReq;
    std::uint8_t service_timeout = 0;  // 5 bits
    PrivateData<222> private_data{};
    bool operator==(const MraMessage&) const = default;
};

struct RejMessage : CmHeader {
    static constexpr CmAttribute kAttribute = CmAttribute::kRej;
    std::uint32_t local_comm_id = 0, remote_comm_id = 0;
    CmSubject subject = CmSubject::kReq;
    std::uint16_t reason = 0;  // RejectReason
    std::uint8_t info_length = 0;
    std::array<std::uint8_t, 72> info{};  // additional reject information
    PrivateData<148> private_data{};
    // Reason "timeout" carries the CA GUID of the sender, by which the receiver finds the
    // connection.
    std::optional<std::uint64_t> ca_guid() const;
    void set_ca_guid(std::uint64_t guid);
    bool operator==(const RejMessage&) const = default;
};

struct RepMessage : CmHeader {
    static constexpr CmAttribute kAttribute = CmAttribute::kRep;
    std::uint32_t local_comm_id = 0, remote_comm_id = 0;
    std::uint32_t qkey = 0;
    Qpn qpn;
    std::uint32_t eecn = 0;  // 24 bits; the QPN of an XRC target stands here
    Psn starting_psn;
    std::uint8_t responder_resources = 0, initiator_depth = 0;
    std::uint8_t target_ack_delay = 0;   // 5 bits
    std::uint8_t failover_accepted = 0;  // 2 bits
    bool flow_control = false, srq = false;
    std::uint8_t rnr_retry_count = 0;  // 3 bits
    std::uint64_t ca_guid = 0;
    Ece ece;
    PrivateData<196> private_data{};
    bool operator==(const RepMessage&) const = default;
};

struct RtuMessage : CmHeader {
    static constexpr CmAttribute kAttribute = CmAttribute::kRtu;
    std::uint32_t local_comm_id = 0, remote_comm_id = 0;
    PrivateData<224> private_data{};
    bool operator==(const RtuMessage&) const = default;
};

struct DreqMessage : CmHeader {
    static constexpr CmAttribute kAttribute = CmAttribute::kDreq;
    std::uint32_t local_comm_id = 0, remote_comm_id = 0;
    Qpn remote_qpn;
    PrivateData<220> private_data{};
    bool operator==(const DreqMessage&) const = default;
};

struct DrepMessage : CmHeader {
    static constexpr CmAttribute kAttribute = CmAttribute::kDrep;
    std::uint32_t local_comm_id = 0, remote_comm_id = 0;
    PrivateData<224> private_data{};
    bool operator==(const DrepMessage&) const = default;
};

struct SidrReqMessage : CmHeader {
    static constexpr CmAttribute kAttribute = CmAttribute::kSidrReq;
    std::uint32_t request_id = 0;
    std::uint16_t pkey = 0xffff;
    std::uint64_t service_id = 0;
    PrivateData<216> private_data{};
    bool operator==(const SidrReqMessage&) const = default;
};

enum class SidrStatus : std::uint8_t {  // table 121
    kValid = 0,
    kUnsupportedService = 1,
    kRejected = 2,
    kNoQp = 3,
    kRedirect = 4,
    kUnsupportedVersion = 5,
};

struct SidrRepMessage : CmHeader {
    static constexpr CmAttribute kAttribute = CmAttribute::kSidrRep;
    std::uint32_t request_id = 0;
    std::uint8_t status = 0;  // SidrStatus
    std::uint8_t info_length = 0;
    Qpn qpn;
    std::uint64_t service_id = 0;
    std::uint32_t qkey = 0;
    Ece ece;
    std::array<std::uint8_t, 72> info{};
    PrivateData<136> private_data{};
    bool operator==(const SidrRepMessage&) const = default;
};

// Asks for another alternate path of an established connection.
struct LapMessage : CmHeader {
    static constexpr CmAttribute kAttribute = CmAttribute::kLap;
    std::uint32_t local_comm_id = 0, remote_comm_id = 0;
    Qpn remote_qpn;
    std::uint8_t remote_response_timeout = 0;  // 5 bits
    CmPath alternate;
    PrivateData<168> private_data{};
    bool operator==(const LapMessage&) const = default;
};

enum class AprStatus : std::uint8_t {  // 12.8: AP status, those that a CM without such paths sends
    kInvalidCommId = 1,
    kNotSupported = 2,
};

struct AprMessage : CmHeader {
    static constexpr CmAttribute kAttribute = CmAttribute::kApr;
    std::uint32_t local_comm_id = 0, remote_comm_id = 0;
    std::uint8_t info_length = 0;
    std::uint8_t status = 0;  // AprStatus
    std::array<std::uint8_t, 72> info{};
    PrivateData<148> private_data{};
    bool operator==(const AprMessage&) const = default;
};

using CmMessage =
    std::variant<ReqMessage, MraMessage, RejMessage, RepMessage, RtuMessage, DreqMessage,
                 DrepMessage, SidrReqMessage, SidrRepMessage, LapMessage, AprMessage>;

enum class MadError : std::uint8_t {
    kNone,
    kBadLength,   // not 256 bytes
    kBadVersion,  // base version
    kBadClass,    // not communication management
    kBadClassVersion,
    kBadMethod,     // not Send
    kBadAttribute,  // unknown
    kBadField,      // a length inside the message is longer than its field
};
const char* to_string(MadError error);

MadError parse_cm(ByteView bytes, CmMessage& out);
void emit_cm(const CmMessage& message, std::span<std::byte, kMadLength> out);

// "REQ comm=0x1 service=0x1061234 qpn=0x11 ...": one line, for logs and test failures.
std::string print_cm(const CmMessage& message);

// A message of another class version: what can be answered all the same. The attribute and the
// sender's id have their places in every version.
struct ForeignVersion {
    std::uint64_t transaction_id;
    std::uint16_t attribute_id;
    std::uint32_t id;  // communication id, or request id of SIDR
};
ForeignVersion parse_foreign_version(std::span<const std::byte, kMadLength> bytes);

// --- RDMA IP CM service (annex A11)

inline constexpr std::size_t kIpCmHeaderLength = 36;
struct IpCmHeader {
    std::uint8_t ip_version = 4;  // 4 or 6
    std::uint16_t source_port = 0;
    Gid source, destination;  // IPv4 as ::ffff:a.b.c.d
    bool operator==(const IpCmHeader&) const = default;
};
// nullopt: another version of the header, or of IP.
std::optional<IpCmHeader> parse_ip_cm_header(std::span<const std::uint8_t> private_data);
void emit_ip_cm_header(const IpCmHeader& header, std::span<std::uint8_t> private_data);

// Service id of a port (A11.2): five bytes 0x0000000001, IP protocol, port. The port spaces of
// rdma/rdma_cma.h hold the last byte of the prefix and the protocol: RDMA_PS_TCP is 0x0106.
constexpr std::uint64_t ip_service_id(std::uint16_t port_space, std::uint16_t port) {
    return std::uint64_t{port_space} << 16 | port;
}

}  // namespace rdmalab::wire

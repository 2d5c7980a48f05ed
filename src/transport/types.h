// The vocabulary of the engine: what an application asks for and what it gets back, in the engine's
// own terms. Numeric values of enums are ours; the card maps the ring ABI to them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "base/address.h"
#include "base/ids.h"
#include "base/limits.h"
#include "base/units.h"
#include "wire/headers.h"

namespace rdmalab::transport {

enum class QpType : std::uint8_t { kRc, kUc, kUd, kXrcSend, kXrcRecv, kRaw };
enum class QpState : std::uint8_t { kReset, kInit, kRtr, kRts, kSqd, kSqe, kErr };

enum class WrOpcode : std::uint8_t {
    kSend,
    kSendImm,
    kSendInvalidate,
    kWrite,
    kWriteImm,
    kRead,
    kCompareSwap,
    kFetchAdd,
    kLocalInvalidate,
    kBindMw,
    kAtomicWrite,
};

enum AccessFlags : std::uint32_t {
    kAccessLocalWrite = 1,
    kAccessRemoteWrite = 2,
    kAccessRemoteRead = 4,
    kAccessRemoteAtomic = 8,
    kAccessMwBind = 16,
    kAccessZeroBased = 32,
    kAccessOnDemand = 64,
    kAccessRelaxedOrdering = 1 << 20,
};

struct Sge {
    std::uint64_t address = 0;
    std::uint32_t length = 0;
    Lkey lkey;
};

// A bind: the window `SendWqe::rkey` names covers `length` bytes of a region from
// `SendWqe::remote_address` on. Length 0 unbinds a window of type 1.
struct WindowBind {
    Lkey region;
    std::uint32_t access = 0;  // AccessFlags
    std::uint64_t length = 0;
};

struct SendWqe {
    std::uint64_t wr_id = 0;
    std::uint32_t ring_index = 0;  // position in the SQ; returned with the completion
    WrOpcode opcode = WrOpcode::kSend;
    bool signaled = true;
    bool solicited = false;
    bool fence = false;
    // The ring entry made no sense (opcode, counts): the WQE completes with kLocQpOpErr and nothing
    // else of it is used but wr_id and ring_index.
    bool malformed = false;
    // The payload lies in card-readable memory (inline data, or small payload that rides in the
    // ring entry): `inline_data` is then used for the bytes. When `sges_checked` is false the SGE's
    // lkeys are still checked before.
    bool is_inline = false;
    std::uint8_t sge_count = 0;
    std::uint32_t immediate = 0;  // as on the wire (network order kept as an opaque 32-bit value);
                                  // or the rkey to invalidate
    std::uint64_t remote_address = 0;
    Rkey rkey;
    std::uint64_t compare = 0;  // compare-and-swap: compare; fetch-and-add: add
    std::uint64_t swap = 0;
    AhId ah;  // UD
    Qpn remote_qpn;
    std::uint32_t remote_qkey = 0;
    SrqId remote_srq;          // XRC
    std::uint32_t length = 0;  // sum of the SGEs, or of the inline data
    WindowBind bind;           // kBindMw
    ByteView inline_data;      // stays valid until the completion of this WQE is pushed
    // Raw packet QPs: the first bytes of what the SGEs name, copied by the client's library so that
    // the card need not fetch them to know where the frame goes. Empty: fetch them.
    ByteView head;
    bool fills_checksums = false;  // raw packet QPs: wire/offload.h
    std::array<Sge, limits::kSgeMax> sges;
};

struct RecvWqe {
    std::uint64_t wr_id = 0;
    std::uint32_t ring_index = 0;
    std::uint8_t sge_count = 0;
    // Where the receiver may leave a small message instead of writing it to the SGEs (the client's
    // library then copies it when it polls). Empty: not allowed.
    ByteSpan small_area;
    std::array<Sge, limits::kSgeMax> sges;
};

// Values as in `enum ibv_wc_status` (ibv_poll_cq(3)), which follow IBTA vol. 1, 11.6.2.
enum class WcStatus : std::uint8_t {
    kSuccess = 0,
    kLocLenErr = 1,
    kLocQpOpErr = 2,
    kLocProtErr = 4,
    kWrFlushErr = 5,
    kMwBindErr = 6,
    kBadRespErr = 7,
    kLocAccessErr = 8,
    kRemInvReqErr = 9,
    kRemAccessErr = 10,
    kRemOpErr = 11,
    kRetryExcErr = 12,
    kRnrRetryExcErr = 13,
    kRemAbortErr = 16,
    kFatalErr = 19,
    kGeneralErr = 21,
};

enum class WcOpcode : std::uint8_t {
    kSend,
    kWrite,
    kRead,
    kCompareSwap,
    kFetchAdd,
    kBindMw,
    kLocalInvalidate,
    kRecv,
    kRecvWriteImm,
    kAtomicWrite,
};

struct Completion {
    std::uint64_t wr_id = 0;
    std::uint32_t ring_index = 0;  // of the WQE in its SQ, RQ or SRQ
    Qpn qpn;
    WcStatus status = WcStatus::kSuccess;
    WcOpcode opcode = WcOpcode::kSend;
    bool is_recv = false;
    bool from_srq = false;
    SrqId srq;  // if so
    bool has_immediate = false;
    bool invalidated = false;    // `immediate` is the rkey that was invalidated
    bool has_grh = false;        // UD: 40 bytes of GRH precede the payload
    bool in_small_area = false;  // the payload is in RecvWqe::small_area
    bool solicited = false;
    bool checksums_right = false;  // raw packet QPs: wire/offload.h
    std::uint32_t flow_tag = 0;    // of the rule that steered the frame to the QP
    std::uint32_t byte_length = 0;
    std::uint32_t immediate = 0;
    Qpn source_qpn;                  // UD
    std::uint32_t vendor_error = 0;  // syndrome, for diagnosis
    Instant time;
};

enum class AsyncEventType : std::uint8_t {
    kCqError,
    kQpFatal,
    kQpRequestError,
    kQpAccessError,
    kCommEstablished,
    kSqDrained,
    kPathMigrated,
    kQpLastWqeReached,
    kSrqError,
    kSrqLimitReached,
    kDeviceFatal,
    kPortActive,
    kPortError,
    kGidChange,
};

struct AsyncEvent {
    AsyncEventType type;
    OwnerId owner;         // who is told
    std::uint32_t object;  // QPN, CqId or SrqId value, by type
};

struct QpCaps {
    std::uint32_t send_wr_max = 0, recv_wr_max = 0, send_sge_max = 0, recv_sge_max = 0,
                  inline_max = 0;
};

struct QpInit {
    OwnerId owner;
    SpaceId space;
    QpType type = QpType::kRc;
    PdId pd;                // but for kXrcRecv
    CqId send_cq, recv_cq;  // kXrcSend has only the first, kXrcRecv none
    std::optional<SrqId> srq;
    std::optional<XrcdId> xrcd;  // kXrcRecv
    QpCaps caps;
    bool signal_all = false;
};

// Bits say which fields of QpAttributes are given; same bit values as `enum ibv_qp_attr_mask`, so
// that the table in ibv_modify_qp(3) can be checked against the code.
enum QpAttributeMask : std::uint32_t {
    kQpState = 1 << 0,
    kQpCurState = 1 << 1,
    kQpEnSqdAsyncNotify = 1 << 2,
    kQpAccessFlags = 1 << 3,
    kQpPkeyIndex = 1 << 4,
    kQpPort = 1 << 5,
    kQpQkey = 1 << 6,
    kQpAv = 1 << 7,
    kQpPathMtu = 1 << 8,
    kQpTimeout = 1 << 9,
    kQpRetryCnt = 1 << 10,
    kQpRnrRetry = 1 << 11,
    kQpRqPsn = 1 << 12,
    kQpMaxQpRdAtomic = 1 << 13,
    kQpAltPath = 1 << 14,
    kQpMinRnrTimer = 1 << 15,
    kQpSqPsn = 1 << 16,
    kQpMaxDestRdAtomic = 1 << 17,
    kQpPathMigState = 1 << 18,
    kQpCap = 1 << 19,
    kQpDestQpn = 1 << 20,
    kQpRateLimit = 1 << 25,
    // Not of ibv_modify_qp: of ibv_set_ece, and alone.
    kQpEce = 1 << 26,
};

// Enhanced connection establishment (IBTA vol. 1, annex on ECE; ibv_set_ece(3)): what this card can
// do for a connection when its peer agrees. New queue pairs offer all.
enum EceOptions : std::uint32_t {
    kEceRttProbes = 1 << 0,  // congestion control measures the connection with RTT probes
};
inline constexpr std::uint32_t kEceSupported = kEceRttProbes;

// The address a QP or an AH sends to. `gid_index` chooses the source GID; the card resolves the
// destination MAC.
struct AddressVector {
    Gid destination;
    std::uint8_t gid_index = 0;
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 0;
    std::uint8_t service_level = 0;
    std::uint8_t static_rate = 0;
    std::uint8_t port = 1;
    bool is_global = false;
    std::uint32_t flow_label = 0;
    MacAddress destination_mac;  // filled by the card when it resolves the address
};

struct QpAttributes {
    QpState state = QpState::kReset, current_state = QpState::kReset;
    bool sqd_async_notify = false;
    bool sq_draining = false;  // query only: in SQD, and not yet drained
    std::uint32_t access = 0;  // AccessFlags
    std::uint16_t pkey_index = 0;
    std::uint8_t port = 1;
    std::uint32_t qkey = 0;
    AddressVector av;
    std::uint32_t path_mtu = 0;  // bytes: 256, 512, 1024, 2048, 4096
    std::uint8_t timeout = 0;    // local ACK timeout, 4.096 us * 2^n; 0 = infinite (IBTA 9.7.6.1.3)
    std::uint8_t retry_count = 0;  // 0..7
    std::uint8_t rnr_retry = 0;    // 0..7, 7 = for ever
    Psn rq_psn, sq_psn;
    std::uint8_t reads_outstanding = 0;    // max_rd_atomic
    std::uint8_t responder_resources = 0;  // max_dest_rd_atomic
    std::uint8_t min_rnr_timer = 0;        // code 0..31, table 45 of IBTA 9.7.5.2.8
    Qpn destination_qpn;
    QpCaps caps;
    std::uint32_t rate_limit_kbps = 0;
    std::uint32_t ece_options = kEceSupported;  // EceOptions
};

}  // namespace rdmalab::transport

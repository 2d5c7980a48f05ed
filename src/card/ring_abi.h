// The contract between the card and its clients: ring layout, doorbells, control messages. This
// header is the only thing that the drop-in libraries (src/verbs) and the card share. Plain
// fixed-width structs, host byte order, versioned; both sides static_assert the sizes.
//
// ## Attachment
// A client connects to the card's SOCK_SEQPACKET Unix socket, sends requests and waits for each
// reply (one outstanding). kOpOpenContext turns the connection into an *attachment* of one device:
// the card answers with four descriptors (SCM_RIGHTS, in this order): the context memfd, the card
// page memfd (read only), the bell eventfd, the read end of the pipe of async events. Closing the
// socket detaches; so does the end of the process.
//
// ## Rings
// All rings of a context lie in its memfd; replies name regions (offset and length, page aligned)
// that the client maps shared. Indexes are 32-bit, ever growing; the slot is index & (capacity -
// 1), capacity is a power of two. One producer, one consumer, no locks: any agent that can store to
// memory can post work. Entries are multiples of 64 bytes, 64-aligned. Everything the client writes
// is hostile to the card: it reads an index or entry once, checks it, then uses the copy.
//
// * SQ: the client writes entry `producer`, then stores producer+1 (release), then rings the
// doorbell of the QP's slot.
//   An entry is free again when a completion of it or of a later entry has been polled.
// * RQ and SRQ: a table of receive WQEs plus a ring of table indexes, so entries may be freed in
// any order. An entry is
//   free when its completion was polled (not before: a small message may lie in its small area). No
//   doorbell.
// * CQ: written by the card. Entry i is valid when its `sequence` equals i + 1 (as uint32); the
// card stores that field last
//   (release). The client stores `consumer` after it has read entries. `producer` in the CQ header
//   is stored after the entries (it is the futex word of sleeping pollers).
//
// ## Doorbell
// Three-level bitmap in the context's first region: set the slot's bit in `leaf`; if it was clear,
// set the bit of that word in `mid`; if that was clear, in `top` (all seq_cst fetch_or). Then, if
// the card page says `sleeping`, write 8 bytes to the bell eventfd. The card clears top, mid, leaf
// in that order (exchange), then reads the queue's producer index.
//
// ## Notification
// To arm a CQ the client stores `arm` (kArmSolicited or kArmAny) with seq_cst and then polls once
// more. When the card pushes a matching CQE and finds `arm` set it clears it and writes a
// CompletionEvent to the channel's pipe. A client that wants to sleep increments `waiters`
// (seq_cst), checks the ring again, and futex-waits (shared) on `producer`; the card wakes when
// `waiters` is not 0.
//
// ## Death of the card
// The client sees EOF on the control socket, the async pipe and the completion channel pipes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rdmalab::abi {

inline constexpr std::uint32_t kMagic = 0x726c6162;  // "rlab"
inline constexpr std::uint32_t kVersion = 2;

// -----------------------------------------------------------------------------------------------
// shared memory

// Card page: one for the whole card, mapped read only by clients.
struct CardPage {
    std::uint32_t magic;
    std::uint32_t version;
    alignas(64) std::atomic<std::uint32_t> sleeping;  // 1: ring the bell after a doorbell
};

// First region of a context.
inline constexpr std::uint32_t kDoorbellSlots = 64 * 64 * 64;
struct DoorbellArea {
    alignas(64) std::atomic<std::uint64_t> top;
    alignas(64) std::atomic<std::uint64_t> mid[64];
    alignas(64) std::atomic<std::uint64_t> leaf[64 * 64];
};

struct Sge {
    std::uint64_t address;
    std::uint32_t length;
    std::uint32_t lkey;
};
static_assert(sizeof(Sge) == 16);

// Head of an SQ region; entries follow at kRingHeaderSize, `stride` bytes apart.
inline constexpr std::size_t kRingHeaderSize = 128;
struct alignas(64) QueueHeader {
    std::atomic<std::uint32_t> producer;  // client
    std::uint32_t reserved[15];
};
static_assert(sizeof(QueueHeader) <= kRingHeaderSize);

enum class SendOpcode : std::uint8_t {
    kSend = 0,
    kSendImm = 1,
    kSendInvalidate = 2,
    kWrite = 3,
    kWriteImm = 4,
    kRead = 5,
    kCompareSwap = 6,
    kFetchAdd = 7,
    kLocalInvalidate = 8,
    kBindMw = 9,
    kAtomicWrite = 10,
};
enum SendFlags : std::uint8_t {
    kSendSignaled = 1,
    kSendSolicited = 2,
    kSendFence = 4,
    kSendInline = 8,  // `data_length` bytes of payload follow the SGEs, and the SGEs are not to be
                      // checked (IBV_SEND_INLINE)
    kSendSmall = 16,  // the same bytes, copied from the SGEs by the client's library; the SGEs are
                      // still checked
    kSendHead = 32,   // raw packet QPs: `data_length` bytes follow the SGEs, a copy of the first
                      // kSendHeadLength of the longer frame that the SGEs name
    kSendChecksums = 64,  // raw packet QPs: fill in the checksums of IPv4, TCP and UDP
};
inline constexpr std::uint32_t kSendHeadLength = 128;
// Send WQE: this head, then `sge_count` Sge, then the inline or small bytes. The stride of a queue
// is round_up(64 + 16 * sge_max + max(inline_max, kSmallPayloadMax), 64).
struct alignas(64) SendEntry {
    std::uint64_t wr_id;
    std::uint8_t opcode;  // SendOpcode
    std::uint8_t flags;   // SendFlags
    std::uint8_t sge_count;
    std::uint8_t reserved0;
    std::uint32_t
        immediate;  // as given by the application (network order), or the rkey to invalidate
    std::uint64_t remote_address;
    std::uint32_t rkey;
    std::uint32_t ah;  // UD: handle; XRC: remote SRQ number
    std::uint32_t remote_qpn;
    std::uint32_t remote_qkey;
    std::uint64_t compare_add;
    std::uint64_t swap;
    std::uint32_t data_length;
};
static_assert(sizeof(SendEntry) == 64);
// kBindMw: `rkey` is that of the window with its new tag, `ah` the lkey of the region,
// `remote_address` and `compare_add` where the window starts and how long it is (0: unbind),
// `remote_qkey` the rights (enum ibv_access_flags).

// RQ and SRQ region: QueueHeader, then at kRingHeaderSize `capacity` uint32 indexes (padded to 64),
// then the table of entries, `stride` = round_up(16 + 16 * sge_max, 64) + kSmallPayloadMax bytes
// each: RecvEntry, Sges, ... small area last.
struct RecvEntry {
    std::uint64_t wr_id;
    std::uint8_t sge_count;
    std::uint8_t reserved[7];
};
static_assert(sizeof(RecvEntry) == 16);

enum CqArm : std::uint32_t { kArmNone = 0, kArmSolicited = 1, kArmAny = 2 };
struct CqHeader {
    alignas(64) std::atomic<std::uint32_t> producer;  // card
    alignas(64) std::atomic<std::uint32_t> consumer;  // client
    std::atomic<std::uint32_t> arm;                   // client sets, card clears
    std::atomic<std::uint32_t> waiters;               // client: pollers asleep
};
static_assert(sizeof(CqHeader) == kRingHeaderSize);

enum CqeFlags : std::uint16_t {
    kCqeRecv = 1,
    kCqeSrq = 2,
    kCqeImmediate = 4,
    kCqeInvalidated = 8,
    kCqeGrh = 16,
    kCqeSmall = 32,  // copy byte_length bytes from the entry's small area to its SGEs
    kCqeSolicited = 64,
    kCqeChecksumsRight = 128,
};
enum class CqeOpcode : std::uint8_t {
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
    kSkip = 255,  // set by the client: the QP was destroyed before the entry was polled
};
struct alignas(64) Cqe {
    std::uint64_t wr_id;
    std::uint64_t timestamp_ns;
    std::uint32_t qpn;
    std::uint32_t queue_slot;  // doorbell slot of the QP; with kCqeSrq: the SRQ's handle
    std::uint32_t
        ring_index;  // send: index in the SQ; receive: index in the table of the RQ or SRQ
    std::uint32_t byte_length;
    std::uint32_t immediate;
    std::uint32_t source_qpn;
    std::uint32_t vendor_error;
    std::uint16_t flags;  // CqeFlags
    std::uint8_t status;  // enum ibv_wc_status
    std::uint8_t opcode;  // CqeOpcode
    std::uint32_t reserved[2];
    std::uint32_t flow_tag;  // of the rule that steered the frame to the QP
    std::atomic<std::uint32_t> sequence;
};
static_assert(sizeof(Cqe) == 64);

// ------------------------------------------------------------------------------------------------
// records in pipes

struct CompletionEvent {
    std::uint32_t cq;  // handle
    std::uint32_t generation;
};
struct AsyncEventRecord {
    std::uint32_t type;    // enum ibv_event_type
    std::uint32_t object;  // CQ, SRQ handle or QPN; port number for port events
    std::uint32_t generation;
    std::uint32_t reserved;
};

// ------------------------------------------------------------------------------------------------
// control messages

enum class Op : std::uint32_t {
    kHello = 1,
    kListDevices,
    kOpenContext,
    kQueryPort,
    kQueryGids,
    kAllocPd = 16,
    kDeallocPd,
    kRegMr,
    kDeregMr,
    kCreateChannel,
    kDestroyChannel,
    kCreateCq,
    kResizeCq,
    kDestroyCq,
    kCreateSrq,
    kModifySrq,
    kQuerySrq,
    kDestroySrq,
    kCreateQp,
    kModifyQp,
    kQueryQp,
    kDestroyQp,
    kCreateAh,
    kDestroyAh,
    kAttachMcast,
    kDetachMcast,
    kReregMr,
    kQueryMr,
    kAllocNullMr,
    kAllocMw,
    kDeallocMw,
    kAllocDm,
    kFreeDm,
    kQueryDm,
    kRegDmMr,
    kOpenXrcd,
    kCloseXrcd,
    kOpenQp,
    kQueryPd,
    kModifyCq,
    kResolveAddress,
    kImportContext,
    kCreateFlow,  // these five: rule_abi.h
    kDestroyFlow,
    kCreateCounters,
    kDestroyCounters,
    kReadCounters,
    kCreateHashQp,
    kAdmin = 256,
    kFlow = 257,  // a command to the pipes of a switch domain: flow/commands.h
};

struct RequestHeader {
    std::uint32_t magic = kMagic;
    std::uint32_t version = kVersion;
    Op op{};
    std::uint32_t length = 0;  // of the body that follows
};
struct ReplyHeader {
    std::uint32_t magic;
    std::int32_t status;  // 0 or an errno value
    std::uint32_t
        length;  // of the body that follows; with status != 0 the body is the text of the error
    std::uint32_t reserved;
};
inline constexpr std::size_t kMessageMax = 64 * 1024;

// A region of the context's memfd.
struct Region {
    std::uint64_t offset;
    std::uint64_t length;
};

struct HelloRequest {
    std::uint64_t probe_address;  // of a uint64_t in the client whose value is `probe_value`: the
                                  // card reads it to find out
    std::uint64_t probe_value;  // whether it may reach the client's memory, and answers EPERM with
                                // the reason if not
};
struct HelloReply {
    char card_name[64];
    std::int32_t card_pid;
    std::uint32_t device_count;
};

struct DeviceInfo {              // kListDevices replies with an array of these
    std::uint32_t index;         // names the device in kOpenContext
    std::uint32_t uverbs_index;  // uverbsN
    char name[64];               // mlx5_2
    char pci[16];                // 0000:03:00.0 (an SF shows its PF's)
    std::uint64_t node_guid;     // host order
    std::uint8_t mac[6];
    std::uint8_t reserved[2];
};

struct OpenContextRequest {
    std::uint32_t device;
};
// kImportContext: no body, but a descriptor of the memfd of an open context. The connection becomes
// one more attachment of that context: it names the same objects, and what it registers is memory
// of its own process. The context ends with its last attachment. Replies as kOpenContext.
//
// Attributes in the card's terms; the client's library turns them into ibv_device_attr(_ex).
struct OpenContextReply {
    Region doorbell;
    std::uint64_t node_guid;
    std::uint32_t qp_max, wqe_max, sge_max, cq_max, cqe_max, mr_max, pd_max, srq_max, srq_wr_max,
        ah_max;
    std::uint32_t reads_max;  // per QP, as initiator and as responder
    std::uint32_t inline_max, small_payload_max, mcast_group_max, mcast_qp_max, gid_max;
    std::uint64_t message_max;
    std::uint32_t mw_max, xrcd_max;
    std::uint64_t dm_max;    // bytes of device memory that one allocation may have
    std::uint32_t device;    // index of the device
    std::uint32_t features;  // DeviceFeatures
};
enum DeviceFeatures : std::uint32_t {
    kFlowSteering = 1,  // kCreateFlow works; otherwise it is ENXIO
};

struct QueryPortReply {
    std::uint32_t state;                // enum ibv_port_state
    std::uint32_t mtu_max, mtu_active;  // bytes
    std::uint32_t gid_count;
    std::uint64_t rate_bps;  // of the port's cable; 0: not limited
};
struct GidEntry {  // kQueryGids replies with an array
    std::uint32_t index;
    std::uint8_t gid[16];
};

struct HandleRequest {
    std::uint32_t handle;
};
struct HandleReply {
    std::uint32_t handle;
};

struct RegMrRequest {
    std::uint32_t pd;
    std::uint32_t access;  // enum ibv_access_flags
    std::uint64_t address, length, iova;
};
struct RegMrReply {
    std::uint32_t lkey, rkey;  // the lkey is also the handle for kDeregMr
};

// kReregMr. Fields whose bit in `flags` (enum ibv_rereg_mr_flags) is clear are not read. The keys
// stay.
struct ReregMrRequest {
    std::uint32_t lkey, flags, pd, access;
    std::uint64_t address, length, iova;
};
struct QueryMrReply {  // kQueryMr: HandleRequest with the lkey
    std::uint32_t pd, lkey, rkey, access;
    std::uint64_t address, length, iova;
};
// kAllocNullMr: HandleRequest with the PD; replies with RegMrReply, of which the rkey is 0.

struct AllocMwRequest {
    std::uint32_t pd, type;  // enum ibv_mw_type
};
struct AllocMwReply {
    std::uint32_t handle,
        rkey;  // rkey: index << 8 | tag; the client chooses a new tag with each bind
};

// Device memory: memory of the card, shared like a ring. The card reaches it without a system call.
struct AllocDmRequest {
    std::uint64_t length;
};
struct DmReply {  // kAllocDm; kQueryDm: HandleRequest
    std::uint32_t handle, reserved;
    std::uint64_t length;
    Region region;  // page aligned, at least as long
};
struct RegDmMrRequest {  // replies with RegMrReply; the region's addresses start at 0
    std::uint32_t pd, dm, access, reserved;
    std::uint64_t offset, length;
};

// An XRC domain is shared by all who open the same file: it is named by st_dev and st_ino of the
// file, which the client has open. `file` 0 0: a domain of this context alone.
inline constexpr std::uint32_t kXrcdCreate = 1, kXrcdExclusive = 2;  // O_CREAT, O_EXCL
struct OpenXrcdRequest {
    std::uint64_t device, inode;
    std::uint32_t flags, reserved;
};

// kCreateChannel: no body; the reply carries the read end of the pipe. Handle in HandleReply.

inline constexpr std::uint32_t kNoChannel = 0xffff'ffff;
struct CreateCqRequest {
    std::uint32_t entries;
    std::uint32_t channel;
};
struct CreateCqReply {
    std::uint32_t cq;
    std::uint32_t generation;
    std::uint32_t capacity;  // power of two, >= entries
    std::uint32_t reserved;
    Region region;  // CqHeader, then Cqe[capacity]
};
struct ResizeCqRequest {
    std::uint32_t cq, entries;
};
// kModifyCq: an armed CQ tells its channel only after `count` completions, or `period_us` after the
// first that it has not told of. `count` 0 or 1: at once.
struct ModifyCqRequest {
    std::uint32_t cq, count, period_us;
};
inline constexpr std::uint32_t kModerationCountMax = 65'535, kModerationPeriodMax = 65'535;
// kResizeCq replies with CreateCqReply: the new region holds the unpolled entries at their indexes;
// EINVAL when they do not fit.

inline constexpr std::uint32_t kNoXrcd = 0xffff'ffff;
struct CreateSrqRequest {
    std::uint32_t pd, wr_max, sge_max, limit;
    std::uint32_t xrcd = kNoXrcd;  // kNoXrcd: an ordinary SRQ, and `cq` is not read
    std::uint32_t cq = 0;
};
struct CreateSrqReply {
    std::uint32_t srq, generation;
    std::uint32_t capacity, sge_max, stride, reserved;
    Region region;
};
struct ModifySrqRequest {
    std::uint32_t srq, limit;
};
struct QuerySrqReply {
    std::uint32_t limit;
};

inline constexpr std::uint32_t kNoSrq = 0xffff'ffff;
struct CreateQpRequest {
    std::uint32_t type;  // enum ibv_qp_type
    std::uint32_t pd, send_cq, recv_cq, srq;
    std::uint32_t send_wr_max, recv_wr_max, send_sge_max, recv_sge_max, inline_max;
    std::uint32_t signal_all;
    // XRC receive: its domain; PD, CQs and capacities are not read then.
    std::uint32_t xrcd = kNoXrcd;
};
struct CreateQpReply {
    std::uint32_t qpn, generation;
    std::uint32_t slot;  // doorbell slot, also in CQEs
    std::uint32_t send_capacity, send_stride, send_sge_max, inline_max;
    std::uint32_t recv_capacity, recv_stride, recv_sge_max;
    Region send_region, recv_region;  // length 0: none
};

// kCreateHashQp: a raw packet QP without queues that spreads what it receives over other raw packet
// QPs, by a Toeplitz hash of the fields that `fields` names (RSS). The lowest bits of the hash
// choose the entry of the table, whose length is a power of two. Replies with CreateQpReply without
// regions.
inline constexpr std::uint32_t kHashTableMax = 512, kHashKeyLength = 40;
struct CreateHashQpRequest {
    std::uint32_t pd, cq;
    std::uint32_t fields;  // enum ibv_rx_hash_fields, without the bit for inner headers
    std::uint32_t is_inner;
    std::uint8_t key[kHashKeyLength];
    std::uint32_t table_length;
    std::uint32_t table[kHashTableMax];  // QPNs
};

// kOpenQp: an XRC receive QP of the domain, made by another context. Replies with CreateQpReply
// without regions; kDestroyQp gives it back.
struct OpenQpRequest {
    std::uint32_t xrcd, qpn;
};

// Fields and mask bits as in ibv_modify_qp(3), fixed-width.
struct AhAttributes {
    std::uint8_t dgid[16];
    std::uint32_t flow_label;
    std::uint8_t sgid_index, hop_limit, traffic_class, is_global, service_level, static_rate, port,
        reserved;
};
struct QpAttributes {
    std::uint32_t state, current_state, path_mtu;  // enums of verbs.h
    std::uint32_t qkey, rq_psn, sq_psn, destination_qpn, access;
    AhAttributes ah;
    std::uint16_t pkey_index;
    std::uint8_t sqd_async_notify, sq_draining, reads_outstanding, responder_resources,
        min_rnr_timer, port, timeout, retry_count, rnr_retry, ece_options;
    std::uint32_t rate_limit_kbps;
    std::uint32_t send_wr_max, recv_wr_max, send_sge_max, recv_sge_max, inline_max;
};
// Options of enhanced connection establishment (ibv_set_ece(3)) that the card has; and the mask
// bit, none of ibv_modify_qp(3), with which a QP in RESET or INIT takes `ece_options`, and nothing
// else.
inline constexpr std::uint8_t kEceRttProbes = 1 << 0;  // congestion control may send RTT probes
inline constexpr std::uint8_t kEceSupported = kEceRttProbes;
inline constexpr std::uint32_t kModifyEce = 1u << 26;
struct ModifyQpRequest {
    std::uint32_t qpn, mask;
    QpAttributes attributes;
};
// kQueryQp: HandleRequest with the QPN; replies with QpAttributes.

struct CreateAhRequest {
    std::uint32_t pd;
    AhAttributes attributes;
};
// kResolveAddress: AhAttributes; the link layer address that frames to it get.
struct ResolveReply {
    std::uint8_t mac[6];
    std::uint8_t reserved[2];
};
struct McastRequest {
    std::uint32_t qpn;
    std::uint8_t gid[16];
};

// kAdmin: the body is a JSON object {"op": ...}; the reply carries a memfd with JSON text. See
// card/host/admin.h.

}  // namespace rdmalab::abi

// The contract between a card and a congestion control process: events, answers and the rings that
// carry them. Plain fixed-width structs in host byte order, versioned; both sides static_assert the
// sizes.
//
// The process attaches to one PF of a card over the card's socket (Op::kPccAttach) and gets a
// memfd. It starts with a PccPage; behind it lies one pair of rings per worker of the process:
// events from the card, answers to it. Indexes are 32-bit and ever growing, capacities powers of
// two, one producer and one consumer. A flow always belongs to the same worker, so its events stay
// in order.
//
// A worker that has nothing to do sets `sleeping` (seq_cst), looks at `event_producer` once more
// and waits on it as a futex. The card wakes it when enough events are there or the oldest has
// waited long enough. After an answer the worker rings the card's bell if the card page says
// `sleeping`.
//
// What the process writes is hostile to the card: an answer is copied once and the copy checked.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rdmalab::pcc {

inline constexpr std::uint32_t kAbiVersion = 1;

// Rates are fixed point with 20 fraction bits: kRateMax is the line rate of the port.
inline constexpr std::uint32_t kRateLog = 20;
inline constexpr std::uint32_t kRateMax = 1u << kRateLog;

// The numbers are those of the programming interface (doca_pcc_dev_event.h).
enum class EventType : std::uint8_t {
    kNull = 0,
    kFirmware = 1,
    kCnp = 2,   // a CNP arrived
    kTx = 3,    // packets were sent
    kAck = 4,   // a request was acknowledged
    kNack = 5,  // ... or was not
    kRtt = 6,   // the answer to a probe
    kTxForAckNack = 31,
    kFlowGone = 255,  // of this ring only: the flow's state is to be forgotten; no answer
};
inline constexpr std::uint32_t kEventTypeCount = 32;  // those that an algorithm may see

enum class NackKind : std::uint8_t { kNull = 0, kRnr = 1, kOutOfSequence = 2, kDuplicateRead = 3 };

enum TxFlags : std::uint8_t {
    kTxAckExpected = 1,
    kTxOverloaded = 2,      // events of the flow were lost or coalesced beyond what was asked for
    kTxProbeSent = 4,       // a probe left since the last TX event
    kTxIsRequester = 0x20,  // and not an answer to a read
};

// Slot of a flow whose peers did not negotiate congestion control: the algorithm is to hand its
// events to the internal one.
inline constexpr std::uint8_t kSlotInternal = 15;

struct TxFacts {
    std::uint64_t first_timestamp_ns;  // of the first of the packets
    std::uint32_t sent_bytes, sent_packets;
    std::uint64_t reserved;
};
struct FeedbackFacts {  // CNP, ACK, NACK
    std::uint64_t first_timestamp_ns;
    std::uint32_t first_sn;
    std::uint32_t coalesced;  // how many the event stands for
    std::uint64_t reserved;
};
struct RttFacts {
    std::uint64_t request_sent_ns, request_received_ns, response_sent_ns;
};

struct alignas(64) Event {
    EventType type = EventType::kNull;
    std::uint8_t subtype = 0;  // NackKind
    std::uint8_t port = 0;
    std::uint8_t flags = 0;  // TxFlags
    std::uint32_t flow = 0;  // the card's number for the sending side of a QP; never 0
    std::uint32_t qpn = 0;
    std::uint32_t sn = 0;  // PSN
    std::uint64_t timestamp_ns = 0;
    union {
        TxFacts tx{};
        FeedbackFacts feedback;
        RttFacts rtt;
    };
    std::uint8_t slot = 0;
    std::uint8_t reserved[15] = {};
};
static_assert(sizeof(Event) == 64);

enum AnswerFlags : std::uint32_t { kAnswerProbe = 1 };  // send an RTT probe

struct Answer {
    std::uint32_t flow = 0;
    std::uint32_t rate = kRateMax;  // 1 .. kRateMax; anything else is refused and counted
    std::uint32_t flags = 0;        // AnswerFlags
    std::uint32_t reserved = 0;
};
static_assert(sizeof(Answer) == 16);

// States of a process; the numbers are those of doca_pcc_process_state_t.
enum class ProcessState : std::uint32_t { kActive = 0, kStandby = 1, kDeactivated = 2, kError = 3 };

enum class ErrorReason : std::uint32_t {
    kNone = 0,
    kNoProgress = 1,  // events waited longer than the card's patience
    kBadRate = 2,     // an answer with rate 0 or above line rate
    kBrokenRing = 3,  // an index that cannot be
};

// -----------------------------------------------------------------------------------------------
// control messages, on the card's socket beside those of ring_abi.h

enum class PccOp : std::uint32_t {
    kAttach = 112,  // AttachRequest -> AttachReply, with three descriptors: the memfd of the rings,
                    // the card page, the bell. The connection stands for the process from now on.
};
constexpr bool is_pcc_op(std::uint32_t op) {
    return op == static_cast<std::uint32_t>(PccOp::kAttach);
}

enum AttachFlags : std::uint32_t { kAttachReportOnly = 1 };

struct AttachRequest {
    std::uint32_t version = kAbiVersion;
    std::uint32_t workers = 1;
    std::uint32_t flags = 0;  // AttachFlags
    std::uint32_t reserved = 0;
    char device[64] = {};  // of a PF
};
struct AttachReply {
    std::uint64_t size = 0;  // of the memfd
    std::uint32_t process = 0;
    std::uint32_t reserved = 0;
};

// -----------------------------------------------------------------------------------------------
// shared memory

inline constexpr std::uint32_t kWorkerMax = 64;
inline constexpr std::uint32_t kEventRingCapacity = 8192;
inline constexpr std::uint32_t kAnswerRingCapacity = 4096;

struct PccPage {
    std::uint32_t version;
    std::uint32_t workers;
    std::uint64_t algorithm_offset;  // of the AlgorithmPage from the start of the memfd
    std::uint64_t ring_offset;       // of the first WorkerRings
    std::uint64_t ring_stride;
    // Written by the card, a futex word: ProcessState.
    alignas(64) std::atomic<std::uint32_t> state;
    std::atomic<std::uint32_t> error;  // ErrorReason, with kError
    std::atomic<std::uint64_t> line_rate_bps;
    std::atomic<std::uint64_t> events_lost;  // the ring was full, or injected
};

// What the process tells about its algorithm, and how the card's administrator sets a parameter of
// it: the card writes the request and then `requested`; the process answers by the same number in
// `answered`. Texts end with a zero.
struct AlgorithmRow {
    std::uint32_t is_counter = 0;
    std::uint32_t algorithm = 0, id = 0;
    std::uint32_t value = 0, initial = 0, min = 0, max = 0, permissions = 0;
    char text[64] = {};
};
static_assert(sizeof(AlgorithmRow) == 96);
inline constexpr std::uint32_t kAlgorithmRowsMax = 256;

struct AlgorithmPage {
    char path[256];
    char text[64];
    std::atomic<std::uint32_t> row_count;
    std::atomic<std::uint32_t> requested, answered;
    std::uint32_t algorithm, id, value;  // of the request
    std::int32_t status;                 // of the answer: 0 or an errno value
    char error[256];
    AlgorithmRow rows[kAlgorithmRowsMax];
};

struct WorkerRings {
    alignas(64) std::atomic<std::uint32_t> event_producer;   // card
    alignas(64) std::atomic<std::uint32_t> event_consumer;   // process
    std::atomic<std::uint32_t> sleeping;                     // process
    alignas(64) std::atomic<std::uint32_t> answer_producer;  // process
    alignas(64) std::atomic<std::uint32_t> answer_consumer;  // card
    Event events[kEventRingCapacity];
    Answer answers[kAnswerRingCapacity];
};

}  // namespace rdmalab::pcc

// What the engine needs from its host. Three ports: memory, work and outcomes. Production: the card
// over shared rings and process_vm_*; tests: vectors in one process.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "transport/types.h"
#include "wire/frame.h"

namespace rdmalab::transport {

using wire::PayloadSegment;

// Which side of which QP a copy serves: a copy that fails is blamed on it. The memory port hands it
// back as it was given.
struct CopyOwner {
    Qpn qpn;
    bool is_responder = false;
    std::uint8_t engine = 0;  // EngineConfig::index
    bool source_is_blamed =
        false;  // the QP's own memory is the source (a send, a read response), not the target
    std::uint32_t token = 0;   // the engine's own mark: the packet that the copy belongs to
    std::uint64_t origin = 0;  // Frame::origin of the frame that brought the bytes
};

// The owner of copies that a card makes of a frame's payload on its own account (a frame that waits
// in a delayed cable): the emitter is blamed when its memory is not there.
CopyOwner owner_of_payload(const wire::Frame& frame);

struct CopyFault {
    CopyOwner owner;
    bool at_source = false;  // reading the source failed; otherwise writing the target
    bool is_gone = false;    // because the process is: it is about to be detached
};

// Memory of applications and of the card. Copies are queued and carried out in order by `flush`, so
// that a batch of packets costs a few system calls. Nobody may see a completion, and no ACK may
// leave, before the flush that follows its copies.
class MemoryPort {
public:
    virtual ~MemoryPort() = default;
    // Queues a copy of source.length bytes to `target_address` of `target`. Both were checked
    // against the memory table.
    virtual void copy(SpaceId target, std::uint64_t target_address, const PayloadSegment& source,
                      CopyOwner owner) = 0;
    // At once; everything queued before is flushed first. False: the memory is not there.
    virtual bool read(SpaceId space, std::uint64_t address, ByteSpan out) = 0;
    virtual bool write(SpaceId space, std::uint64_t address, ByteView bytes) = 0;
    // Carries out what is queued; appends the copies that failed.
    virtual void flush(std::vector<CopyFault>& faults) = 0;
};

// Where posted work comes from. Entries are taken when the engine needs them. `out` is a used
// entry: a port sets every field that means something for the entry it gives, and SGEs up to the
// count.
class WorkPort {
public:
    virtual ~WorkPort() = default;
    // Next entry of the QP's send queue; false when there is none. The entry is validated (opcode,
    // counts) by the port.
    virtual bool fetch_send(Qpn qpn, SendWqe& out) = 0;
    // Next entry of the QP's receive queue or, when it has one, of its SRQ.
    virtual bool fetch_recv(Qpn qpn, RecvWqe& out) = 0;
    virtual bool fetch_srq(SrqId srq, RecvWqe& out) = 0;
    // Entries that are posted and not yet fetched (for the SRQ limit).
    virtual std::uint32_t srq_depth(SrqId srq) = 0;
};

class OutcomePort {
public:
    virtual ~OutcomePort() = default;
    // Writes a CQE. False: the CQ has overflowed; the engine raises the CQ error.
    virtual bool push_completion(CqId cq, const Completion& completion) = 0;
    virtual void push_event(const AsyncEvent& event) = 0;
};

// A QP as the control of congestion knows it. The slot is small and reused, the QPN is not.
struct FlowPoint {
    Qpn qpn;
    std::uint32_t slot = 0;
};

struct SentPacket {
    FlowPoint flow;
    Psn psn;
    std::uint32_t bytes = 0;    // on the wire
    bool is_requester = false;  // and not an answer to a read
    bool asks_ack = false;
};

enum class NakKind : std::uint8_t { kRnr, kSequence };

// What concerns the control of congestion, as facts; the engine knows no rate. Marks and CNPs are
// always told, all else only of QPs that are watched (Engine::watch_qp), so that a QP that nobody
// controls costs a comparison per packet.
class CongestionPort {
public:
    virtual ~CongestionPort() = default;
    // A packet with payload and the CE mark arrived for the QP. True: it is answered with a CNP.
    virtual bool owes_notification(FlowPoint flow, Instant now) = 0;
    virtual void handle_cnp(FlowPoint flow, Instant now) = 0;
    // A packet with payload, or the request for a read, has left. Returns the time before which no
    // other may; ACKs and CNPs do not wait.
    virtual Instant handle_sent(const SentPacket& packet, Instant now) = 0;
    // The time that handle_sent gave has come: it may have changed meanwhile.
    virtual Instant may_send(FlowPoint flow, Instant now) = 0;
    // Everything before `end` is acknowledged.
    virtual void handle_ack(FlowPoint flow, Psn end, Instant now) = 0;
    virtual void handle_nak(FlowPoint flow, NakKind kind, Psn psn, Instant now) = 0;
    virtual void handle_gone(FlowPoint flow) = 0;
};

}  // namespace rdmalab::transport

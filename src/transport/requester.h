// The requester half of a QP: makes request packets from send WQEs, and turns acknowledgements and
// responses into completions.
#pragma once

#include "transport/core.h"
#include "transport/raw_packet.h"

namespace rdmalab::transport {

class Requester {
public:
    explicit Requester(Core& core) : core_(core), raw_(core) {}

    // The next request packet of the QP, if it may send one now.
    bool poll_frame(Qp& qp, wire::Frame& out);
    // An ACK, NAK, read response or atomic response (RC).
    void handle_response(Qp& qp, const wire::Frame& frame, const wire::OpcodeInfo& info);
    void handle_timeout(Qp& qp);     // Timer::kRetransmit
    void handle_rnr_expiry(Qp& qp);  // Timer::kRnr
    void start(Qp& qp);              // the QP has come to RTS from RTR
    void resume(Qp& qp);             // ... from SQD or SQE
    void drain(Qp& qp);              // ... to SQD
    // A copy of the packet `psn` failed for a reason that lies on this side.
    void handle_copy_fault(Qp& qp, Psn psn, WcStatus status);

private:
    // Emission (requester.cc).
    SendWork* next_work(Qp& qp);
    void prepare(Qp& qp, SendWork& work);
    WcStatus check_work(const Qp& qp, SendWork& work) const;
    WcStatus check_addressing(const Qp& qp, const SendWork& work) const;
    WcStatus check_payload(const Qp& qp, SendWork& work) const;
    bool is_admitted(const Qp& qp, const SendWork& work) const;
    bool manage_memory(const Qp& qp, const SendWqe& wqe);
    void execute_local(Qp& qp, SendWork& work);
    bool emit(Qp& qp, SendWork& work, wire::Frame& out);
    bool emit_message(Qp& qp, SendWork& work, wire::Frame& out);
    bool emit_datagram(Qp& qp, SendWork& work, wire::Frame& out);
    void emit_read(Qp& qp, SendWork& work, wire::Frame& out);
    void emit_atomic(Qp& qp, SendWork& work, wire::Frame& out);
    bool add_payload(Qp& qp, const SendWork& work, std::uint64_t offset, std::uint32_t length,
                     wire::Frame& out);
    wire::Bth* start_request(Qp& qp, wire::Frame& out, const wire::LowerTemplate& lower,
                             std::uint8_t opcode);
    void advance(Qp& qp, SendWork& work, std::uint32_t packets);

    // Acknowledgement (requester_ack.cc).
    SendWork* acknowledge_before(Qp& qp, Psn end);
    void note_progress(Qp& qp, Psn before);
    void handle_ack(Qp& qp, const wire::Aeth& aeth, Psn psn);
    void handle_nak(Qp& qp, std::uint8_t syndrome, Psn psn);
    void handle_rnr_nak(Qp& qp, std::uint8_t code, Psn psn);
    void handle_read_response(Qp& qp, const wire::Frame& frame, Psn psn);
    void handle_atomic_response(Qp& qp, const wire::Frame& frame, Psn psn);
    void accept_read_response(Qp& qp, SendWork& work, const wire::Frame& frame, Psn psn);
    void imply_nak(Qp& qp);
    void retry_from(Qp& qp, Psn psn);
    void seek(Qp& qp, Psn psn);
    void settle(Qp& qp);
    void finish_front(Qp& qp, WcStatus status);
    void fail_front(Qp& qp, WcStatus status);
    void arm_retransmit(Qp& qp);
    void check_drained(Qp& qp);

    Core& core_;
    RawPackets raw_;
};

}  // namespace rdmalab::transport

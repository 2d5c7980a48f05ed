// The responder half of a QP: takes requests apart, checks them, places their data and answers.
#pragma once

#include "transport/core.h"

namespace rdmalab::transport {

// What a check says about a request. The first that is not kPass decides.
enum class Verdict : std::uint8_t {
    kPass,
    kDrop,
    kDuplicate,
    kOutOfSequence,
    kNotReady,        // no receive WQE
    kInvalidRequest,  // NAK invalid request
    kRemoteAccess,    // NAK remote access error
    kTooLong,         // the message does not fit the receive WQE
    kRecvProtection,  // the receive WQE names memory that it may not write
};

// Places a piece of a message of the receive WQE that the QP has taken: `prefix`, then `payload`.
// A whole small message may go to RecvWqe::small_area.
Verdict place_message(Core& core, Qp& qp, std::span<const PayloadSegment> prefix,
                      std::span<const PayloadSegment> payload, bool is_whole,
                      const CopyOwner& owner);

struct Request {
    const wire::Frame& frame;
    const wire::OpcodeInfo& info;
    const wire::Bth& bth;
    Psn psn;

    bool is_start() const {
        return info.position == wire::Position::kOnly || info.position == wire::Position::kFirst;
    }
    bool is_end() const {
        return info.position == wire::Position::kOnly || info.position == wire::Position::kLast;
    }
    bool has(wire::ExtensionBits bit) const { return (info.extensions & bit) != 0; }
    // The extension that stands `offset` bytes behind the first, not counting an XRCETH.
    template <class Header>
    const Header& extension(std::size_t offset = 0) const {
        if (has(wire::kHasXrceth)) offset += sizeof(wire::Xrceth);
        return *wire::header_at<Header>(frame, frame.bth_offset + sizeof(wire::Bth) + offset);
    }
    const wire::Xrceth& xrceth() const {
        return *wire::header_at<wire::Xrceth>(frame, frame.bth_offset + sizeof(wire::Bth));
    }
    bool takes_recv() const {
        return info.kind == wire::PacketKind::kSend ? is_start() : has(wire::kHasImmDt);
    }
};

class Responder {
public:
    explicit Responder(Core& core) : core_(core) {}

    void handle_request(Qp& qp, const wire::Frame& frame, const wire::OpcodeInfo& info);
    // The next answer of the QP, if one is due: read and atomic responses in order, then an ACK or
    // NAK for what follows them.
    bool poll_frame(Qp& qp, wire::Frame& out);
    // The ACK or NAK that is due, if no answer of a read stands before it.
    bool poll_acknowledgement(Qp& qp, wire::Frame& out);
    // The round's copies are done: what was staged for the QP is due.
    void commit(Qp& qp);
    void start(Qp& qp);           // the QP has come to RTR
    void size_resources(Qp& qp);  // max_dest_rd_atomic was given, and no answer is due
    void cancel_answers(Qp& qp);  // the application has moved it to ERR

    // A copy of the packet `psn` to this QP's memory failed.
    void handle_target_fault(Qp& qp, Psn psn);
    // The sender's memory was not there: the message has no content.
    void handle_lost_source(Qp& qp, Psn psn);
    // The memory behind the read response `psn` is not there.
    void handle_response_fault(Qp& qp, Psn psn);

private:
    // The chain of checks (responder.cc).
    void handle_rc(Qp& qp, const Request& request);
    void handle_uc(Qp& qp, const Request& request);
    void handle_ud(Qp& qp, const Request& request);
    Verdict check_psn(const Qp& qp, const Request& request) const;
    Verdict check_sequence(const Qp& qp, const Request& request) const;
    Verdict check_target(Qp& qp, const Request& request);
    Verdict check_enabled(const Qp& qp, const Request& request) const;
    Verdict check_length(const Qp& qp, const Request& request) const;
    Verdict check_resources(Qp& qp, const Request& request);
    Verdict check_rkey(const Qp& qp, const Request& request) const;
    Verdict check_content(Qp& qp, const Request& request);
    void conclude(Qp& qp, const Request& request, Verdict verdict);
    void fail(Qp& qp, const Request& request, Verdict verdict);
    void handle_duplicate(Qp& qp, const Request& request);

    // Execution (responder_execute.cc).
    Verdict execute(Qp& qp, const Request& request);
    Verdict execute_send(Qp& qp, const Request& request);
    Verdict execute_write(Qp& qp, const Request& request);
    Verdict execute_read(Qp& qp, const Request& request);
    Verdict execute_atomic_write(Qp& qp, const Request& request);
    Verdict execute_atomic(Qp& qp, const Request& request);
    Verdict place_send(Qp& qp, const Request& request, std::span<const PayloadSegment> prefix);
    void complete_recv(Qp& qp, const Request& request, Completion fields);
    std::span<const PayloadSegment> make_grh(const wire::Frame& frame, PayloadSegment& segment);

    // Answers (responder_answer.cc).
    ResponderResource& store_resource(Qp& qp, const Request& request);
    void replay(Qp& qp, std::uint32_t index, std::uint32_t packet);
    void stage_ack(Qp& qp);
    void stage_nak(Qp& qp, std::uint8_t syndrome, Psn psn);
    bool emit_response(Qp& qp, wire::Frame& out);
    bool emit_read_response(Qp& qp, const ResponderResource& resource, wire::Frame& out);
    void emit_atomic_response(Qp& qp, const ResponderResource& resource, wire::Frame& out);
    void emit_ack(Qp& qp, std::uint8_t syndrome, Psn psn, wire::Frame& out);
    wire::Bth* start_answer(Qp& qp, wire::PacketKind kind, wire::Position position, Psn psn,
                            wire::Frame& out);

    Core& core_;
};

}  // namespace rdmalab::transport

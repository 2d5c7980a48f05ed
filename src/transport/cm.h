// The communication manager of one function (IBTA vol. 1, chapter 12): makes and ends connections
// by management datagrams on QP 1. It knows no sockets, no ports and no processes; its user (the
// card) says which services are listened to and what the applications want.
//
// It does no I/O and reads no clock. The user calls, with a time that never goes back:
//
//   connect, accept, ...      what an application asks for; errno values
//   handle_frame(frame, now)  a frame to QP 1 of this function arrived (its ICRC has been checked)
//   handle_timeout(now)       next_deadline() has come
//   poll_frame(out)           repeatedly: the next frame to send, until false. The payload of a
//                             frame stays valid until kFramesValid further ones have been polled.
//   poll_event(out)           repeatedly: what applications have to be told, in order
//
// A connection exists from connect(), or from the kRequest event, until its user calls release();
// after that it raises no events, and the CM ends it towards the peer by itself.
//
// What is guaranteed: REQ, REP, DREQ and SIDR_REQ are repeated until answered or given up; a
// repeated message gets the same answer again; every connection of a peer that is gone gets an
// event (kRejected, kDisconnected or kUnreachable) in bounded time.
#pragma once

#include <array>
#include <deque>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/prng.h"
#include "base/result.h"
#include "transport/cm_state.h"
#include "transport/cm_table.h"
#include "transport/cm_types.h"
#include "wire/frame.h"

namespace rdmalab::transport {

class Cm {
public:
    static constexpr std::size_t kFramesValid = 256;

    explicit Cm(const CmConfig& config);
    Cm(const Cm&) = delete;
    Cm& operator=(const Cm&) = delete;

    // --- Services. EADDRINUSE: the same service id, address and family are taken.
    int listen(CmListenerId listener, const CmListen& spec);
    void unlisten(CmListenerId listener);  // requests that were reported stay

    // --- Connections. EINVAL: private data is too long, or the state does not allow it; ENOMEM:
    // the table is full.
    Result<CmConnId> connect(const CmConnect& request, Instant now);
    Result<CmConnId> query_service(const CmServiceQuery& request, Instant now);
    int accept(CmConnId id, const CmAccept& answer, Instant now);
    int reject(CmConnId id, const CmReject& answer, Instant now);
    int establish(CmConnId id, Instant now);
    int disconnect(CmConnId id, Instant now);
    int notify_established(CmConnId id, Instant now);
    void release(CmConnId id, Instant now);
    // A request that was just reported is as if it had not arrived: the peer asks again.
    void forget(CmConnId id, Instant now);
    const CmQpFacts* facts(CmConnId id) const;  // nullptr: no such connection

    // --- The wire.
    void handle_frame(const wire::Frame& frame, Instant now);
    void handle_timeout(Instant now);
    bool poll_frame(wire::Frame& out);
    bool poll_event(CmEvent& out);
    Instant next_deadline() const;
    bool has_work() const { return !outbox_.empty() || !events_.empty(); }

    // --- Facts.
    const CmConfig& config() const { return config_; }
    const CmCounters& counters() const { return counters_; }
    struct Counts {
        std::size_t connections, peer_keys, timers, listeners;
        bool operator==(const Counts&) const = default;
    };
    Counts counts() const;
    std::optional<CmState> state(CmConnId id) const;

private:
    struct Listener {
        CmListenerId id;
        CmListen spec;
    };
    struct Outgoing {
        wire::LowerTemplate lower;
        wire::MadBytes mad;
    };
    // Where a frame came from: the route that an answer takes.
    using Origin = CmRoute;
    // What an input comes with; each input has its own.
    struct Occasion {
        Instant now;
        const wire::MraMessage* mra = nullptr;
        const wire::RejMessage* rej = nullptr;
        const wire::RepMessage* rep = nullptr;
        const wire::DreqMessage* dreq = nullptr;
        const wire::LapMessage* lap = nullptr;
        const wire::SidrRepMessage* sidr_rep = nullptr;
        const CmAccept* accept = nullptr;
        const CmReject* reject = nullptr;
    };

    // cm.cc: inputs, state and timers
    void apply(CmConnection& c, CmInput input, const Occasion& occasion);
    int apply_call(CmConnId id, CmInput input, const Occasion& occasion);
    void enter_state(CmConnection& c, Instant now);
    void perform(CmConnection& c, CmAction action, CmState from, const Occasion& occasion);
    void finish(CmConnection& c);
    void extend(CmConnection& c, const wire::MraMessage& mra, Instant now);
    CmConnection* new_connection(const CmRoute& route);
    void set_retries(CmConnection& c, std::uint8_t response_timeout, std::uint8_t retries);

    // A REQ or SIDR_REQ for a service that nobody listens to yet.
    using Request = std::variant<wire::ReqMessage, wire::SidrReqMessage>;
    struct HeldRequest {
        CmPeerKey key;  // what its repetitions have in common
        Request request;
        Origin origin;
        Instant deadline;
    };

    // cm_receive.cc: messages
    void refuse_version(const wire::MadBytes& mad, const Origin& origin);
    void receive(const wire::ReqMessage& m, const Origin& origin, Instant now);
    void receive_new(const wire::ReqMessage& m, const Origin& origin, Instant now, bool may_hold);
    void receive_new(const wire::SidrReqMessage& m, const Origin& origin, Instant now,
                     bool may_hold);
    bool hold(const CmPeerKey& key, const Request& request, const Origin& origin, Instant now);
    void release_held(Instant now);
    void receive(const wire::MraMessage& m, const Origin& origin, Instant now);
    void receive(const wire::RejMessage& m, const Origin& origin, Instant now);
    void receive(const wire::RepMessage& m, const Origin& origin, Instant now);
    void receive(const wire::RtuMessage& m, const Origin& origin, Instant now);
    void receive(const wire::DreqMessage& m, const Origin& origin, Instant now);
    void receive(const wire::DrepMessage& m, const Origin& origin, Instant now);
    void receive(const wire::LapMessage& m, const Origin& origin, Instant now);
    void receive(const wire::AprMessage& m, const Origin& origin, Instant now);
    void receive(const wire::SidrReqMessage& m, const Origin& origin, Instant now);
    void receive(const wire::SidrRepMessage& m, const Origin& origin, Instant now);
    std::optional<wire::RejectReason> check_req(const wire::ReqMessage& m,
                                                const Origin& origin) const;
    bool clear_stale(const wire::ReqMessage& m, Instant now);
    void take_request(const wire::ReqMessage& m, const wire::IpCmHeader& ip, CmListenerId listener,
                      const Origin& origin);
    void take_service_request(const wire::SidrReqMessage& m, const wire::IpCmHeader& ip,
                              CmListenerId listener, const Origin& origin);
    void take_rep(CmConnection& c, const wire::RepMessage& m);
    void apply_message(CmConnection* c, CmInput input, const Occasion& occasion);
    const Listener* find_listener(std::uint64_t service_id, const wire::IpCmHeader& ip) const;
    CmConnection* find_pair(std::uint32_t ours, std::uint32_t theirs, const Origin& origin);
    CmConnection* find_rejected(const wire::RejMessage& m, const Origin& origin);

    // cm_send.cc: messages and events
    void send(CmConnection& c, const wire::CmMessage& message);  // and keeps it for repetition
    void send_once(const CmConnection& c, const wire::CmMessage& message);
    void answer(const Origin& origin, const wire::CmMessage& message);
    void resend(const CmConnection& c);
    void send_req(CmConnection& c, const CmConnect& request);
    void send_sidr_req(CmConnection& c, const CmServiceQuery& request);
    void send_rep(CmConnection& c, const CmAccept& accept);
    void send_rtu(CmConnection& c);
    void send_mra(CmConnection& c, CmState from);
    void send_rej(CmConnection& c, CmState from, const CmReject& reject);
    void send_rej_timeout(const CmConnection& c, CmState from);
    void send_rej_stale(const CmConnection& c);
    void send_dreq(CmConnection& c);
    void send_drep(const CmConnection& c, const wire::DreqMessage& dreq);
    void send_apr(const CmConnection& c, const wire::LapMessage& lap);
    void send_sidr_rep(CmConnection& c, const CmAccept* accept, const CmReject* reject);
    CmEvent& report(const CmConnection& c, CmEventKind kind, int status = 0);
    void report_reply(const CmConnection& c, const wire::RepMessage& m);
    void report_rejected(const CmConnection& c, const wire::RejMessage& m);
    void report_service_reply(const CmConnection& c, const wire::SidrRepMessage& m);

    CmConfig config_;
    Prng prng_;
    std::uint64_t transaction_id_;
    CmTable table_;
    std::unordered_map<std::uint64_t, std::vector<Listener>> services_;
    std::unordered_map<CmListenerId, std::uint64_t> listener_services_;
    std::deque<HeldRequest> held_;  // in the order of their deadlines
    std::deque<Outgoing> outbox_;
    std::deque<CmEvent> events_;
    CmEvent discarded_;  // what an abandoned connection reports
    std::array<wire::MadBytes, kFramesValid> frames_;
    std::size_t frame_index_ = 0;
    CmCounters counters_;
};

}  // namespace rdmalab::transport

// Every message in every state: what arrives has the ids of the connection, whatever its state is.
// Expect: the state that the table says, the answer of the standard where there is one, and nothing
// left when both owners have gone.
#include <optional>

#include "transport/cm_fixture.h"

namespace rdmalab::transport {
namespace {

using testing::CmPair;

constexpr Qpn kClientQpn{0x11}, kServerQpn{0x22};
constexpr Duration kLong = seconds(1);  // a REQ and a REP are repeated within it

// A connection one end of which has been brought into a state.
class Scene {
public:
    explicit Scene(CmState state) {
        pair_.listen();
        pair_.drop = [this](bool from_client, const wire::CmMessage& message) {
            learn(from_client, message);
            return is_cut_;
        };
        enter(state);
        EXPECT_EQ(manager().state(subject()), state);
    }

    Cm& manager() { return on_client_ ? pair_.client() : pair_.server(); }
    CmConnId subject() const { return on_client_ ? client_ : server_; }
    bool knows_ids() const { return (on_client_ ? server_comm_id_ : own_comm_id()) != 0; }
    std::uint32_t own_comm_id() const { return on_client_ ? client_comm_id_ : server_comm_id_; }
    std::uint32_t peer_comm_id() const { return on_client_ ? server_comm_id_ : client_comm_id_; }
    Qpn own_qpn() const { return on_client_ ? kClientQpn : kServerQpn; }
    const wire::ReqMessage& req() const { return *req_; }
    const wire::SidrReqMessage& sidr_req() const { return *sidr_req_; }

    // The message arrives; what goes out at once, nullopt when nothing does.
    std::optional<wire::CmMessage> arrive(const wire::CmMessage& message) {
        wire::MadBytes mad;
        wire::emit_cm(message, mad);
        const Gid client = testing::client_gid(), server = testing::server_gid();
        const wire::Frame frame = on_client_ ? testing::gsi_frame(server, client, mad)
                                             : testing::gsi_frame(client, server, mad);
        manager().handle_frame(frame, pair_.now());
        wire::Frame out;
        wire::CmMessage answer;
        if (!manager().poll_frame(out)) return std::nullopt;
        EXPECT_EQ(wire::parse_cm(testing::mad_of(out), answer), wire::MadError::kNone);
        return answer;
    }

    void end() {
        is_cut_ = false;
        for (int round = 0; round < 3; ++round) {
            pair_.client().release(client_, pair_.now());
            pair_.server().release(server_, pair_.now());
            // A message for nobody may have made a request that nobody owns yet.
            for (const CmEvent& event : pair_.server_events())
                pair_.server().release(event.connection, pair_.now());
            pair_.settle();
        }
        EXPECT_EQ(pair_.client().counts(), (Cm::Counts{0, 0, 0, 0}));
        EXPECT_EQ(pair_.server().counts(), (Cm::Counts{0, 0, 0, 2}));
    }

private:
    void learn(bool from_client, const wire::CmMessage& message) {
        if (const auto* req = std::get_if<wire::ReqMessage>(&message)) {
            req_ = *req;
            client_comm_id_ = req->local_comm_id;
        } else if (const auto* sidr = std::get_if<wire::SidrReqMessage>(&message)) {
            sidr_req_ = *sidr;
        } else if (!from_client) {
            std::visit(
                [this](const auto& m) {
                    if constexpr (requires { m.remote_comm_id; }) server_comm_id_ = m.local_comm_id;
                },
                message);
        }
    }

    void enter(CmState state) {
        on_client_ = state == CmState::kReqSent || state == CmState::kMraReqReceived ||
                     state == CmState::kRepReceived || state == CmState::kMraRepSent ||
                     state == CmState::kDreqSent || state == CmState::kSidrReqSent;
        if (state >= CmState::kSidrReqSent) return query(state);
        is_cut_ = state == CmState::kReqSent;
        client_ = pair_.client().connect(pair_.connect_request(kClientQpn), pair_.now()).value();
        pair_.run_for(milliseconds(1));
        if (state == CmState::kReqSent) return;
        server_ = pair_.server_events().at(0).connection;
        if (state == CmState::kReqReceived) return;
        if (state == CmState::kMraReqSent || state == CmState::kMraReqReceived)
            return pair_.run_for(kLong);
        if (state == CmState::kRejected) {
            EXPECT_EQ(pair_.server().reject(server_, {}, pair_.now()), 0);
            return pair_.run_for(milliseconds(1));
        }
        accept_and_go_on(state);
    }

    void accept_and_go_on(CmState state) {
        CmAccept accept;
        accept.qp.qpn = kServerQpn;
        EXPECT_EQ(pair_.server().accept(server_, accept, pair_.now()), 0);
        pair_.run_for(milliseconds(1));
        if (state == CmState::kRepSent || state == CmState::kRepReceived) return;
        if (state == CmState::kMraRepSent || state == CmState::kMraRepReceived)
            return pair_.run_for(kLong);
        EXPECT_EQ(pair_.client().establish(client_, pair_.now()), 0);
        pair_.run_for(milliseconds(1));
        if (state == CmState::kEstablished) return;
        is_cut_ = state == CmState::kDreqSent;
        EXPECT_EQ(pair_.client().disconnect(client_, pair_.now()), 0);
        pair_.run_for(milliseconds(1));
    }

    void query(CmState state) {
        is_cut_ = state == CmState::kSidrReqSent;
        client_ = pair_.client().query_service(pair_.service_query(), pair_.now()).value();
        pair_.run_for(milliseconds(1));
        if (state == CmState::kSidrReqSent) return;
        server_ = pair_.server_events().at(0).connection;
        if (state == CmState::kSidrReqReceived) return;
        EXPECT_EQ(pair_.server().accept(server_, {}, pair_.now()), 0);
        pair_.run_for(milliseconds(1));
    }

    CmPair pair_;
    CmConnId client_, server_;
    bool on_client_ = false, is_cut_ = false;
    std::uint32_t client_comm_id_ = 0, server_comm_id_ = 0;
    std::optional<wire::ReqMessage> req_;
    std::optional<wire::SidrReqMessage> sidr_req_;
};

template <class Message>
Message between(const Scene& scene) {
    Message m;
    m.local_comm_id = scene.peer_comm_id();
    m.remote_comm_id = scene.own_comm_id();
    if constexpr (requires { m.remote_qpn; }) m.remote_qpn = scene.own_qpn();
    return m;
}

// The message of an input as the peer would send it; nullopt: the peer cannot, or does not know us.
std::optional<wire::CmMessage> message_of(CmInput input, const Scene& scene, CmState state) {
    const bool is_sidr = state >= CmState::kSidrReqSent;
    if (input == CmInput::kSidrReq && is_sidr) return scene.sidr_req();
    if (input == CmInput::kSidrRep && is_sidr) {
        wire::SidrRepMessage m;
        m.request_id = scene.sidr_req().request_id;
        return m;
    }
    if (is_sidr || !scene.knows_ids()) return std::nullopt;
    wire::MraMessage mra = between<wire::MraMessage>(scene);
    switch (input) {
        case CmInput::kReq:
            return scene.req();
        case CmInput::kMraOfReq:
            return mra;
        case CmInput::kMraOfRep:
            mra.subject = wire::CmSubject::kRep;
            return mra;
        case CmInput::kRep:
            return between<wire::RepMessage>(scene);
        case CmInput::kRtu:
            return between<wire::RtuMessage>(scene);
        case CmInput::kRej:
            return between<wire::RejMessage>(scene);
        case CmInput::kDreq:
            return between<wire::DreqMessage>(scene);
        case CmInput::kDrep:
            return between<wire::DrepMessage>(scene);
        case CmInput::kLap:
            return between<wire::LapMessage>(scene);
        default:
            return std::nullopt;
    }
}

// A REQ is matched at the passive end, a REP at the active one; the other end has no such input.
bool reaches(CmInput input, bool is_passive) {
    if (input == CmInput::kReq) return is_passive;
    if (input == CmInput::kRep) return !is_passive;
    return true;
}

bool is_passive(CmState state) {
    return state == CmState::kReqReceived || state == CmState::kMraReqSent ||
           state == CmState::kRepSent || state == CmState::kMraRepReceived ||
           state == CmState::kEstablished || state == CmState::kTimewait ||
           state == CmState::kRejected;
}

TEST(CmUntimely, every_message_in_every_state_does_what_the_table_says) {
    std::size_t tried = 0;
    for (auto state = CmState::kReqSent; state <= CmState::kSidrAnswered;
         state = static_cast<CmState>(static_cast<int>(state) + 1)) {
        for (auto input = CmInput::kReq; input <= CmInput::kSidrRep;
             input = static_cast<CmInput>(static_cast<int>(input) + 1)) {
            SCOPED_TRACE(std::string(to_string(input)) + " in " + to_string(state));
            Scene scene(state);
            if (const auto message = message_of(input, scene, state)) {
                scene.arrive(*message);
                const CmState next =
                    reaches(input, is_passive(state)) ? cm_step(state, input).next : state;
                EXPECT_EQ(scene.manager().state(scene.subject()), next);
                ++tried;
            }
            scene.end();
        }
    }
    EXPECT_GE(tried, 85u);
}

TEST(CmUntimely, a_lap_is_answered_by_an_apr_that_says_no) {
    Scene scene(CmState::kEstablished);
    auto lap = between<wire::LapMessage>(scene);
    lap.transaction_id = 77;
    for (int repetition = 0; repetition < 2; ++repetition) {
        const auto apr = std::get<wire::AprMessage>(scene.arrive(lap).value());
        EXPECT_EQ(apr.status, 2);
        EXPECT_EQ(apr.transaction_id, 77u);
        EXPECT_EQ(apr.local_comm_id, scene.own_comm_id());
        EXPECT_EQ(apr.remote_comm_id, scene.peer_comm_id());
    }
    // Of another QP: not of this connection.
    lap.remote_qpn = Qpn{0x23};
    EXPECT_EQ(scene.arrive(lap), std::nullopt);
    // For a connection that we do not have.
    lap.remote_comm_id ^= 0x5555;
    EXPECT_EQ(std::get<wire::AprMessage>(scene.arrive(lap).value()).status, 1);
    // An answer to what we have not asked.
    EXPECT_EQ(scene.arrive(between<wire::AprMessage>(scene)), std::nullopt);
    EXPECT_EQ(scene.manager().state(scene.subject()), CmState::kEstablished);
    scene.end();
}

TEST(CmUntimely, another_class_version_is_refused_where_somebody_waits_for_an_answer) {
    CmPair pair;
    pair.listen();
    const auto answer_to = [&](const wire::CmMessage& message) -> std::optional<wire::CmMessage> {
        wire::MadBytes mad;
        wire::emit_cm(message, mad);
        mad[2] = std::byte{3};
        pair.server().handle_frame(
            testing::gsi_frame(testing::client_gid(), testing::server_gid(), mad), pair.now());
        wire::Frame out;
        wire::CmMessage answer;
        if (!pair.server().poll_frame(out)) return std::nullopt;
        EXPECT_EQ(wire::parse_cm(testing::mad_of(out), answer), wire::MadError::kNone);
        return answer;
    };
    wire::ReqMessage req;
    req.local_comm_id = 5;
    req.transaction_id = 6;
    const auto rej = std::get<wire::RejMessage>(answer_to(req).value());
    EXPECT_EQ(rej.reason, 31);
    EXPECT_EQ(rej.remote_comm_id, 5u);
    EXPECT_EQ(rej.transaction_id, 6u);
    wire::SidrReqMessage query;
    query.request_id = 7;
    const auto reply = std::get<wire::SidrRepMessage>(answer_to(query).value());
    EXPECT_EQ(reply.status, 5);
    EXPECT_EQ(reply.request_id, 7u);
    EXPECT_EQ(answer_to(wire::DreqMessage{}), std::nullopt);
    EXPECT_EQ(pair.server().counters().malformed, 3u);
    EXPECT_EQ(pair.server().counts().connections, 0u);
}

}  // namespace
}  // namespace rdmalab::transport

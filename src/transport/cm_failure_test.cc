// Lost messages, peers that die, requests that cannot be: the other side gets the right event in
// time, and nothing is left behind.
#include "transport/cm.h"
#include "transport/cm_fixture.h"

namespace rdmalab::transport {
namespace {

using testing::CmPair;
using testing::CmTest;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::lose_first;
using testing::Names;
using testing::names;

TEST_F(CmTest, each_lost_message_is_made_good) {
    const auto run = [](auto drop) {
        CmPair pair2;
        pair2.listen();
        pair2.drop = drop;
        const CmConnId client =
            pair2.client().connect(pair2.connect_request(), pair2.now()).value();
        pair2.run_for(seconds(2));
        const auto requests = pair2.server_events();
        EXPECT_EQ(names(requests), Names{"Request"});
        CmAccept answer;
        answer.qp.qpn = Qpn{0x22};
        pair2.server().accept(requests.at(0).connection, answer, pair2.now());
        pair2.run_for(seconds(2));
        EXPECT_EQ(names(pair2.client_events()), Names{"Reply"});
        pair2.client().establish(client, pair2.now());
        pair2.run_for(seconds(60));
        EXPECT_EQ(names(pair2.server_events()), Names{"Established"});
        pair2.server().disconnect(requests.at(0).connection, pair2.now());
        pair2.settle();
        EXPECT_EQ(names(pair2.client_events()), (Names{"Disconnected", "TimewaitExit"}));
        EXPECT_EQ(names(pair2.server_events()), (Names{"Disconnected", "TimewaitExit"}));
    };
    run(lose_first<wire::ReqMessage>(3));
    run(lose_first<wire::RepMessage>(3));
    run(lose_first<wire::RtuMessage>(3));
    run(lose_first<wire::DreqMessage>(3));
    run(lose_first<wire::DrepMessage>(1));
}

TEST_F(CmTest, an_unknown_service_is_rejected_with_reason_8) {
    CmConnect request = pair.connect_request();
    request.service_id = wire::ip_service_id(0x0106, 1);
    pair.client().connect(request, pair.now()).value();
    pair.settle();
    EXPECT_EQ(names(pair.client_events()), Names{"Rejected(8)"});
    EXPECT_THAT(pair.server_events(), IsEmpty());
}

TEST_F(CmTest, a_listener_that_comes_a_little_late_still_gets_the_request) {
    CmConnect request = pair.connect_request();
    request.service_id = wire::ip_service_id(0x0106, 1);
    pair.client().connect(request, pair.now()).value();
    pair.run_for(milliseconds(100));
    EXPECT_THAT(pair.client_events(), IsEmpty());
    ASSERT_EQ(pair.server().listen(CmListenerId{77}, {.service_id = request.service_id}), 0);
    pair.run_for(milliseconds(150));
    EXPECT_EQ(names(pair.server_events()), Names{"Request"});
    EXPECT_THAT(pair.client_events(), IsEmpty());
}

TEST_F(CmTest, a_listener_that_comes_a_little_late_still_gets_the_service_query) {
    CmServiceQuery query = pair.service_query();
    query.service_id = wire::ip_service_id(0x0111, 1);
    pair.client().query_service(query, pair.now()).value();
    pair.run_for(milliseconds(100));
    EXPECT_THAT(pair.client_events(), IsEmpty());
    ASSERT_EQ(pair.server().listen(CmListenerId{77}, {.service_id = query.service_id}), 0);
    pair.run_for(milliseconds(150));
    EXPECT_EQ(names(pair.server_events()), Names{"ServiceRequest"});
    EXPECT_THAT(pair.client_events(), IsEmpty());
}

TEST_F(CmTest, a_lost_rej_is_repeated_and_makes_no_new_request) {
    pair.drop = lose_first<wire::RejMessage>();
    connect();
    const CmConnId server = requested();
    pair.server().reject(server, {}, pair.now());
    pair.server().release(server, pair.now());
    pair.settle();
    EXPECT_EQ(names(pair.client_events()), Names{"Rejected(28)"});
    EXPECT_THAT(pair.server_events(), IsEmpty());
}

TEST_F(CmTest, a_forgotten_request_comes_again) {
    connect();
    pair.client().query_service(pair.service_query(), pair.now()).value();
    pair.run_for(milliseconds(1));
    for (const CmEvent& event : pair.server_events())
        pair.server().forget(event.connection, pair.now());
    EXPECT_EQ(pair.server().counts(), (Cm::Counts{0, 0, 0, 2}));
    pair.run_for(seconds(1));
    EXPECT_EQ(names(pair.server_events()), (Names{"Request", "ServiceRequest"}));
    EXPECT_THAT(pair.client_events(), IsEmpty());
    const auto ids = pair.establish(Qpn{5});
    pair.server().forget(ids.server, pair.now());
    EXPECT_EQ(pair.server().state(ids.server), CmState::kEstablished) << "too late";
}

TEST_F(CmTest, a_slow_acceptor_is_announced_by_mra) {
    const CmConnId client = connect();
    const CmConnId server = requested();
    pair.run_for(seconds(30));
    EXPECT_THAT(pair.trace, Contains("s MRA"));
    EXPECT_LT(pair.trace.size(), 8u) << "the client waits as long as it is told";
    EXPECT_EQ(accept(server), 0);
    pair.run_for(milliseconds(1));
    EXPECT_EQ(names(pair.client_events()), Names{"Reply"});
    pair.run_for(seconds(30));
    EXPECT_THAT(pair.trace, Contains("c MRA")) << "and so does the server";
    EXPECT_EQ(pair.client().establish(client, pair.now()), 0);
    pair.run_for(milliseconds(1));
    EXPECT_EQ(names(pair.server_events()), Names{"Established"});
}

TEST_F(CmTest, nobody_there_is_unreachable_after_all_retries) {
    pair.drop = [](bool, const wire::CmMessage&) { return true; };
    connect();
    const Instant start = pair.now();
    pair.run_for(seconds(60));
    const auto events = pair.client_events();
    EXPECT_EQ(names(events), Names{"Unreachable(-110)"});
    EXPECT_EQ(pair.client().counters().retransmitted, 15u);
    EXPECT_EQ(std::count(pair.trace.begin(), pair.trace.end(), "c REQ"), 16);
    EXPECT_LT((pair.now() - start).ns, seconds(61).ns);
}

TEST_F(CmTest, a_client_that_never_answers_leaves_the_server_unreachable) {
    connect();
    accept(requested());
    pair.drop = [](bool from_client, const wire::CmMessage&) { return from_client; };
    pair.settle();
    EXPECT_EQ(names(pair.server_events()), Names{"Unreachable(-110)"});
}

TEST_F(CmTest, a_client_that_dies_before_the_answer_takes_its_request_back) {
    const CmConnId client = connect();
    const CmConnId server = requested();
    pair.client().release(client, pair.now());
    pair.settle();
    EXPECT_EQ(names(pair.server_events()), Names{"Rejected(4)"});
    EXPECT_EQ(accept(server), EINVAL);
    pair.server().release(server, pair.now());
    expect_nothing_left();
}

TEST_F(CmTest, a_client_that_dies_unheard_is_found_out_by_the_reply) {
    const CmConnId client = connect();
    const CmConnId server = requested();
    pair.drop = lose_first<wire::RejMessage>();
    pair.client().release(client, pair.now());
    pair.run_for(seconds(2));
    EXPECT_EQ(accept(server), 0);
    pair.settle();
    EXPECT_EQ(names(pair.server_events()), Names{"Rejected(6)"});
}

TEST_F(CmTest, a_client_that_dies_with_the_reply_rejects_it) {
    for (const int losses : {0, 2}) {
        CmPair pair2;
        pair2.listen();
        const CmConnId client =
            pair2.client().connect(pair2.connect_request(), pair2.now()).value();
        pair2.run_for(milliseconds(1));
        const CmConnId server = pair2.server_events().at(0).connection;
        pair2.server().accept(server, {}, pair2.now());
        pair2.run_for(milliseconds(1));
        pair2.drop = lose_first<wire::RejMessage>(losses);
        pair2.client().release(client, pair2.now());
        pair2.settle();
        EXPECT_EQ(names(pair2.server_events()), Names{"Rejected(28)"});
    }
}

TEST_F(CmTest, a_server_that_dies_with_a_request_rejects_it) {
    connect();
    const CmConnId server = requested();
    pair.drop = lose_first<wire::RejMessage>();
    pair.server().release(server, pair.now());
    pair.settle();
    EXPECT_EQ(names(pair.client_events()), Names{"Rejected(28)"});
}

TEST_F(CmTest, a_server_that_dies_after_its_reply_disconnects) {
    for (const bool established_first : {false, true}) {
        CmPair pair2;
        pair2.listen();
        const CmConnId client =
            pair2.client().connect(pair2.connect_request(), pair2.now()).value();
        pair2.run_for(milliseconds(1));
        const CmConnId server = pair2.server_events().at(0).connection;
        pair2.server().accept(server, {}, pair2.now());
        pair2.run_for(milliseconds(1));
        pair2.drop = lose_first<wire::RtuMessage>(1);
        if (established_first) pair2.client().establish(client, pair2.now());
        pair2.server().release(server, pair2.now());
        pair2.run_for(milliseconds(1));
        EXPECT_EQ(names(pair2.client_events()), (Names{"Reply", "Disconnected"}));
    }
}

TEST_F(CmTest, a_server_that_dies_while_its_reply_is_lost_rejects_the_repeated_request) {
    connect();
    const CmConnId server = requested();
    pair.drop = lose_first<wire::RepMessage>();
    accept(server);
    pair.server().release(server, pair.now());
    pair.settle();
    EXPECT_EQ(names(pair.client_events()), Names{"Rejected(10)"});
}

TEST_F(CmTest, either_death_of_an_established_connection_is_a_disconnect) {
    for (const bool client_dies : {true, false}) {
        CmPair pair2;
        pair2.listen();
        const auto ids = pair2.establish();
        pair2.drop = lose_first<wire::DreqMessage>(5);
        if (client_dies)
            pair2.client().release(ids.client, pair2.now());
        else
            pair2.server().release(ids.server, pair2.now());
        pair2.run_for(seconds(5));
        EXPECT_EQ(names(client_dies ? pair2.server_events() : pair2.client_events()),
                  (Names{"Disconnected", "TimewaitExit"}));
    }
}

TEST_F(CmTest, a_disconnect_whose_peer_has_forgotten_it_still_ends) {
    const auto ids = pair.establish();
    pair.server().release(ids.server, pair.now());
    pair.drop = [](bool, const wire::CmMessage&) { return true; };
    pair.run_for(seconds(60));
    pair.drop = nullptr;
    EXPECT_THAT(pair.client_events(), IsEmpty());
    pair.client().disconnect(ids.client, pair.now());
    pair.run_for(milliseconds(10));
    EXPECT_EQ(names(pair.client_events()), Names{"Disconnected"});
}

TEST_F(CmTest, a_second_connection_of_the_same_qp_ends_the_first) {
    const auto ids = pair.establish(Qpn{0x11});
    connect(Qpn{0x11});
    pair.settle();
    EXPECT_EQ(names(pair.client_events()), (Names{"Disconnected", "Rejected(10)", "TimewaitExit"}));
    EXPECT_EQ(names(pair.server_events()), (Names{"Disconnected", "TimewaitExit"}));
    EXPECT_EQ(pair.server().state(ids.server), CmState::kIdle);
    connect(Qpn{0x11});
    requested();
}

TEST_F(CmTest, a_new_request_of_a_qp_replaces_one_that_nobody_accepted) {
    const CmConnId first = connect(Qpn{0x11});
    const CmConnId old = requested();
    pair.drop = lose_first<wire::RejMessage>();
    pair.client().release(first, pair.now());
    connect(Qpn{0x11});
    pair.run_for(milliseconds(1));
    const auto events = pair.server_events();
    EXPECT_EQ(names(events), (Names{"Rejected(10)", "Request"}));
    EXPECT_EQ(events.at(0).connection, old);
    EXPECT_EQ(accept(events.at(1).connection), 0);
}

TEST_F(CmTest, a_bad_request_is_rejected_with_its_reason) {
    const auto reason = [](auto change) {
        CmPair pair2;
        pair2.listen();
        wire::ReqMessage req;
        req.local_comm_id = 5;
        req.service_id = testing::kService;
        req.path_mtu = 3;
        req.primary.remote_gid = testing::server_gid();
        wire::emit_ip_cm_header({4, 1, testing::client_gid(), testing::server_gid()},
                                req.private_data);
        change(req);
        wire::MadBytes mad;
        wire::emit_cm(req, mad);
        pair2.server().handle_frame(
            testing::gsi_frame(testing::client_gid(), testing::server_gid(), mad), pair2.now());
        // An unknown service is known after a while only.
        pair2.server().handle_timeout(pair2.now() + milliseconds(200));
        wire::Frame out;
        if (!pair2.server().poll_frame(out)) return 0;
        wire::CmMessage answer;
        EXPECT_EQ(wire::parse_cm(testing::mad_of(out), answer), wire::MadError::kNone);
        EXPECT_EQ(wire::destination_gid(out), testing::client_gid());
        EXPECT_EQ(std::get<wire::RejMessage>(answer).remote_comm_id, 5u);
        return int{std::get<wire::RejMessage>(answer).reason};
    };
    EXPECT_EQ(reason([](auto&) {}), 0);
    EXPECT_EQ(reason([](auto& req) { req.service = wire::CmService::kRd; }), 9);
    EXPECT_EQ(reason([](auto& req) { req.service = wire::CmService::kExtended; }), 9);
    EXPECT_EQ(reason([](auto& req) { req.primary.remote_gid = {}; }), 12);
    EXPECT_EQ(reason([](auto& req) { req.path_mtu = 0; }), 26);
    EXPECT_EQ(reason([](auto& req) { req.path_mtu = 6; }), 26);
    EXPECT_EQ(reason([](auto& req) { req.private_data[1] = 0x50; }), 5);
    EXPECT_EQ(reason([](auto& req) { req.service_id = 1; }), 8);
}

TEST_F(CmTest, what_is_not_a_datagram_of_qp_1_is_counted_and_dropped) {
    wire::MadBytes mad;
    wire::emit_cm(wire::DreqMessage{}, mad);
    const auto send = [&](auto change) {
        wire::Frame frame = testing::gsi_frame(testing::client_gid(), testing::server_gid(), mad);
        change(frame);
        pair.server().handle_frame(frame, pair.now());
        wire::Frame out;
        return pair.server().poll_frame(out);
    };
    const auto deth = [](wire::Frame& frame) {
        return wire::header_at<wire::Deth>(frame, frame.bth_offset + sizeof(wire::Bth));
    };
    EXPECT_TRUE(send([](wire::Frame&) {})) << "a DREQ for nothing gets its DREP";
    EXPECT_FALSE(send([&](wire::Frame& frame) { deth(frame)->qkey = 0x11111111; }));
    EXPECT_FALSE(send([&](wire::Frame& frame) { deth(frame)->source_qp = 2; }));
    EXPECT_FALSE(send([](wire::Frame& frame) { frame.payload_length = 255; }));
    EXPECT_FALSE(send([](wire::Frame& frame) { frame.segments[0].space = SpaceId{7}; }));
    EXPECT_FALSE(send([](wire::Frame& frame) {
        wire::header_at<wire::Bth>(frame, frame.bth_offset)->opcode = 0x65;
    }));
    EXPECT_EQ(pair.server().counters().malformed, 5u);
}

TEST_F(CmTest, a_datagram_to_somebody_else_is_not_answered) {
    wire::MadBytes mad;
    wire::emit_cm(wire::DreqMessage{}, mad);
    pair.server().handle_frame(
        testing::gsi_frame(testing::client_gid(), testing::client_gid(), mad), pair.now());
    wire::Frame out;
    EXPECT_FALSE(pair.server().poll_frame(out));
    EXPECT_EQ(pair.server().counters().misdirected, 1u);
}

TEST_F(CmTest, a_dreq_with_a_foreign_qpn_is_dropped) {
    const auto ids = pair.establish();
    pair.drop = [](bool, const wire::CmMessage&) { return true; };
    pair.client().disconnect(ids.client, pair.now());
    wire::Frame frame;
    ASSERT_TRUE(pair.client().poll_frame(frame));
    wire::CmMessage message;
    ASSERT_EQ(wire::parse_cm(testing::mad_of(frame), message), wire::MadError::kNone);
    auto dreq = std::get<wire::DreqMessage>(message);
    EXPECT_EQ(dreq.remote_qpn, Qpn{0x22});
    dreq.remote_qpn = Qpn{0x23};
    wire::MadBytes mad;
    wire::emit_cm(dreq, mad);
    pair.server().handle_frame(
        testing::gsi_frame(testing::client_gid(), testing::server_gid(), mad), pair.now());
    EXPECT_THAT(pair.server_events(), IsEmpty());
    EXPECT_EQ(pair.server().state(ids.server), CmState::kEstablished);
}

TEST_F(CmTest, a_service_that_dies_rejects_its_queries) {
    pair.client().query_service(pair.service_query(), pair.now()).value();
    pair.run_for(milliseconds(1));
    pair.server().release(pair.server_events().at(0).connection, pair.now());
    pair.settle();
    EXPECT_EQ(names(pair.client_events()), Names{"ServiceReply(2)"});
}

TEST_F(CmTest, a_full_table_rejects_with_no_resources) {
    CmConfig config;
    config.gids = {testing::server_gid()};
    config.connection_max = 1;
    Cm small(config);
    small.listen(CmListenerId{1}, {.service_id = testing::kService});
    std::vector<int> reasons;
    for (std::uint32_t i = 1; i <= 2; ++i) {
        pair.client().connect(pair.connect_request(Qpn{i}), pair.now()).value();
        wire::Frame frame;
        ASSERT_TRUE(pair.client().poll_frame(frame));
        small.handle_frame(frame, pair.now());
        if (small.poll_frame(frame)) {
            wire::CmMessage message;
            wire::parse_cm(testing::mad_of(frame), message);
            reasons.push_back(std::get<wire::RejMessage>(message).reason);
        }
    }
    EXPECT_THAT(reasons, ElementsAre(3));
    EXPECT_EQ(small.connect(pair.connect_request(), pair.now()).error().code, ENOMEM);
}

}  // namespace
}  // namespace rdmalab::transport

// Two managers over a link: what each side hears, message by message. Steps come in pairs: what
// happens, and what is expected.
#include "transport/cm.h"

#include "transport/cm_fixture.h"

namespace rdmalab::transport {
namespace {

using testing::CmTest;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::lose_first;
using testing::Names;
using testing::names;

TEST_F(CmTest, a_connection_takes_three_messages_and_its_end_two) {
    const CmConnId client = connect();
    const CmConnId server = requested();
    EXPECT_EQ(accept(server), 0);
    pair.run_for(milliseconds(1));
    EXPECT_EQ(names(pair.client_events()), Names{"Reply"});
    EXPECT_EQ(pair.client().establish(client, pair.now()), 0);
    pair.run_for(milliseconds(1));
    EXPECT_EQ(names(pair.server_events()), Names{"Established"});

    EXPECT_EQ(pair.client().disconnect(client, pair.now()), 0);
    pair.settle();
    EXPECT_EQ(names(pair.client_events()), (Names{"Disconnected", "TimewaitExit"}));
    EXPECT_EQ(names(pair.server_events()), (Names{"Disconnected", "TimewaitExit"}));
    EXPECT_THAT(pair.trace, ElementsAre("c REQ", "s REP", "c RTU", "c DREQ", "s DREP"));

    pair.client().release(client, pair.now());
    pair.server().release(server, pair.now());
    expect_nothing_left();
}

TEST_F(CmTest, request_and_reply_carry_what_the_other_side_gave) {
    CmConnect request = pair.connect_request();
    const std::vector<std::uint8_t> hello = {1, 2, 3};
    request.private_data = hello;
    request.ece = {0x12'3456, 0x789a'bcde};
    request.route.traffic_class = 0x20;
    const CmConnId client = pair.client().connect(request, pair.now()).value();
    pair.run_for(milliseconds(1));
    const CmEvent event = pair.server_events().at(0);
    EXPECT_EQ(event.listener, CmListenerId{1});
    EXPECT_EQ(event.service_id, testing::kService);
    EXPECT_EQ(event.ip.source_port, 50'000);
    EXPECT_EQ(event.route.peer, testing::client_gid());
    EXPECT_EQ(event.route.local, testing::server_gid());
    EXPECT_EQ(event.qp.qpn, Qpn{0x11});
    EXPECT_EQ(event.qp.responder_resources, 2) << "the peer's initiator depth";
    EXPECT_EQ(event.qp.initiator_depth, 3);
    EXPECT_EQ(event.qp.retry_count, 7);
    EXPECT_EQ(event.qp.rnr_retry_count, 6);
    EXPECT_EQ(event.ece, request.ece);
    ASSERT_EQ(event.private_data.size(), 56u);
    EXPECT_EQ(event.private_data[2], 3);
    EXPECT_EQ(event.private_data[3], 0);

    CmAccept answer;
    answer.qp = {Qpn{0x22}, 1, 2, 0, 5, true, true};
    const std::vector<std::uint8_t> welcome(196, 7);
    answer.private_data = welcome;
    ASSERT_EQ(pair.server().accept(event.connection, answer, pair.now()), 0);
    pair.run_for(milliseconds(1));
    const CmEvent reply = pair.client_events().at(0);
    EXPECT_EQ(reply.qp.qpn, Qpn{0x22});
    EXPECT_EQ(reply.qp.responder_resources, 2);
    EXPECT_EQ(reply.qp.initiator_depth, 1);
    EXPECT_EQ(reply.qp.rnr_retry_count, 5);
    EXPECT_TRUE(reply.qp.flow_control && reply.qp.srq);
    EXPECT_EQ(reply.private_data, welcome);

    const CmQpFacts& active = *pair.client().facts(client);
    const CmQpFacts& passive = *pair.server().facts(event.connection);
    EXPECT_EQ(active.remote_qpn, Qpn{0x22});
    EXPECT_EQ(passive.remote_qpn, Qpn{0x11});
    EXPECT_EQ(active.send_psn, passive.receive_psn);
    EXPECT_EQ(active.receive_psn, passive.send_psn);
    EXPECT_EQ(active.responder_resources, 2);
    EXPECT_EQ(active.initiator_depth, 1);
    EXPECT_EQ(passive.responder_resources, 1);
    EXPECT_EQ(passive.initiator_depth, 2);
    EXPECT_EQ(active.rnr_retry_count, 5);
    EXPECT_EQ(passive.rnr_retry_count, 6);
    EXPECT_EQ(passive.ack_timeout, 14);
    EXPECT_EQ(active.ack_timeout, 14);
    EXPECT_EQ(passive.path_mtu, 5);
    EXPECT_EQ(passive.route.traffic_class, 0x20);
}

TEST_F(CmTest, a_consumer_reject_carries_its_private_data_and_reason) {
    connect();
    const CmConnId server = requested();
    CmReject answer;
    const std::vector<std::uint8_t> why(148, 9);
    answer.private_data = why;
    EXPECT_EQ(pair.server().reject(server, answer, pair.now()), 0);
    pair.settle();
    const auto events = pair.client_events();
    EXPECT_EQ(names(events), Names{"Rejected(28)"});
    EXPECT_EQ(events.at(0).private_data, why);
}

TEST_F(CmTest, the_active_side_may_reject_the_reply) {
    const CmConnId client = connect();
    accept(requested());
    pair.run_for(milliseconds(1));
    EXPECT_EQ(pair.client().reject(client, {}, pair.now()), 0);
    pair.settle();
    EXPECT_EQ(names(pair.server_events()), Names{"Rejected(28)"});
}

TEST_F(CmTest, both_sides_may_disconnect_at_once) {
    const auto ids = pair.establish();
    pair.trace.clear();
    pair.client().disconnect(ids.client, pair.now());
    pair.server().disconnect(ids.server, pair.now());
    pair.settle();
    EXPECT_EQ(names(pair.client_events()), (Names{"Disconnected", "TimewaitExit"}));
    EXPECT_EQ(names(pair.server_events()), (Names{"Disconnected", "TimewaitExit"}));
    EXPECT_THAT(pair.trace, ElementsAre("c DREQ", "s DREQ", "c DREP", "s DREP"));
}

TEST_F(CmTest, disconnect_after_the_peer_did_it_is_quiet) {
    const auto ids = pair.establish();
    pair.client().disconnect(ids.client, pair.now());
    pair.run_for(milliseconds(1));
    pair.trace.clear();
    EXPECT_EQ(pair.server().disconnect(ids.server, pair.now()), 0);
    pair.run_for(milliseconds(1));
    EXPECT_THAT(pair.trace, IsEmpty());
}

TEST_F(CmTest, a_disconnect_before_the_rtu_reaches_a_client_that_was_told) {
    const CmConnId client = connect();
    const CmConnId server = requested();
    accept(server);
    pair.run_for(milliseconds(1));
    EXPECT_EQ(pair.server().disconnect(server, pair.now()), 0);
    pair.settle();
    EXPECT_EQ(names(pair.client_events()), (Names{"Reply", "Disconnected", "TimewaitExit"}));
    EXPECT_EQ(pair.client().establish(client, pair.now()), EINVAL);
    EXPECT_EQ(names(pair.server_events()), (Names{"Disconnected", "TimewaitExit"}));
}

TEST_F(CmTest, a_message_on_the_qp_stands_for_a_lost_rtu) {
    const CmConnId client = connect();
    const CmConnId server = requested();
    accept(server);
    pair.run_for(milliseconds(1));
    pair.drop = lose_first<wire::RtuMessage>(100);
    pair.client().establish(client, pair.now());
    EXPECT_EQ(pair.server().notify_established(server, pair.now()), 0);
    pair.run_for(milliseconds(1));
    EXPECT_EQ(names(pair.server_events()), Names{"Established"});
    EXPECT_EQ(pair.server().notify_established(server, pair.now()), 0);
    EXPECT_THAT(pair.server_events(), IsEmpty());
}

TEST_F(CmTest, calls_in_the_wrong_state_are_refused) {
    const CmConnId client = connect();
    EXPECT_EQ(pair.client().establish(client, pair.now()), EINVAL);
    EXPECT_EQ(pair.client().accept(client, {}, pair.now()), EINVAL);
    EXPECT_EQ(pair.client().reject(client, {}, pair.now()), EINVAL);
    EXPECT_EQ(pair.client().notify_established(client, pair.now()), EINVAL);
    EXPECT_EQ(pair.client().disconnect(client, pair.now()), 0);
    const CmConnId server = requested();
    EXPECT_EQ(accept(server), 0);
    EXPECT_EQ(accept(server), EINVAL);
    const CmConnId nobody{0x1234'5678};
    EXPECT_EQ(pair.client().establish(nobody, pair.now()), EINVAL);
    EXPECT_EQ(pair.client().disconnect(nobody, pair.now()), EINVAL);
    EXPECT_EQ(pair.client().facts(nobody), nullptr);
}

TEST_F(CmTest, private_data_longer_than_its_field_is_refused) {
    const std::vector<std::uint8_t> data(200);
    CmConnect request = pair.connect_request();
    request.private_data = std::span(data).first(57);
    EXPECT_EQ(pair.client().connect(request, pair.now()).error().code, EINVAL);
    connect();
    const CmConnId server = requested();
    CmAccept answer;
    answer.private_data = std::span(data).first(197);
    EXPECT_EQ(pair.server().accept(server, answer, pair.now()), EINVAL);
    CmReject reject;
    reject.private_data = std::span(data).first(149);
    EXPECT_EQ(pair.server().reject(server, reject, pair.now()), EINVAL);
    CmServiceQuery query = pair.service_query();
    query.private_data = std::span(data).first(181);
    EXPECT_EQ(pair.client().query_service(query, pair.now()).error().code, EINVAL);
}

TEST_F(CmTest, an_exact_address_goes_before_a_wildcard) {
    CmListen exact{.service_id = testing::kService};
    exact.address = testing::server_gid();
    EXPECT_EQ(pair.server().listen(CmListenerId{3}, exact), 0);
    EXPECT_EQ(pair.server().listen(CmListenerId{4}, exact), EADDRINUSE);
    connect();
    pair.run_for(milliseconds(1));
    EXPECT_EQ(pair.server_events().at(0).listener, CmListenerId{3});
    pair.server().unlisten(CmListenerId{3});
    connect(Qpn{0x12});
    pair.run_for(milliseconds(1));
    EXPECT_EQ(pair.server_events().at(0).listener, CmListenerId{1});
    pair.server().unlisten(CmListenerId{1});
    connect(Qpn{0x13});
    pair.run_for(milliseconds(250));
    EXPECT_EQ(names(pair.client_events()), Names{"Rejected(8)"});
}

TEST_F(CmTest, a_wildcard_takes_only_its_families) {
    const std::uint64_t service = wire::ip_service_id(0x0106, 99);
    CmListen ipv6{.service_id = service};
    ipv6.takes_ipv4 = false;
    EXPECT_EQ(pair.server().listen(CmListenerId{5}, ipv6), 0);
    CmListen ipv4{.service_id = service};
    ipv4.takes_ipv6 = false;
    EXPECT_EQ(pair.server().listen(CmListenerId{6}, ipv4), 0);
    EXPECT_EQ(pair.server().listen(CmListenerId{7}, {.service_id = service}), EADDRINUSE);
    CmConnect request = pair.connect_request();
    request.service_id = service;
    pair.client().connect(request, pair.now()).value();
    request.ip = {6, 50'000, *Gid::parse("fd00::2"), *Gid::parse("fd00::1")};
    request.qp.qpn = Qpn{0x12};
    pair.client().connect(request, pair.now()).value();
    pair.run_for(milliseconds(1));
    const auto events = pair.server_events();
    EXPECT_EQ(events.at(0).listener, CmListenerId{6});
    EXPECT_EQ(events.at(1).listener, CmListenerId{5});
}

TEST_F(CmTest, a_service_query_gets_qpn_and_qkey) {
    pair.client().query_service(pair.service_query(), pair.now()).value();
    pair.run_for(milliseconds(1));
    const auto requests = pair.server_events();
    ASSERT_EQ(names(requests), Names{"ServiceRequest"});
    EXPECT_EQ(requests[0].private_data.size(), 180u);
    CmAccept answer;
    answer.qp.qpn = Qpn{0x33};
    answer.qkey = 0x0123'4567;
    const std::vector<std::uint8_t> data(136, 4);
    answer.private_data = data;
    EXPECT_EQ(pair.server().accept(requests[0].connection, answer, pair.now()), 0);
    pair.settle();
    const auto replies = pair.client_events();
    ASSERT_EQ(names(replies), Names{"ServiceReply"});
    EXPECT_EQ(replies[0].qp.qpn, Qpn{0x33});
    EXPECT_EQ(replies[0].qkey, 0x0123'4567u);
    EXPECT_EQ(replies[0].private_data, data);
    EXPECT_THAT(pair.trace, ElementsAre("c SIDR_REQ", "s SIDR_REP"));
}

TEST_F(CmTest, a_service_query_may_be_rejected_unknown_or_unanswered) {
    pair.client().query_service(pair.service_query(), pair.now()).value();
    pair.run_for(milliseconds(1));
    pair.drop = lose_first<wire::SidrRepMessage>();
    pair.server().reject(pair.server_events().at(0).connection, {}, pair.now());
    pair.settle();
    EXPECT_EQ(names(pair.client_events()), Names{"ServiceReply(2)"});
    EXPECT_THAT(pair.server_events(), IsEmpty()) << "the repeated query got the same answer";

    CmServiceQuery unknown = pair.service_query();
    unknown.service_id = 1;
    pair.client().query_service(unknown, pair.now()).value();
    pair.settle();
    EXPECT_EQ(names(pair.client_events()), Names{"ServiceReply(1)"});

    pair.drop = [](bool, const wire::CmMessage&) { return true; };
    pair.client().query_service(pair.service_query(), pair.now()).value();
    pair.settle();
    EXPECT_EQ(names(pair.client_events()), Names{"Unreachable(-110)"});
}

}  // namespace
}  // namespace rdmalab::transport

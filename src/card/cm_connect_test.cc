// Connections between clients of one card: what each is told, and what is left when one dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "card/cm_testing.h"

namespace rdmalab::card {
namespace {

using abi::CmEventType;
using abi::CmOp;
using testing::CmClient;
using testing::CmWorld;

constexpr std::uint16_t kPort = 7'471;
constexpr std::uint32_t kInit = 1, kRtr = 2, kRts = 3;

class CmConnectTest : public ::testing::Test {
protected:
    CmWorld world;
    CmClient a = world.client(), b = world.client();

    std::uint32_t connecting(const std::string& to = "10.0.0.1", std::uint32_t qpn = 0x11) {
        const std::uint32_t id = a.create_id();
        EXPECT_EQ(a.resolve(id, to, kPort), 0);
        EXPECT_EQ(a.connect(id, qpn), 0);
        world.run_for(milliseconds(1));
        return id;
    }
    void expect_nothing_left() {
        world.service.close_session(a.session(), world.now);
        world.service.close_session(b.session(), world.now);
        world.run_for(seconds(60));
        EXPECT_EQ(world.service.counts(), (CmService::Counts{0, 0, 0, 0}));
    }
};

TEST_F(CmConnectTest, a_connection_from_request_to_timewait) {
    const std::uint32_t listener = b.listen("0.0.0.0", kPort);
    const std::uint32_t active = connecting("10.0.0.2");
    const abi::CmEventRecord request = b.next();
    EXPECT_EQ(request.type, CmEventType::kConnectRequest);
    EXPECT_EQ(request.id, listener);
    EXPECT_EQ(request.device, 3u);
    EXPECT_EQ(request.qp_type, 2u);
    EXPECT_EQ(request.conn.qp_num, 0x11u);
    EXPECT_EQ(request.local.port, kPort);
    EXPECT_EQ(request.peer.port, a.info(active).local.port);
    EXPECT_EQ(request.private_data.length, 56u);
    EXPECT_EQ(b.adopt(request.new_id), 0);
    EXPECT_EQ(b.adopt(request.new_id), EINVAL);
    EXPECT_EQ(b.accept(request.new_id), 0);
    world.run_for(milliseconds(1));
    const abi::CmEventRecord response = a.next();
    EXPECT_EQ(response.type, CmEventType::kConnectResponse);
    EXPECT_EQ(response.conn.qp_num, 0x22u);
    EXPECT_EQ(response.private_data.length, 196u);
    EXPECT_EQ(a.establish(active), 0);
    world.run_for(milliseconds(1));
    EXPECT_EQ(b.next().type, CmEventType::kEstablished);
    EXPECT_EQ(a.disconnect(active), 0);
    world.run_for(seconds(3));
    for (CmClient* client : {&a, &b}) {
        EXPECT_EQ(client->next().type, CmEventType::kDisconnected);
        EXPECT_EQ(client->next().type, CmEventType::kTimewaitExit);
        EXPECT_EQ(client->pending(), 0u);
    }
    expect_nothing_left();
}

TEST_F(CmConnectTest, the_qp_attributes_of_both_ends_fit) {
    b.listen("0.0.0.0", kPort);
    const std::uint32_t active = connecting("10.0.0.2");
    const std::uint32_t passive = b.next().new_id;
    b.adopt(passive);
    abi::CmInitQpAttrReply reply{};
    EXPECT_EQ(a.call(CmOp::kInitQpAttr, abi::CmInitQpAttrRequest{active, kRtr}, reply), EINVAL);
    EXPECT_EQ(b.call(CmOp::kInitQpAttr, abi::CmInitQpAttrRequest{passive, kInit}, reply), 0);
    EXPECT_EQ(reply.mask, 1u | 1u << 3 | 1u << 4 | 1u << 5);
    EXPECT_EQ(reply.attributes.access, 2u | 4u | 8u) << "remote write, read, atomic";
    b.accept(passive);
    world.run_for(milliseconds(1));
    abi::CmInitQpAttrReply rtr[2]{}, rts[2]{};
    for (int i = 0; i < 2; ++i) {
        CmClient& client = i == 0 ? a : b;
        const std::uint32_t id = i == 0 ? active : passive;
        EXPECT_EQ(client.call(CmOp::kInitQpAttr, abi::CmInitQpAttrRequest{id, kRtr}, rtr[i]), 0);
        EXPECT_EQ(client.call(CmOp::kInitQpAttr, abi::CmInitQpAttrRequest{id, kRts}, rts[i]), 0);
        EXPECT_EQ(rtr[i].mask, 1u | 1u << 7 | 1u << 8 | 1u << 12 | 1u << 15 | 1u << 17 | 1u << 20);
        EXPECT_EQ(rts[i].mask, 1u | 1u << 9 | 1u << 10 | 1u << 11 | 1u << 13 | 1u << 16);
        EXPECT_EQ(rtr[i].attributes.path_mtu, 5u);
        EXPECT_EQ(rtr[i].attributes.ah.sgid_index, 1);
        EXPECT_EQ(Gid{std::to_array(rtr[i].attributes.ah.dgid)}, *Gid::parse("10.0.0.2"));
        EXPECT_EQ(rts[i].attributes.timeout, 14);
    }
    EXPECT_EQ(rtr[0].attributes.destination_qpn, 0x22u);
    EXPECT_EQ(rtr[1].attributes.destination_qpn, 0x11u);
    EXPECT_EQ(rtr[0].attributes.rq_psn, rts[1].attributes.sq_psn);
    EXPECT_EQ(rtr[1].attributes.rq_psn, rts[0].attributes.sq_psn);
    EXPECT_EQ(rts[0].attributes.retry_count, 7);
    EXPECT_EQ(a.call(CmOp::kInitQpAttr, abi::CmInitQpAttrRequest{active, kRts, 3}, reply), 0);
    EXPECT_EQ(reply.mask, 1u | 1u << 16) << "UC";
    EXPECT_EQ(a.call(CmOp::kInitQpAttr, abi::CmInitQpAttrRequest{active, 4}, reply), EINVAL);
}

TEST_F(CmConnectTest, loopback_addresses_meet) {
    for (const char* address : {"127.0.0.1", "::1"}) {
        ASSERT_NE(b.listen(address, kPort), 0u);
        const std::uint32_t active = connecting(address);
        const abi::CmEventRecord request = b.next();
        ASSERT_EQ(request.type, CmEventType::kConnectRequest) << address;
        EXPECT_EQ(Gid{std::to_array(request.local.address)}, *Gid::parse(address));
        EXPECT_EQ(Gid{std::to_array(request.peer.address)}, *Gid::parse(address));
        EXPECT_EQ(a.info(active).device, request.device);
    }
}

TEST_F(CmConnectTest, an_ipv6_wildcard_hears_ipv4_unless_it_may_not) {
    const std::uint32_t both = b.listen("::", kPort);
    connecting("10.0.0.1");
    EXPECT_EQ(b.next().type, CmEventType::kConnectRequest);
    b.destroy(both);
    const std::uint32_t only = b.create_id();
    EXPECT_EQ(b.call(CmOp::kSetOption, abi::CmSetOptionRequest{only, 0, 2, 4, 1}), 0);
    EXPECT_EQ(b.bind(only, "::", kPort), 0);
    EXPECT_EQ(b.call(CmOp::kListen, abi::CmListenRequest{only, 1}), 0);
    a.next();
    connecting("10.0.0.1", 0x12);
    world.run_for(milliseconds(200));
    const abi::CmEventRecord record = a.next();
    EXPECT_EQ(record.type, CmEventType::kRejected);
    EXPECT_EQ(record.status, 8);
}

TEST_F(CmConnectTest, a_port_without_listener_is_rejected) {
    connecting();
    world.run_for(milliseconds(200));
    const abi::CmEventRecord record = a.next();
    EXPECT_EQ(record.type, CmEventType::kRejected);
    EXPECT_EQ(record.status, 8);
}

TEST_F(CmConnectTest, rejects_carry_reason_and_data) {
    b.listen("0.0.0.0", kPort);
    for (const std::uint16_t reason : {abi::kCmRejectConsumer, abi::kCmRejectVendorOption}) {
        connecting("10.0.0.1", reason);
        const std::uint32_t passive = b.next().new_id;
        b.adopt(passive);
        abi::CmRejectRequest reject{};
        reject.id = passive;
        reject.reason = 8;
        EXPECT_EQ(b.call(CmOp::kReject, reject), EINVAL) << "not the application's to give";
        reject.reason = reason;
        reject.private_data.length = 3;
        reject.private_data.bytes[2] = 42;
        EXPECT_EQ(b.call(CmOp::kReject, reject), 0);
        EXPECT_EQ(b.accept(passive), EINVAL);
        world.run_for(milliseconds(1));
        const abi::CmEventRecord record = a.next();
        EXPECT_EQ(record.type, CmEventType::kRejected);
        EXPECT_EQ(record.status, reason);
        EXPECT_EQ(record.private_data.length, 148u);
        EXPECT_EQ(record.private_data.bytes[2], 42);
    }
}

TEST_F(CmConnectTest, a_full_backlog_lets_a_request_wait_until_a_place_is_free) {
    b.listen("0.0.0.0", kPort, 2);
    for (std::uint32_t i = 0; i < 3; ++i) connecting("10.0.0.1", 0x11 + i);
    EXPECT_EQ(b.pending(), 2u);
    EXPECT_EQ(a.pending(), 0u) << "not rejected";
    b.adopt(b.next().new_id);
    world.run_for(seconds(1));
    EXPECT_EQ(b.pending(), 2u) << "it has asked again";
    connecting("10.0.0.1", 0x20);
    world.run_for(seconds(20));
    EXPECT_EQ(a.next().type, CmEventType::kUnreachable) << "but not for ever";
}

TEST_F(CmConnectTest, events_before_adoption_come_after_it) {
    b.listen("0.0.0.0", kPort);
    const std::uint32_t active = connecting();
    const std::uint32_t passive = b.next().new_id;
    a.destroy(active);
    world.run_for(milliseconds(1));
    EXPECT_EQ(b.pending(), 0u);
    const std::uint32_t channel = b.create_channel();
    EXPECT_EQ(b.adopt(passive, channel), 0);
    const abi::CmEventRecord record = b.next(channel);
    EXPECT_EQ(record.type, CmEventType::kRejected);
    EXPECT_EQ(record.id, passive);
    EXPECT_NE(record.cookie, 0u);
    EXPECT_EQ(b.accept(passive), EINVAL);
}

TEST_F(CmConnectTest, a_listener_takes_unread_requests_with_it) {
    const std::uint32_t listener = b.listen("0.0.0.0", kPort);
    connecting("10.0.0.1", 0x11);
    connecting("10.0.0.1", 0x12);
    const std::uint32_t read = b.next().new_id;
    abi::CmEventsReply reply{};
    EXPECT_EQ(b.call(CmOp::kDestroyId, abi::CmDestroyIdRequest{listener, 1}, reply), 0);
    EXPECT_EQ(reply.events_reported, 1u);
    EXPECT_EQ(b.pending(), 0u);
    world.run_for(milliseconds(1));
    EXPECT_EQ(a.next().status, 28);
    EXPECT_EQ(a.pending(), 0u);
    EXPECT_EQ(b.adopt(read), 0);
    EXPECT_EQ(b.accept(read), 0);
    world.run_for(milliseconds(1));
    EXPECT_EQ(a.next().type, CmEventType::kConnectResponse);
}

TEST_F(CmConnectTest, death_in_every_state_is_told_to_the_other_side) {
    enum class At { kRequested, kAccepted, kEstablished };
    for (const At at : {At::kRequested, At::kAccepted, At::kEstablished}) {
        for (const bool active_dies : {true, false}) {
            CmWorld world2;
            CmClient client = world2.client(), server = world2.client();
            server.listen("0.0.0.0", kPort);
            const std::uint32_t active = client.create_id();
            client.resolve(active, "10.0.0.1", kPort);
            client.connect(active);
            world2.run_for(milliseconds(1));
            const std::uint32_t passive = server.next().new_id;
            server.adopt(passive);
            if (at != At::kRequested) server.accept(passive);
            world2.run_for(milliseconds(1));
            if (at != At::kRequested) client.next();
            if (at == At::kEstablished) {
                client.establish(active);
                world2.run_for(milliseconds(1));
                server.next();
            }
            CmClient& dying = active_dies ? client : server;
            CmClient& living = active_dies ? server : client;
            world2.service.close_session(dying.session(), world2.now);
            world2.run_for(milliseconds(1));
            const abi::CmEventRecord record = living.next();
            const bool is_before = at == At::kRequested || (at == At::kAccepted && active_dies);
            EXPECT_EQ(record.type, is_before ? CmEventType::kRejected : CmEventType::kDisconnected);
            world2.service.close_session(living.session(), world2.now);
            world2.run_for(seconds(60));
            EXPECT_EQ(world2.service.counts(), (CmService::Counts{0, 0, 0, 0}));
        }
    }
}

TEST_F(CmConnectTest, a_ud_service_answers_with_qpn_key_and_address) {
    ASSERT_NE(b.listen("10.0.0.2", kPort, 0, abi::kPortSpaceUdp, 4), 0u);
    const std::uint32_t active = a.create_id(abi::kPortSpaceUdp, 4);
    EXPECT_EQ(a.resolve(active, "10.0.0.2", kPort, "10.0.0.1"), 0);
    EXPECT_EQ(a.connect(active), 0);
    world.run_for(milliseconds(1));
    const abi::CmEventRecord request = b.next();
    EXPECT_EQ(request.type, CmEventType::kConnectRequest);
    EXPECT_EQ(request.qp_type, 4u);
    EXPECT_EQ(request.private_data.length, 180u);
    EXPECT_EQ(Gid{std::to_array(request.peer.address)}, *Gid::parse("10.0.0.1"));
    b.adopt(request.new_id);
    EXPECT_EQ(b.accept(request.new_id, 0x77), 0);
    world.run_for(milliseconds(1));
    const abi::CmEventRecord reply = a.next();
    EXPECT_EQ(reply.type, CmEventType::kEstablished);
    EXPECT_EQ(reply.ud.qp_num, 0x77u);
    EXPECT_EQ(reply.ud.qkey, abi::kRdmaUdpQkey);
    EXPECT_EQ(Gid{std::to_array(reply.ud.ah.dgid)}, *Gid::parse("10.0.0.2"));
    EXPECT_EQ(b.pending(), 0u);
    abi::CmInitQpAttrReply init{};
    EXPECT_EQ(a.call(CmOp::kInitQpAttr, abi::CmInitQpAttrRequest{active, kInit}, init), 0);
    EXPECT_EQ(init.mask, 1u | 1u << 4 | 1u << 5 | 1u << 6);
    EXPECT_EQ(init.attributes.qkey, abi::kRdmaUdpQkey);
    expect_nothing_left();
}

TEST_F(CmConnectTest, a_ud_service_nobody_has_is_unreachable_with_the_status) {
    const std::uint32_t active = a.create_id(abi::kPortSpaceUdp, 4);
    EXPECT_EQ(a.resolve(active, "10.0.0.2", kPort), 0);
    EXPECT_EQ(a.connect(active), 0);
    world.run_for(milliseconds(300));  // the query waits for a listener that is late
    const abi::CmEventRecord record = a.next();
    EXPECT_EQ(record.type, CmEventType::kUnreachable);
    EXPECT_EQ(record.status, 1);
}

TEST_F(CmConnectTest, the_type_of_service_reaches_both_qps) {
    b.listen("0.0.0.0", kPort);
    const std::uint32_t active = a.create_id();
    EXPECT_EQ(a.call(CmOp::kSetOption, abi::CmSetOptionRequest{active, 0, 0, 1, 0x60}), 0);
    EXPECT_EQ(a.call(CmOp::kSetOption, abi::CmSetOptionRequest{active, 0, 3, 1, 19}), 0);
    EXPECT_EQ(a.resolve(active, "10.0.0.2", kPort), 0);
    std::uint8_t on_wire = 0;
    world.drop = [&](const wire::Frame& frame) {
        on_wire = wire::traffic_class(frame);
        return false;
    };
    EXPECT_EQ(a.connect(active), 0);
    world.run_for(milliseconds(1));
    EXPECT_EQ(on_wire, 0x60);
    const std::uint32_t passive = b.next().new_id;
    b.adopt(passive);
    abi::CmInitQpAttrReply rtr{}, rts{};
    EXPECT_EQ(b.call(CmOp::kInitQpAttr, abi::CmInitQpAttrRequest{passive, kRtr}, rtr), 0);
    EXPECT_EQ(b.call(CmOp::kInitQpAttr, abi::CmInitQpAttrRequest{passive, kRts}, rts), 0);
    EXPECT_EQ(rtr.attributes.ah.traffic_class, 0x60);
    EXPECT_EQ(rts.attributes.timeout, 19);
}

TEST_F(CmConnectTest, connect_needs_a_route_and_a_unicast_peer) {
    const std::uint32_t id = a.create_id();
    EXPECT_EQ(a.connect(id), EINVAL);
    EXPECT_EQ(a.disconnect(id), EINVAL);
    EXPECT_EQ(a.establish(id), EINVAL);
    const std::uint32_t ud = a.create_id(abi::kPortSpaceUdp, 4);
    EXPECT_EQ(a.resolve(ud, "239.0.0.1", kPort), 0) << "as mckey does";
    EXPECT_EQ(a.connect(ud), EINVAL);
    abi::CmConnectRequest request{};
    request.id = a.create_id();
    EXPECT_EQ(a.resolve(request.id, "10.0.0.1", kPort), 0);
    request.private_data.length = 57;
    EXPECT_EQ(a.call(CmOp::kConnect, request), EINVAL);
    request.private_data.length = 225;
    EXPECT_EQ(a.call(CmOp::kConnect, request), EINVAL);
    request.private_data.length = 56;
    request.conn.qp_num = 0x100'0000;
    EXPECT_EQ(a.call(CmOp::kConnect, request), EINVAL);
}

TEST_F(CmConnectTest, ten_thousand_live_connections_come_and_go) {
    b.listen("0.0.0.0", kPort);
    std::vector<CmWorld::Connected> all;
    for (std::uint32_t i = 0; i < 10'000; ++i)
        all.push_back(world.establish(a, b, "10.0.0.2", kPort, i + 1));
    EXPECT_EQ(world.service.counts().connections, 20'000u);
    EXPECT_EQ(world.service.counts().ids, 20'001u);
    for (const auto& [active, passive] : all) EXPECT_EQ(a.disconnect(active), 0);
    world.run_for(milliseconds(1));
    EXPECT_EQ(b.pending(), 10'000u);
    expect_nothing_left();
}

}  // namespace
}  // namespace rdmalab::card

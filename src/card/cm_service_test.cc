// Sessions, channels, ids, ports and what a client may do wrong. Steps come in pairs: what a client
// does, and what is expected.
#include "card/cm_service.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "base/prng.h"
#include "card/cm_testing.h"

namespace rdmalab::card {
namespace {

using abi::CmEventType;
using abi::CmOp;
using testing::cm_address;
using testing::CmClient;
using testing::CmWorld;

constexpr std::uint32_t kOptionTos = 0, kOptionReuse = 1, kOptionAfOnly = 2, kOptionAckTimeout = 3;

class CmServiceTest : public ::testing::Test {
protected:
    CmWorld world;
    CmClient a = world.client(), b = world.client();

    int set_option(CmClient& client, std::uint32_t id, std::uint32_t name, std::uint32_t length,
                   std::uint32_t value) {
        return client.call(CmOp::kSetOption, abi::CmSetOptionRequest{id, 0, name, length, value});
    }
};

TEST_F(CmServiceTest, a_session_sees_what_its_namespace_and_its_own_wish_leave) {
    EXPECT_EQ(a.visible(), 0b11111u);
    CmClient narrow = world.client(0b01100);
    EXPECT_EQ(narrow.visible(), 0b01100u);
    const abi::CmOpenRequest wish{0b00110};
    const ControlReply reply = world.service.open_session(
        CmSessionId{99}, 0b01100, {reinterpret_cast<const std::byte*>(&wish), sizeof wish});
    EXPECT_EQ(load_bytes<abi::CmOpenReply>(reply.body.data()).devices, 0b00100u);
}

TEST_F(CmServiceTest, binding_tells_device_and_addresses) {
    const std::uint32_t id = a.create_id();
    abi::CmIdInfo info{};
    EXPECT_EQ(a.call(CmOp::kBind, abi::CmBindRequest{id, 0, cm_address("10.0.0.2")}, info), 0);
    EXPECT_EQ(info.device, 3u);
    EXPECT_EQ(info.gid_index, 1);
    EXPECT_EQ(info.port_num, 1);
    EXPECT_GE(info.local.port, CmPorts::kEphemeralFirst);
    EXPECT_EQ(info.mtu, 5);
    EXPECT_EQ(info.pkey, 0xffff);
    EXPECT_NE(info.node_guid, 0u);
    EXPECT_EQ(a.bind(id, "10.0.0.2", 1), EINVAL) << "bound already";
}

TEST_F(CmServiceTest, a_wildcard_leaves_the_device_open) {
    const std::uint32_t id = a.create_id();
    EXPECT_EQ(a.bind(id, "0.0.0.0", 7'471), 0);
    EXPECT_EQ(a.info(id).device, abi::kCmNone);
    EXPECT_EQ(a.info(id).local.port, 7'471);
    EXPECT_EQ(a.info(id).port_num, 0);
}

TEST_F(CmServiceTest, an_address_of_nobody_is_refused_with_names) {
    const ControlReply reply =
        a.send(CmOp::kBind, abi::CmBindRequest{a.create_id(), 0, cm_address("10.0.0.77")});
    EXPECT_EQ(reply.status, EADDRNOTAVAIL);
    EXPECT_NE(reply.text.find("10.0.0.77"), std::string::npos);
    EXPECT_NE(reply.text.find("mlx5_3 (10.0.0.2)"), std::string::npos);
}

TEST_F(CmServiceTest, a_port_is_shared_by_all_processes_and_free_when_its_owner_dies) {
    ASSERT_NE(a.listen("0.0.0.0", 7'471), 0u);
    EXPECT_EQ(b.bind(b.create_id(), "0.0.0.0", 7'471), EADDRINUSE);
    EXPECT_EQ(b.bind(b.create_id(), "10.0.0.1", 7'471), EADDRINUSE);
    EXPECT_EQ(b.bind(b.create_id(abi::kPortSpaceUdp, 4), "10.0.0.1", 7'471), 0) << "other space";
    world.service.close_session(a.session(), world.now);
    EXPECT_NE(b.listen("0.0.0.0", 7'471), 0u);
}

TEST_F(CmServiceTest, ports_of_separate_namespaces_do_not_meet) {
    CmClient ns0 = world.client(0b00100), ns1 = world.client(0b01000);
    EXPECT_NE(ns0.listen("0.0.0.0", 1), 0u);
    EXPECT_NE(ns1.listen("0.0.0.0", 1), 0u);
    EXPECT_EQ(ns1.bind(ns1.create_id(), "10.0.0.1", 0), EADDRNOTAVAIL);
}

TEST_F(CmServiceTest, reuse_shares_a_port_but_not_its_listener) {
    const std::uint32_t first = a.create_id(), second = b.create_id();
    for (auto [client, id] : {std::pair(&a, first), std::pair(&b, second)}) {
        EXPECT_EQ(set_option(*client, id, kOptionReuse, 4, 1), 0);
        EXPECT_EQ(client->bind(id, "0.0.0.0", 5), 0);
    }
    EXPECT_EQ(a.call(CmOp::kListen, abi::CmListenRequest{first, 1}), EADDRINUSE);
    b.destroy(second);
    EXPECT_EQ(a.call(CmOp::kListen, abi::CmListenRequest{first, 1}), 0);
}

TEST_F(CmServiceTest, an_unbound_listener_gets_a_port) {
    const std::uint32_t id = a.create_id();
    abi::CmIdInfo info{};
    EXPECT_EQ(a.call(CmOp::kListen, abi::CmListenRequest{id, 0}, info), 0);
    EXPECT_GE(info.local.port, CmPorts::kEphemeralFirst);
    EXPECT_EQ(a.call(CmOp::kListen, abi::CmListenRequest{id, 0}), EINVAL);
}

TEST_F(CmServiceTest, resolving_answers_by_events) {
    const std::uint32_t id = a.create_id();
    abi::CmResolveAddrRequest request{};
    request.id = id;
    request.destination = cm_address("10.0.0.2", 7'471);
    EXPECT_EQ(a.call(CmOp::kResolveAddr, request), 0);
    const abi::CmEventRecord record = a.next();
    EXPECT_EQ(record.type, CmEventType::kAddrResolved);
    EXPECT_EQ(record.id, id);
    EXPECT_EQ(record.device, 3u);
    EXPECT_EQ(record.peer.port, 7'471);
    EXPECT_EQ(Gid{std::to_array(record.local.address)}, *Gid::parse("10.0.0.2")) << "loopback";
    EXPECT_EQ(a.info(id).path_count, 0);
    EXPECT_EQ(a.call(CmOp::kResolveRoute, abi::CmResolveRouteRequest{id, 1}), 0);
    EXPECT_EQ(a.next().type, CmEventType::kRouteResolved);
    EXPECT_EQ(a.info(id).path_count, 1);
    EXPECT_EQ(a.call(CmOp::kResolveAddr, request), EINVAL);
    EXPECT_EQ(a.call(CmOp::kResolveRoute, abi::CmResolveRouteRequest{id, 1}), EINVAL);
}

TEST_F(CmServiceTest, an_unknown_destination_is_an_event_with_names) {
    const std::uint32_t id = a.create_id();
    abi::CmResolveAddrRequest request{};
    request.id = id;
    request.destination = cm_address("10.0.0.99");
    EXPECT_EQ(a.call(CmOp::kResolveAddr, request), 0);
    const abi::CmEventRecord record = a.next();
    EXPECT_EQ(record.type, CmEventType::kAddrError);
    EXPECT_EQ(record.status, -EHOSTUNREACH);
    EXPECT_NE(std::string(record.text).find("10.0.0.99 belongs to no device"), std::string::npos);
    EXPECT_NE(std::string(record.text).find("mlx5_3 (10.0.0.2)"), std::string::npos);
    request.destination = cm_address("10.0.0.1");
    EXPECT_EQ(a.call(CmOp::kResolveAddr, request), 0) << "it may try again";
    EXPECT_EQ(a.next().type, CmEventType::kAddrResolved);
}

TEST_F(CmServiceTest, a_source_of_another_device_than_the_bound_one_is_refused_with_both) {
    const std::uint32_t id = a.create_id();
    EXPECT_EQ(a.bind(id, "10.0.0.1", 0), 0);
    abi::CmResolveAddrRequest request{};
    request.id = id;
    request.source = cm_address("10.0.0.2");
    request.destination = cm_address("10.0.0.11");
    const ControlReply reply = a.send(CmOp::kResolveAddr, request);
    EXPECT_EQ(reply.status, EINVAL);
    EXPECT_EQ(reply.text, "the id is bound to 10.0.0.1, not to 10.0.0.2");
}

TEST_F(CmServiceTest, options_are_checked) {
    const std::uint32_t id = a.create_id(), ud = a.create_id(abi::kPortSpaceUdp, 4);
    EXPECT_EQ(set_option(a, id, kOptionTos, 1, 0x23), 0);
    EXPECT_EQ(a.info(id).traffic_class, 0x20) << "ECN is not the application's";
    EXPECT_EQ(set_option(a, id, kOptionTos, 4, 0), EINVAL);
    EXPECT_EQ(set_option(a, id, kOptionAckTimeout, 1, 18), 0);
    EXPECT_EQ(set_option(a, id, kOptionAckTimeout, 1, 32), EINVAL);
    EXPECT_EQ(set_option(a, ud, kOptionAckTimeout, 1, 18), EINVAL);
    EXPECT_EQ(set_option(a, id, kOptionReuse, 1, 1), EINVAL);
    EXPECT_EQ(set_option(a, id, kOptionAfOnly, 4, 1), 0);
    EXPECT_EQ(set_option(a, id, 9, 4, 1), ENOSYS);
    EXPECT_EQ(a.call(CmOp::kSetOption, abi::CmSetOptionRequest{id, 1, 1, 4, 0}), ENOSYS);
}

TEST_F(CmServiceTest, a_port_space_goes_with_its_qp_types) {
    EXPECT_NE(a.create_id(abi::kPortSpaceTcp, 3), 0u);
    EXPECT_NE(a.create_id(abi::kPortSpaceIb, 4), 0u);
    EXPECT_EQ(a.create_id(abi::kPortSpaceTcp, 4), 0u);
    EXPECT_EQ(a.create_id(abi::kPortSpaceUdp, 2), 0u);
    EXPECT_EQ(a.create_id(0x1234, 2), 0u);
}

TEST_F(CmServiceTest, a_channel_lives_as_long_as_its_ids) {
    const std::uint32_t channel = a.create_channel();
    const std::uint32_t id = a.create_id();
    EXPECT_EQ(a.call(CmOp::kMigrateId, abi::CmMigrateRequest{id, channel}), 0);
    EXPECT_EQ(a.handle(CmOp::kDestroyChannel, channel), EBUSY);
    EXPECT_EQ(a.handle(CmOp::kDestroyChannel, a.channel()), 0);
    EXPECT_EQ(a.destroy(id), 0);
    EXPECT_EQ(a.handle(CmOp::kDestroyChannel, channel), 0);
    EXPECT_EQ(a.handle(CmOp::kDestroyChannel, channel), EINVAL);
}

TEST_F(CmServiceTest, unread_events_move_with_their_id) {
    const std::uint32_t channel = a.create_channel(), id = a.create_id(), other = a.create_id();
    abi::CmResolveAddrRequest request{};
    request.destination = cm_address("10.0.0.1");
    for (const std::uint32_t each : {id, other}) {
        request.id = each;
        EXPECT_EQ(a.call(CmOp::kResolveAddr, request), 0);
    }
    abi::CmEventsReply reply{9, 9};
    EXPECT_EQ(a.call(CmOp::kMigrateId, abi::CmMigrateRequest{id, channel}, reply), 0);
    EXPECT_EQ(reply.events_reported, 0u);
    EXPECT_EQ(a.next(channel).id, id);
    EXPECT_EQ(a.next().id, other);
    EXPECT_EQ(a.pending(), 0u);
}

TEST_F(CmServiceTest, destroying_an_id_takes_its_unread_events_back) {
    const std::uint32_t id = a.create_id();
    abi::CmResolveAddrRequest request{};
    request.id = id;
    request.destination = cm_address("10.0.0.1");
    EXPECT_EQ(a.call(CmOp::kResolveAddr, request), 0);
    a.next();
    EXPECT_EQ(a.call(CmOp::kResolveRoute, abi::CmResolveRouteRequest{id, 1}), 0);
    abi::CmEventsReply reply{};
    EXPECT_EQ(a.call(CmOp::kDestroyId, abi::CmDestroyIdRequest{id, 1}, reply), 0);
    EXPECT_EQ(reply.events_reported, 1u);
    EXPECT_EQ(a.pending(), 0u);
    EXPECT_EQ(world.host.withdrawals, 1u);
}

TEST_F(CmServiceTest, an_id_that_has_read_everything_costs_no_withdrawal) {
    const std::uint32_t id = a.create_id();
    EXPECT_EQ(a.resolve(id, "10.0.0.1", 1), 0);
    abi::CmEventsReply reply{};
    EXPECT_EQ(a.call(CmOp::kDestroyId, abi::CmDestroyIdRequest{id, 2}, reply), 0);
    EXPECT_EQ(reply.events_reported, 2u);
    EXPECT_EQ(world.host.withdrawals, 0u);
}

TEST_F(CmServiceTest, ids_of_others_are_as_good_as_none) {
    const std::uint32_t id = a.create_id();
    EXPECT_EQ(b.bind(id, "10.0.0.1", 1), EINVAL);
    EXPECT_EQ(b.destroy(id), EINVAL);
    EXPECT_EQ(b.adopt(id), EINVAL);
    EXPECT_EQ(b.handle(CmOp::kQuery, id), EINVAL);
    EXPECT_EQ(a.adopt(id), EINVAL) << "not a new one";
    EXPECT_EQ(a.destroy(id), 0);
    EXPECT_EQ(a.destroy(id), EINVAL);
}

TEST_F(CmServiceTest, multicast_tells_group_and_key) {
    const std::uint32_t id = a.create_id(abi::kPortSpaceUdp, 4);
    ASSERT_EQ(a.bind(id, "10.0.0.2", 0), 0);
    abi::CmJoinMcastRequest join{};
    join.cookie = 77;
    join.id = id;
    join.address = cm_address("239.1.2.3");
    abi::HandleReply handle{};
    EXPECT_EQ(a.call(CmOp::kJoinMcast, join, handle), 0);
    const abi::CmEventRecord record = a.next();
    EXPECT_EQ(record.type, CmEventType::kMulticastJoin);
    EXPECT_EQ(record.mc_cookie, 77u);
    EXPECT_EQ(record.ud.qp_num, 0xff'ffffu);
    EXPECT_EQ(record.ud.qkey, abi::kRdmaUdpQkey);
    EXPECT_EQ(Gid{std::to_array(record.ud.ah.dgid)}, *Gid::parse("239.1.2.3"));
    EXPECT_EQ(record.ud.ah.sgid_index, 1);
    abi::CmEventsReply reply{};
    EXPECT_EQ(a.call(CmOp::kLeaveMcast, abi::CmLeaveMcastRequest{id, handle.handle, 1, 0}, reply),
              0);
    EXPECT_EQ(reply.events_reported, 1u);
    EXPECT_EQ(a.call(CmOp::kLeaveMcast, abi::CmLeaveMcastRequest{id, handle.handle, 1, 0}), EINVAL);
    join.address = cm_address("10.0.0.1");
    EXPECT_EQ(a.call(CmOp::kJoinMcast, join), EINVAL);
    join.id = a.create_id();
    EXPECT_EQ(a.call(CmOp::kJoinMcast, join), EINVAL);
}

TEST_F(CmServiceTest, leaving_takes_back_only_its_own_unread_event) {
    const std::uint32_t id = a.create_id(abi::kPortSpaceUdp, 4);
    ASSERT_EQ(a.bind(id, "10.0.0.2", 0), 0);
    abi::CmJoinMcastRequest join{};
    join.id = id;
    join.address = cm_address("239.1.2.3");
    abi::HandleReply handle{};
    for (const std::uint64_t cookie : {1, 2}) {
        join.cookie = cookie;
        EXPECT_EQ(a.call(CmOp::kJoinMcast, join, handle), 0);
    }
    abi::CmEventsReply reply{9, 9};
    EXPECT_EQ(a.call(CmOp::kLeaveMcast, abi::CmLeaveMcastRequest{id, handle.handle, 0, 0}, reply),
              0);
    EXPECT_EQ(reply.events_reported, 0u);
    EXPECT_EQ(a.next().mc_cookie, 1u);
    EXPECT_EQ(a.pending(), 0u);
}

// Whatever bytes a client sends as whatever operation: an answer, and nothing left when it goes.
TEST_F(CmServiceTest, random_bytes_break_nothing) {
    Prng prng(5);
    static constexpr std::size_t kSizes[] = {
        0,  sizeof(abi::HandleRequest),       sizeof(abi::CmDestroyIdRequest),
        12, sizeof(abi::CmCreateIdRequest),   sizeof(abi::CmBindRequest),
        56, sizeof(abi::CmJoinMcastRequest),  sizeof(abi::CmSetOptionRequest),
        99, sizeof(abi::CmConnectRequest),    sizeof(abi::CmRejectRequest),
        20, sizeof(abi::CmResolveAddrRequest)};
    std::vector<std::byte> body(600);
    for (int i = 0; i < 50'000; ++i) {
        for (auto& byte : body)
            byte = static_cast<std::byte>(prng.below(prng.chance(0.9) ? 3 : 256));
        const auto op = static_cast<CmOp>(abi::kCmOpFirst + prng.below(24));
        world.service.handle_request(a.session(), op, ByteView(body).first(kSizes[prng.below(14)]),
                                     world.now);
        if (i % 100 == 0) world.run_for(milliseconds(10));
    }
    world.service.close_session(a.session(), world.now);
    world.run_for(seconds(60));
    EXPECT_EQ(world.service.counts().ids, 0u);
}

TEST_F(CmServiceTest, a_request_of_the_wrong_length_says_so) {
    const ControlReply reply = a.send(CmOp::kBind, abi::HandleRequest{1});
    EXPECT_EQ(reply.status, EINVAL);
    EXPECT_EQ(reply.text, "the request has 4 bytes, expected 32");
    EXPECT_EQ(world.service.handle_request(CmSessionId{1234}, CmOp::kQuery, {}, world.now).status,
              EINVAL);
}

}  // namespace
}  // namespace rdmalab::card

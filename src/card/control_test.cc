// Control calls: what they answer, what they refuse and that they leave nothing behind.
#include <gtest/gtest.h>

#include "card/test_client.h"
#include "card/verbs_values.h"

namespace rdmalab::card {
namespace {

using namespace testing;
using abi::Op;

class ControlTest : public ::testing::Test {
protected:
    transport::Engine::ObjectCounts counts() { return setting.card.engine(2).object_counts(); }

    TestCard setting;
    TestClient client{setting, 2};
    TestCq cq = client.create_cq(16);
    std::string memory = std::string(4096, 'm');
};

TEST_F(ControlTest, devices_are_listed_with_their_names_and_addresses) {
    const auto devices = setting.card.list_devices();
    ASSERT_EQ(devices.size(), 5u);
    EXPECT_STREQ(devices[2].name, "mlx5_2");
    EXPECT_STREQ(devices[2].pci, "0000:03:00.0");  // of its PF
    EXPECT_STREQ(devices[3].pci, "0000:03:00.1");
    EXPECT_EQ(devices[2].index, 2u);
    EXPECT_EQ(devices[2].node_guid, 0x0000'00ff'fe00'0012u);
    EXPECT_EQ(devices[2].mac[5], 0x12);
}

TEST_F(ControlTest, port_and_gids_are_answered) {
    ASSERT_EQ(client.call_bytes(Op::kQueryPort, {}), 0);
    const auto port = client.reply_as<abi::QueryPortReply>();
    EXPECT_EQ(port.state, kIbvPortActive);
    EXPECT_EQ(port.mtu_active, 4096u);
    EXPECT_EQ(port.gid_count, 2u);
    ASSERT_EQ(client.call_bytes(Op::kQueryGids, {}), 0);
    ASSERT_EQ(client.last_body.size(), 2 * sizeof(abi::GidEntry));
    const auto second = load_bytes<abi::GidEntry>(client.last_body.data() + sizeof(abi::GidEntry));
    EXPECT_EQ(second.index, 1u);
    EXPECT_EQ(std::memcmp(second.gid, client.gid(1).bytes.data(), 16), 0);
}

TEST_F(ControlTest, an_address_of_the_card_is_resolved_to_its_mac) {
    abi::AhAttributes request{};
    const Gid other = TestClient(setting, 3).gid(1);
    std::memcpy(request.dgid, other.bytes.data(), sizeof request.dgid);
    request.sgid_index = 1;
    request.is_global = 1;
    request.port = 1;
    ASSERT_EQ(client.call(Op::kResolveAddress, request), 0);
    const auto reply = client.reply_as<abi::ResolveReply>();
    const MacAddress& mac = setting.card.config().functions[3].mac;
    EXPECT_EQ(std::memcmp(reply.mac, mac.bytes.data(), sizeof reply.mac), 0);
    request.dgid[15] ^= 0x55;
    EXPECT_EQ(client.call(Op::kResolveAddress, request), EHOSTUNREACH);
    request.sgid_index = 9;  // no such source
    EXPECT_EQ(client.call(Op::kResolveAddress, request), EINVAL);
}

TEST_F(ControlTest, contexts_open_once_on_devices_that_exist) {
    EXPECT_EQ(setting.card.open_context(OwnerId{900}, SpaceId{900}, 5).status, ENODEV);
    EXPECT_EQ(setting.card.open_context(client.owner, SpaceId{900}, 2).status, EINVAL);
    EXPECT_EQ(setting.card.handle_request(OwnerId{900}, Op::kAllocPd, {}, setting.now).status,
              EINVAL);
    setting.card.close_context(OwnerId{900});
}

TEST_F(ControlTest, a_request_of_the_wrong_length_is_refused) {
    for (std::uint32_t op = static_cast<std::uint32_t>(Op::kQueryPort);
         op <= static_cast<std::uint32_t>(Op::kResolveAddress); ++op) {
        const std::vector<std::byte> odd(13);
        const int answer = client.call_bytes(static_cast<Op>(op), odd);
        EXPECT_TRUE(answer == EINVAL || answer == EOPNOTSUPP) << op;
    }
    EXPECT_EQ(client.call_bytes(static_cast<Op>(9999), {}), EOPNOTSUPP);
}

TEST_F(ControlTest, memory_regions_are_checked) {
    const std::uint64_t address = address_of(memory);
    const auto reg = [&](std::uint32_t pd, std::uint32_t access, std::uint64_t at,
                         std::uint64_t length) {
        return client.call(Op::kRegMr, abi::RegMrRequest{pd, access, at, length, at});
    };
    EXPECT_EQ(reg(client.pd, 15, address, 4096), 0);
    EXPECT_EQ(reg(client.pd, transport::kAccessRemoteWrite, address, 4096), EINVAL);
    EXPECT_EQ(reg(client.pd, transport::kAccessRemoteAtomic, address, 4096), EINVAL);
    EXPECT_EQ(reg(client.pd, 15, address, 0), EINVAL);
    EXPECT_EQ(reg(client.pd, 15, ~0ull - 10, 100), EINVAL);
    EXPECT_EQ(reg(client.pd + 100, 15, address, 4096), EINVAL);
    EXPECT_EQ(counts().mrs, 1u);
}

TEST_F(ControlTest, a_cq_has_a_power_of_two_of_entries) {
    EXPECT_EQ(client.create_cq(100).info.capacity, 128u);
    EXPECT_EQ(client.create_cq(1).info.capacity, 1u);
    EXPECT_EQ(client.call(Op::kCreateCq, abi::CreateCqRequest{0, abi::kNoChannel}), EINVAL);
    EXPECT_EQ(
        client.call(Op::kCreateCq, abi::CreateCqRequest{limits::kCqeMax + 1, abi::kNoChannel}),
        EINVAL);
    EXPECT_EQ(client.call(Op::kCreateCq, abi::CreateCqRequest{10, 5}), EINVAL);  // no such channel
}

TEST_F(ControlTest, a_channel_outlives_its_cqs) {
    const std::uint32_t channel = client.create_channel();
    const TestCq on_channel = client.create_cq(4, channel);
    EXPECT_EQ(client.call(Op::kDestroyChannel, abi::HandleRequest{channel}), EBUSY);
    EXPECT_EQ(client.call(Op::kDestroyCq, abi::HandleRequest{on_channel.info.cq}), 0);
    EXPECT_EQ(client.call(Op::kDestroyChannel, abi::HandleRequest{channel}), 0);
    EXPECT_EQ(client.call(Op::kDestroyChannel, abi::HandleRequest{channel}), EINVAL);
}

TEST_F(ControlTest, handles_that_return_have_another_generation) {
    const TestCq first = client.create_cq(4);
    EXPECT_EQ(client.call(Op::kDestroyCq, abi::HandleRequest{first.info.cq}), 0);
    const TestCq second = client.create_cq(4);
    EXPECT_NE(first.info.generation, second.info.generation);
}

TEST_F(ControlTest, queue_pairs_get_at_least_what_they_ask_for) {
    const TestQp qp = client.create_qp(cq, {.send_wr_max = 100,
                                            .recv_wr_max = 3,
                                            .send_sge_max = 0,
                                            .recv_sge_max = 5,
                                            .inline_max = 300});
    ASSERT_NE(qp.info.qpn, 0u);
    EXPECT_EQ(qp.info.send_capacity, 128u);
    EXPECT_EQ(qp.info.recv_capacity, 4u);
    EXPECT_EQ(qp.info.send_sge_max, 1u);
    EXPECT_EQ(qp.info.recv_sge_max, 5u);
    EXPECT_GE(qp.info.inline_max, 300u);
    EXPECT_GE(qp.info.send_stride, 64 + 16 + 300u);
    ASSERT_EQ(client.call(Op::kQueryQp, abi::HandleRequest{qp.info.qpn}), 0);
    const auto attributes = client.reply_as<abi::QpAttributes>();
    EXPECT_EQ(attributes.state, 0u);
    EXPECT_EQ(attributes.send_wr_max, 128u);
    EXPECT_EQ(attributes.inline_max, qp.info.inline_max);
}

TEST_F(ControlTest, queue_pairs_beyond_the_limits_are_refused) {
    const auto with = [&](auto change) {
        abi::CreateQpRequest request{.type = kIbvQptRc,
                                     .pd = client.pd,
                                     .send_cq = cq.info.cq,
                                     .recv_cq = cq.info.cq,
                                     .srq = abi::kNoSrq,
                                     .send_wr_max = 4,
                                     .recv_wr_max = 4,
                                     .send_sge_max = 1,
                                     .recv_sge_max = 1,
                                     .inline_max = 0,
                                     .signal_all = 0};
        change(request);
        return client.call(Op::kCreateQp, request);
    };
    EXPECT_EQ(with([](auto&) {}), 0);
    EXPECT_EQ(with([](auto& r) { r.send_wr_max = limits::kWqeMax; }), 0);
    EXPECT_EQ(with([](auto& r) { r.send_wr_max = limits::kWqeMax + 1; }), EINVAL);
    EXPECT_EQ(with([](auto& r) { r.recv_wr_max = limits::kWqeMax + 1; }), EINVAL);
    EXPECT_EQ(with([](auto& r) { r.send_sge_max = limits::kSgeMax + 1; }), EINVAL);
    EXPECT_EQ(with([](auto& r) { r.recv_sge_max = limits::kSgeMax + 1; }), EINVAL);
    EXPECT_EQ(with([](auto& r) { r.inline_max = limits::kInlineMax + 1; }), EINVAL);
    EXPECT_EQ(with([](auto& r) { r.type = 1; }), EINVAL);
    EXPECT_EQ(with([](auto& r) { r.type = kIbvQptXrcRecv; }), EINVAL);  // no domain
    EXPECT_EQ(with([](auto& r) { r.type = kIbvQptRawPacket; }), 0);
    EXPECT_EQ(with([](auto& r) { r.send_cq = 77; }), EINVAL);
    EXPECT_EQ(with([](auto& r) { r.recv_cq = 77; }), EINVAL);
    EXPECT_EQ(with([](auto& r) { r.srq = 77; }), EINVAL);
    EXPECT_EQ(with([](auto& r) { r.pd = 77; }), EINVAL);
    EXPECT_EQ(counts().qps, 3u);
}

TEST_F(ControlTest, shared_receive_queues_are_checked) {
    EXPECT_EQ(
        client.call(Op::kCreateSrq, abi::CreateSrqRequest{client.pd, 0, 1, 0, abi::kNoXrcd, 0}),
        EINVAL);
    EXPECT_EQ(client.call(Op::kCreateSrq, abi::CreateSrqRequest{client.pd, 1, limits::kSgeMax + 1,
                                                                0, abi::kNoXrcd, 0}),
              EINVAL);
    TestSrq srq = client.create_srq(10);
    EXPECT_EQ(srq.info.capacity, 16u);
    EXPECT_EQ(client.call(Op::kModifySrq, abi::ModifySrqRequest{srq.info.srq, 17}), EINVAL);
    EXPECT_EQ(client.call(Op::kModifySrq, abi::ModifySrqRequest{srq.info.srq, 5}), 0);
    EXPECT_EQ(client.call(Op::kQuerySrq, abi::HandleRequest{srq.info.srq}), 0);
    EXPECT_EQ(client.reply_as<abi::QuerySrqReply>().limit, 5u);
    const TestQp qp = client.create_qp(cq, {.srq = &srq});
    EXPECT_EQ(qp.info.recv_capacity, 0u);
    EXPECT_EQ(client.call(Op::kDestroySrq, abi::HandleRequest{srq.info.srq}), EBUSY);
    EXPECT_EQ(client.call(Op::kDestroyQp, abi::HandleRequest{qp.info.qpn}), 0);
    EXPECT_EQ(client.call(Op::kDestroySrq, abi::HandleRequest{srq.info.srq}), 0);
}

TEST_F(ControlTest, objects_in_use_are_busy) {
    const TestQp qp = client.create_qp(cq);
    EXPECT_EQ(client.call(Op::kDestroyCq, abi::HandleRequest{cq.info.cq}), EBUSY);
    EXPECT_EQ(client.call(Op::kDeallocPd, abi::HandleRequest{client.pd}), EBUSY);
    EXPECT_EQ(client.call(Op::kDestroyQp, abi::HandleRequest{qp.info.qpn}), 0);
    EXPECT_EQ(client.call(Op::kDestroyCq, abi::HandleRequest{cq.info.cq}), 0);
    EXPECT_EQ(client.call(Op::kDeallocPd, abi::HandleRequest{client.pd}), 0);
}

TEST_F(ControlTest, objects_of_another_client_are_out_of_reach) {
    TestSrq srq = client.create_srq(4);
    const TestQp qp = client.create_qp(cq);
    const auto mr = client.reg_mr(bytes_of(memory));
    TestClient other(setting, 2);
    for (const auto& [op, handle] :
         std::vector<std::pair<Op, std::uint32_t>>{{Op::kDestroyQp, qp.info.qpn},
                                                   {Op::kQueryQp, qp.info.qpn},
                                                   {Op::kDestroyCq, cq.info.cq},
                                                   {Op::kDestroySrq, srq.info.srq},
                                                   {Op::kQuerySrq, srq.info.srq},
                                                   {Op::kDeregMr, mr.lkey},
                                                   {Op::kDeallocPd, client.pd}}) {
        EXPECT_EQ(other.call(op, abi::HandleRequest{handle}), EINVAL)
            << static_cast<std::uint32_t>(op);
    }
    EXPECT_EQ(other.to_state(qp, 6), EINVAL);
    EXPECT_EQ(other.call(Op::kResizeCq, abi::ResizeCqRequest{cq.info.cq, 8}), EINVAL);
    EXPECT_EQ(other.create_qp(cq).info.qpn, 0u);  // on a foreign CQ
}

TEST_F(ControlTest, addresses_resolve_to_functions_of_the_card) {
    abi::CreateAhRequest request{};
    request.pd = client.pd;
    request.attributes.is_global = 1;
    request.attributes.port = 1;
    request.attributes.sgid_index = 1;
    const auto create = [&](const char* destination) {
        const Gid gid = *Gid::parse(destination);
        std::memcpy(request.attributes.dgid, gid.bytes.data(), 16);
        return client.call(Op::kCreateAh, request);
    };
    EXPECT_EQ(create("10.0.0.2"), 0);
    const auto ah = client.reply_as<abi::HandleReply>();
    EXPECT_EQ(create("10.9.9.9"), EHOSTUNREACH);
    request.attributes.sgid_index = 9;
    EXPECT_EQ(create("10.0.0.2"), EINVAL);
    EXPECT_EQ(client.call(Op::kDestroyAh, abi::HandleRequest{ah.handle}), 0);
    EXPECT_EQ(client.call(Op::kDestroyAh, abi::HandleRequest{ah.handle}), EINVAL);
}

TEST_F(ControlTest, a_qp_towards_nobody_is_not_brought_up) {
    const TestQp qp = client.create_qp(cq);
    abi::QpAttributes a{};
    a.state = 1;
    a.port = 1;
    const std::uint32_t init = transport::kQpState | transport::kQpPkeyIndex | transport::kQpPort |
                               transport::kQpAccessFlags;
    ASSERT_EQ(client.call(Op::kModifyQp, abi::ModifyQpRequest{qp.info.qpn, init, a}), 0);
    a.state = 2;
    a.path_mtu = 3;
    a.ah.is_global = 1;
    a.ah.port = 1;
    a.ah.sgid_index = 1;
    const std::uint32_t rtr = transport::kQpState | transport::kQpAv | transport::kQpPathMtu |
                              transport::kQpDestQpn | transport::kQpRqPsn |
                              transport::kQpMaxDestRdAtomic | transport::kQpMinRnrTimer;
    EXPECT_EQ(client.call(Op::kModifyQp, abi::ModifyQpRequest{qp.info.qpn, rtr, a}), EHOSTUNREACH);
    a.state = 9;
    EXPECT_EQ(client.call(Op::kModifyQp, abi::ModifyQpRequest{qp.info.qpn, rtr, a}), EINVAL);
}

TEST_F(ControlTest, multicast_groups_are_multicast) {
    const TestQp qp = client.create_qp(cq, {.type = kIbvQptUd});
    abi::McastRequest request{.qpn = qp.info.qpn, .gid = {}};
    EXPECT_EQ(client.call(Op::kAttachMcast, request), EINVAL);
    request.gid[0] = 0xff;
    request.gid[15] = 1;
    EXPECT_EQ(client.call(Op::kAttachMcast, request), 0);
    EXPECT_EQ(client.call(Op::kDetachMcast, request), 0);
    request.qpn = 0x123;
    EXPECT_EQ(client.call(Op::kAttachMcast, request), EINVAL);
}

TEST_F(ControlTest, without_memory_nothing_is_made_and_nothing_is_lost) {
    const std::size_t regions = setting.host.region_count();
    for (std::size_t left = 0; left < 2; ++left) {
        setting.host.allocations_left = left;
        EXPECT_EQ(client.create_qp(cq).info.qpn, 0u);
    }
    setting.host.allocations_left = 0;
    EXPECT_EQ(client.call(Op::kCreateCq, abi::CreateCqRequest{4, abi::kNoChannel}), ENOMEM);
    EXPECT_EQ(
        client.call(Op::kCreateSrq, abi::CreateSrqRequest{client.pd, 4, 1, 0, abi::kNoXrcd, 0}),
        ENOMEM);
    EXPECT_EQ(client.call(Op::kResizeCq, abi::ResizeCqRequest{cq.info.cq, 64}), ENOMEM);
    EXPECT_NE(setting.card.open_context(OwnerId{901}, SpaceId{901}, 2).status, 0);
    setting.host.allocations_left = SIZE_MAX;
    EXPECT_EQ(setting.host.region_count(), regions);
    EXPECT_NE(client.create_qp(cq).info.qpn, 0u);
}

TEST_F(ControlTest, five_thousand_cycles_leave_nothing_behind) {
    const auto cycle = [&] {
        TestCq one = client.create_cq(4, abi::kNoChannel);
        TestSrq srq = client.create_srq(4);
        const TestQp qp = client.create_qp(one, {.send_wr_max = 1, .srq = &srq});
        const auto mr = client.reg_mr(bytes_of(memory));
        ASSERT_EQ(client.call(Op::kDeregMr, abi::HandleRequest{mr.lkey}), 0);
        ASSERT_EQ(client.call(Op::kDestroyQp, abi::HandleRequest{qp.info.qpn}), 0);
        ASSERT_EQ(client.call(Op::kDestroySrq, abi::HandleRequest{srq.info.srq}), 0);
        ASSERT_EQ(client.call(Op::kDestroyCq, abi::HandleRequest{one.info.cq}), 0);
        ASSERT_EQ(qp.info.slot, 0u);
    };
    const std::size_t regions = setting.host.region_count();
    const auto before = counts();
    for (int i = 0; i < 5'000; ++i) {
        cycle();
        setting.memory.remove(client.space);
    }
    EXPECT_EQ(setting.host.region_count(), regions);
    EXPECT_EQ(counts().qps, before.qps);
    EXPECT_EQ(counts().cqs, before.cqs);
    EXPECT_EQ(counts().srqs, before.srqs);
    EXPECT_EQ(counts().mrs, before.mrs);
}

TEST_F(ControlTest, a_closed_context_frees_all_it_had) {
    TestSrq srq = client.create_srq(4);
    for (int i = 0; i < 10; ++i) client.create_qp(cq, {.srq = i % 2 == 0 ? &srq : nullptr});
    client.reg_mr(bytes_of(memory));
    setting.card.close_context(client.owner);
    EXPECT_EQ(setting.host.region_count(), 0u);
    const auto left = counts();
    EXPECT_EQ(left.qps + left.cqs + left.srqs + left.mrs + left.pds + left.ahs, 0u);
    setting.settle();
    TestClient next(setting, 2);
    EXPECT_NE(next.create_qp(next.create_cq(4)).info.qpn, 0u);
}

}  // namespace
}  // namespace rdmalab::card

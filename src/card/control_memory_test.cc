// Control calls about memory and XRC, and what the objects they make do on the data path.
#include "card/card_fixture.h"
#include "card/verbs_values.h"

namespace rdmalab::card {
namespace {

using namespace testing;
using abi::Op;
using transport::WcStatus;

constexpr std::uint32_t kLocal = transport::kAccessLocalWrite,
                        kRemoteWrite = transport::kAccessRemoteWrite,
                        kBind = transport::kAccessMwBind, kZero = transport::kAccessZeroBased;

class MemoryControlTest : public CardTest {
protected:
    abi::DmReply alloc_dm(TestClient& client, std::uint64_t length) {
        EXPECT_EQ(client.call(Op::kAllocDm, abi::AllocDmRequest{length}), 0);
        return client.reply_as<abi::DmReply>();
    }
    int reg_dm(TestClient& client, const abi::DmReply& dm, std::uint64_t offset,
               std::uint64_t length, std::uint32_t access = kLocal | kRemoteWrite | kZero) {
        return client.call(Op::kRegDmMr,
                           abi::RegDmMrRequest{client.pd, dm.handle, access, 0, offset, length});
    }
    int handle(TestClient& client, Op op, std::uint32_t value) {
        return client.call(op, abi::HandleRequest{value});
    }
};

TEST_F(MemoryControlTest, device_memory_is_written_and_read_by_peers) {
    const abi::DmReply dm = alloc_dm(b, 10'000);
    EXPECT_EQ(dm.length, 10'000u);
    EXPECT_GE(dm.region.length, dm.length);
    ASSERT_EQ(reg_dm(b, dm, 4'000, 6'000), 0);
    const auto keys = b.reply_as<abi::RegMrReply>();
    a.post_send(a_qp, {.wr_id = 1,
                       .opcode = abi::SendOpcode::kWrite,
                       .sges = {a_sge(0, 6'000)},
                       .remote_address = 0,
                       .rkey = keys.rkey});
    b.post_send(b_qp, {.wr_id = 2,
                       .opcode = abi::SendOpcode::kWrite,
                       .sges = {{0, 3, keys.lkey}},
                       .remote_address = address_of(a_memory) + 50,
                       .rkey = a_mr.rkey});
    setting.settle();
    EXPECT_EQ(status_of_a(), WcStatus::kSuccess);
    EXPECT_EQ(b.poll(b_cq)->status, WcStatus::kSuccess);
    EXPECT_EQ(a_memory.substr(49, 5), "aaaaa");  // what came back is what went there
    a.post_send(a_qp, {.wr_id = 3,
                       .opcode = abi::SendOpcode::kWrite,
                       .sges = {a_sge(0, 8)},
                       .remote_address = 5'993,
                       .rkey = keys.rkey});
    setting.settle();
    EXPECT_EQ(status_of_a(), WcStatus::kRemAccessErr);
}

TEST_F(MemoryControlTest, device_memory_is_limited_and_stays_while_it_is_registered) {
    EXPECT_EQ(b.call(Op::kAllocDm, abi::AllocDmRequest{0}), EINVAL);
    EXPECT_EQ(b.call(Op::kAllocDm, abi::AllocDmRequest{limits::kDmMax + 1}), ENOMEM);
    const abi::DmReply dm = alloc_dm(b, limits::kDmMax - 100);
    EXPECT_EQ(b.call(Op::kAllocDm, abi::AllocDmRequest{101}), ENOMEM);
    EXPECT_EQ(reg_dm(b, dm, 0, limits::kDmMax), EINVAL);
    EXPECT_EQ(reg_dm(b, dm, ~0ull, 4), EINVAL);
    EXPECT_EQ(reg_dm(b, dm, 0, 100, kLocal), EINVAL);  // its addresses start at 0
    ASSERT_EQ(reg_dm(b, dm, 0, 100), 0);
    const std::uint32_t lkey = b.reply_as<abi::RegMrReply>().lkey;
    EXPECT_EQ(b.call(Op::kReregMr, abi::ReregMrRequest{lkey, kIbvReregAccess, 0, kLocal, 0, 0, 0}),
              EOPNOTSUPP);
    EXPECT_EQ(handle(b, Op::kFreeDm, dm.handle), EBUSY);
    EXPECT_EQ(handle(b, Op::kDeregMr, lkey), 0);
    EXPECT_EQ(handle(b, Op::kFreeDm, dm.handle), 0);
    EXPECT_EQ(handle(b, Op::kFreeDm, dm.handle), EINVAL);
    EXPECT_EQ(handle(b, Op::kQueryDm, dm.handle), ENOENT);
    // What a client leaves is free again.
    alloc_dm(b, limits::kDmMax);
    setting.card.close_context(b.owner);
    TestClient next(setting, 3);
    alloc_dm(next, limits::kDmMax);
}

TEST_F(MemoryControlTest, a_region_changes_and_keeps_its_key) {
    const std::uint64_t other = address_of(b_memory) + 1000;
    const abi::ReregMrRequest move{b_mr.lkey, kIbvReregTranslation, 0, 0, other, 4096, other};
    ASSERT_EQ(b.call(Op::kReregMr, move), 0);
    SendOptions options = write(1, 10);
    options.remote_address = other + 5;
    a.post_send(a_qp, options);
    setting.settle();
    EXPECT_EQ(status_of_a(), WcStatus::kSuccess);
    EXPECT_EQ(b_memory.substr(1004, 3), "baa");
    a.post_send(a_qp, write(2, 10));  // where it was
    setting.settle();
    EXPECT_EQ(status_of_a(), WcStatus::kRemAccessErr);
    ASSERT_EQ(handle(b, Op::kQueryMr, b_mr.lkey), 0);
    EXPECT_EQ(b.reply_as<abi::QueryMrReply>().length, 4096u);
    EXPECT_EQ(b.call(Op::kReregMr, abi::ReregMrRequest{b_mr.lkey, 0, 0, 0, 0, 0, 0}), EINVAL);
    EXPECT_EQ(b.call(Op::kReregMr, abi::ReregMrRequest{b_mr.lkey, kIbvReregPd, 77, 0, 0, 0, 0}),
              EINVAL);
    EXPECT_EQ(b.call(Op::kReregMr,
                     abi::ReregMrRequest{b_mr.lkey, kIbvReregAccess, 0, kRemoteWrite, 0, 0, 0}),
              EINVAL);
    EXPECT_EQ(a.call(Op::kReregMr, move), EINVAL);  // not the region of this client
    EXPECT_EQ(handle(a, Op::kQueryMr, b_mr.lkey), ENOENT);
}

TEST_F(MemoryControlTest, a_null_region_gives_zeros) {
    ASSERT_EQ(handle(a, Op::kAllocNullMr, a.pd), 0);
    const auto keys = a.reply_as<abi::RegMrReply>();
    EXPECT_EQ(keys.rkey, 0u);
    a.post_send(a_qp, {.wr_id = 1,
                       .opcode = abi::SendOpcode::kWrite,
                       .sges = {{0x5000, 10, keys.lkey}},
                       .remote_address = address_of(b_memory),
                       .rkey = b_mr.rkey});
    setting.settle();
    EXPECT_EQ(status_of_a(), WcStatus::kSuccess);
    EXPECT_EQ(b_memory.substr(0, 11), std::string(10, '\0') + "b");
    EXPECT_EQ(handle(a, Op::kDeregMr, keys.lkey), 0);
}

TEST_F(MemoryControlTest, a_window_is_bound_by_an_entry) {
    EXPECT_EQ(b.call(Op::kAllocMw, abi::AllocMwRequest{b.pd, 3}), EINVAL);
    ASSERT_EQ(b.call(Op::kAllocMw, abi::AllocMwRequest{b.pd, kIbvMwType2}), 0);
    const auto window = b.reply_as<abi::AllocMwReply>();
    const auto region = b.reg_mr(bytes_of(b_memory), kLocal | kBind);
    const std::uint32_t rkey = window.rkey ^ 1;
    b.post_send(b_qp, {.wr_id = 1,
                       .opcode = abi::SendOpcode::kBindMw,
                       .remote_address = address_of(b_memory) + 100,
                       .rkey = rkey,
                       .compare_add = 50,
                       .ah = region.lkey,
                       .remote_qkey = kRemoteWrite});
    setting.settle();
    EXPECT_EQ(b.poll(b_cq)->status, WcStatus::kSuccess);
    SendOptions options = write(2, 50);
    options.remote_address += 100;
    options.rkey = rkey;
    a.post_send(a_qp, options);
    setting.settle();
    EXPECT_EQ(status_of_a(), WcStatus::kSuccess);
    EXPECT_EQ(b_memory.substr(99, 2) + b_memory.substr(149, 2), "baab");
    EXPECT_EQ(handle(b, Op::kDeregMr, region.lkey), EBUSY);
    EXPECT_EQ(handle(a, Op::kDeallocMw, window.handle), EINVAL);
    EXPECT_EQ(handle(b, Op::kDeallocMw, window.handle), 0);
    EXPECT_EQ(handle(b, Op::kDeregMr, region.lkey), 0);
}

// --- XRC

class XrcControlTest : public MemoryControlTest {
protected:
    int open(TestClient& client, std::uint64_t inode, std::uint32_t flags) {
        return client.call(Op::kOpenXrcd, abi::OpenXrcdRequest{8, inode, flags, 0});
    }
    std::uint32_t opened(TestClient& client) { return client.reply_as<abi::HandleReply>().handle; }
    std::uint32_t create_target(TestClient& client, std::uint32_t xrcd) {
        abi::CreateQpRequest request{};
        request.type = kIbvQptXrcRecv;
        request.srq = abi::kNoSrq;
        request.xrcd = xrcd;
        EXPECT_EQ(client.call(Op::kCreateQp, request), 0);
        return client.reply_as<abi::CreateQpReply>().qpn;
    }
    TestClient c{setting, 3};  // another program on the device of b
};

TEST_F(XrcControlTest, a_domain_is_shared_by_its_file) {
    EXPECT_EQ(open(b, 55, 0), EAGAIN);
    ASSERT_EQ(open(b, 55, abi::kXrcdCreate), 0);
    const std::uint32_t first = opened(b);
    EXPECT_EQ(open(c, 55, abi::kXrcdCreate | abi::kXrcdExclusive), EINVAL);
    ASSERT_EQ(open(c, 55, 0), 0);
    EXPECT_EQ(opened(c), first);
    ASSERT_EQ(open(c, 56, abi::kXrcdCreate), 0);
    EXPECT_NE(opened(c), first);
    EXPECT_EQ(handle(b, Op::kCloseXrcd, first), 0);
    EXPECT_EQ(handle(b, Op::kCloseXrcd, first), EINVAL);
    EXPECT_EQ(open(b, 55, 0), 0);
    setting.card.close_context(b.owner);
    setting.card.close_context(c.owner);
    TestClient next(setting, 3);
    EXPECT_EQ(open(next, 55, 0), EAGAIN);
}

TEST_F(XrcControlTest, a_target_outlives_its_maker_while_another_holds_it) {
    ASSERT_EQ(open(b, 55, abi::kXrcdCreate), 0);
    const std::uint32_t xrcd = opened(b);
    const std::uint32_t qpn = create_target(b, xrcd);
    EXPECT_EQ(c.call(Op::kOpenQp, abi::OpenQpRequest{xrcd + 1, qpn}), EINVAL);
    ASSERT_EQ(open(c, 55, 0), 0);
    ASSERT_EQ(c.call(Op::kOpenQp, abi::OpenQpRequest{xrcd, qpn}), 0);
    EXPECT_EQ(c.call(Op::kOpenQp, abi::OpenQpRequest{xrcd, qpn}), EBUSY);
    EXPECT_EQ(handle(a, Op::kQueryQp, qpn), EINVAL);
    setting.card.close_context(b.owner);
    EXPECT_EQ(handle(c, Op::kQueryQp, qpn), 0);
    EXPECT_EQ(handle(c, Op::kCloseXrcd, xrcd), EBUSY);
    EXPECT_EQ(handle(c, Op::kDestroyQp, qpn), 0);
    EXPECT_EQ(handle(c, Op::kQueryQp, qpn), EINVAL);
    EXPECT_EQ(handle(c, Op::kCloseXrcd, xrcd), 0);
}

TEST_F(XrcControlTest, a_message_reaches_the_srq_of_another_program) {
    ASSERT_EQ(open(b, 55, abi::kXrcdCreate), 0);
    const std::uint32_t xrcd = opened(b);
    ASSERT_EQ(open(c, 55, 0), 0);
    TestCq c_cq = c.create_cq(16);
    std::string c_memory(4096, 'c');
    const auto c_mr = c.reg_mr(bytes_of(c_memory));
    TestSrq srq = c.create_srq(8, 2, xrcd, c_cq.info.cq);
    ASSERT_NE(srq.base, nullptr);
    c.post_recv(srq, 77, {sge(bytes_of(c_memory), c_mr.lkey)});

    TestQp target;
    target.info.qpn = create_target(b, xrcd);
    target.type = kIbvQptXrcRecv;
    TestQp initiator = a.create_qp(a_cq, {.type = kIbvQptXrcSend});
    ASSERT_EQ(a.connect(initiator, b, target), 0);
    ASSERT_EQ(b.connect(target, a, initiator), 0);
    SendOptions options = send(5, 300);
    options.ah = srq.info.srq;
    a.post_send(initiator, options);
    setting.settle();
    EXPECT_EQ(status_of_a(), WcStatus::kSuccess);
    const auto wc = c.poll(c_cq, &srq);
    ASSERT_TRUE(wc);
    EXPECT_EQ(wc->wr_id, 77u);
    EXPECT_EQ(wc->qpn, target.info.qpn);
    EXPECT_EQ(wc->byte_length, 300u);
    EXPECT_EQ(c_memory.substr(299, 2), "ac");
}

}  // namespace
}  // namespace rdmalab::card

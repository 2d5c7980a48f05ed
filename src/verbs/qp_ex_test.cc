#include <fcntl.h>

#include <cerrno>

#include "verbs/fixture.h"

namespace rdmalab::verbs::testing {

namespace {

class QpExTest : public QpTest {
protected:
    void SetUp() override {
        QpTest::SetUp();
        ibv_qp_init_attr_ex init = request(IBV_QPT_RC, kAllOfRc);
        extended_ = ibv_create_qp_ex(context_, &init);
        ASSERT_NE(extended_, nullptr);
        ex_ = ibv_qp_to_qp_ex(extended_);
        ASSERT_NE(ex_, nullptr);
        move_to(extended_, IBV_QPS_RTS);
    }
    void TearDown() override {
        EXPECT_EQ(ibv_destroy_qp(extended_), 0);
        QpTest::TearDown();
    }
    static constexpr std::uint64_t kAllOfRc =
        IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
        IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
        IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
        IBV_QP_EX_WITH_ATOMIC_WRITE;

    ibv_qp_init_attr_ex request(ibv_qp_type type, std::uint64_t operations) {
        ibv_qp_init_attr_ex init{};
        init.send_cq = init.recv_cq = cq_;
        init.qp_type = type;
        init.cap = {4, 4, 2, 2, 64};
        init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.pd = pd_;
        init.send_ops_flags = operations;
        return init;
    }
    const abi::SendEntry& entry(std::uint32_t index) {
        return card_.send_entry(extended_->qp_num, index);
    }

    ibv_qp* extended_ = nullptr;
    ibv_qp_ex* ex_ = nullptr;
};

TEST_F(QpExTest, a_batch_becomes_visible_as_a_whole) {
    memcpy(buffer_.data(), "12345678", 8);
    ibv_wr_start(ex_);
    ex_->wr_id = 1;
    ex_->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(ex_, 7, 0x100);
    ibv_wr_set_sge(ex_, mr_->lkey, reinterpret_cast<std::uintptr_t>(buffer_.data()), 8);
    ex_->wr_id = 2;
    ex_->wr_flags = 0;
    ibv_wr_send_imm(ex_, 0x55);
    ibv_wr_set_inline_data(ex_, buffer_.data(), 4);
    EXPECT_EQ(card_.send_producer(extended_->qp_num), 0u);
    ASSERT_EQ(ibv_wr_complete(ex_), 0);

    EXPECT_EQ(card_.send_producer(extended_->qp_num), 2u);
    EXPECT_TRUE(card_.doorbell(extended_->qp_num));
    EXPECT_EQ(entry(0).wr_id, 1u);
    EXPECT_EQ(entry(0).rkey, 7u);
    EXPECT_EQ(entry(0).remote_address, 0x100u);
    EXPECT_EQ(entry(0).flags, abi::kSendSignaled | abi::kSendSmall);
    EXPECT_EQ(payload_of(entry(0)), "12345678");
    EXPECT_EQ(entry(1).wr_id, 2u);
    EXPECT_EQ(entry(1).immediate, 0x55u);
    EXPECT_EQ(entry(1).flags, abi::kSendInline);
    EXPECT_EQ(payload_of(entry(1)), "1234");
}

TEST_F(QpExTest, windows_and_atomic_writes_are_entries_like_others) {
    ibv_mw window{};
    window.rkey = 0x500;
    ibv_mw_bind_info info{mr_, 0x9000, 100, IBV_ACCESS_REMOTE_WRITE};
    ibv_wr_start(ex_);
    ibv_wr_bind_mw(ex_, &window, 0x501, &info);
    ibv_wr_atomic_write(ex_, 7, 0x200, "abcdefgh");
    ibv_wr_local_inv(ex_, 0x501);
    ASSERT_EQ(ibv_wr_complete(ex_), 0);
    EXPECT_EQ(entry(0).rkey, 0x501u);
    EXPECT_EQ(entry(0).compare_add, 100u);
    EXPECT_EQ(entry(1).remote_address, 0x200u);
    EXPECT_EQ(entry(1).flags, abi::kSendInline);
    EXPECT_EQ(payload_of(entry(1)), "abcdefgh");
    EXPECT_EQ(entry(2).immediate, 0x501u);
    ibv_wr_start(ex_);
    ibv_wr_bind_mw(ex_, &window, 0x701, &info);
    EXPECT_EQ(ibv_wr_complete(ex_), EINVAL);
}

TEST_F(QpExTest, the_receiving_end_of_xrc_has_a_domain_only) {
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_XRC_RECV;
    EXPECT_EQ(ibv_create_qp_ex(context_, &init), nullptr);
    EXPECT_EQ(errno, EINVAL);
    ibv_xrcd_init_attr domain{.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                              .fd = -1,
                              .oflags = O_CREAT};
    init.xrcd = ibv_open_xrcd(context_, &domain);
    ASSERT_NE(init.xrcd, nullptr);
    init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    ibv_qp* target = ibv_create_qp_ex(context_, &init);
    ASSERT_NE(target, nullptr);
    EXPECT_EQ(target->pd, nullptr);
    EXPECT_EQ(target->send_cq, nullptr);
    EXPECT_EQ(target->context, context_);
    EXPECT_EQ(ibv_destroy_qp(target), 0);
    EXPECT_EQ(ibv_close_xrcd(init.xrcd), 0);
}

TEST_F(QpExTest, an_aborted_batch_leaves_nothing) {
    ibv_wr_start(ex_);
    ibv_wr_send(ex_);
    ibv_wr_abort(ex_);
    EXPECT_EQ(card_.send_producer(extended_->qp_num), 0u);
    ibv_wr_start(ex_);
    ex_->wr_id = 77;
    ibv_wr_send(ex_);
    ASSERT_EQ(ibv_wr_complete(ex_), 0);
    EXPECT_EQ(entry(0).wr_id, 77u);
}

TEST_F(QpExTest, a_batch_that_does_not_fit_posts_nothing) {
    ibv_wr_start(ex_);
    for (int i = 0; i < 5; ++i) ibv_wr_send(ex_);
    EXPECT_EQ(ibv_wr_complete(ex_), ENOMEM);
    EXPECT_EQ(card_.send_producer(extended_->qp_num), 0u);
}

TEST_F(QpExTest, inline_data_above_the_limit_fails_the_batch) {
    ibv_data_buf pieces[] = {{buffer_.data(), 200}, {buffer_.data(), 200}};
    ibv_wr_start(ex_);
    ibv_wr_send(ex_);
    ibv_wr_set_inline_data_list(ex_, 2, pieces);
    EXPECT_EQ(ibv_wr_complete(ex_), EINVAL);
}

TEST_F(QpExTest, a_qp_before_ready_to_send_refuses_the_batch) {
    move_to(extended_, IBV_QPS_RESET);
    ibv_wr_start(ex_);
    ibv_wr_send(ex_);
    EXPECT_EQ(ibv_wr_complete(ex_), EINVAL);
}

TEST_F(QpExTest, operations_that_the_service_lacks_are_not_supported) {
    ibv_qp_init_attr_ex ud = request(IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE);
    EXPECT_EQ(ibv_create_qp_ex(context_, &ud), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    ibv_qp_init_attr_ex segments = request(IBV_QPT_RC, IBV_QP_EX_WITH_TSO);
    EXPECT_EQ(ibv_create_qp_ex(context_, &segments), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    ibv_qp_init_attr_ex nonsense = request(IBV_QPT_RC, 1ull << 60);
    EXPECT_EQ(ibv_create_qp_ex(context_, &nonsense), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(QpExTest, a_plain_qp_has_no_extended_face) {
    EXPECT_EQ(ibv_qp_to_qp_ex(qp_), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace

}  // namespace rdmalab::verbs::testing

// What most tests of this room start from: a fake card, an open device, and a QP ready to send.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/limits.h"
#include "verbs/fake_card.h"

namespace rdmalab::verbs::testing {

class DeviceTest : public ::testing::Test {
protected:
    void SetUp() override {
        context_ = open_first_device();
        ASSERT_NE(context_, nullptr);
        pd_ = ibv_alloc_pd(context_);
        ASSERT_NE(pd_, nullptr);
    }
    void TearDown() override {
        if (pd_ != nullptr) {
            EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
        }
        if (context_ != nullptr) {
            EXPECT_EQ(ibv_close_device(context_), 0);
        }
    }
    static ibv_context* open_first_device() {
        int count = 0;
        ibv_device** list = ibv_get_device_list(&count);
        ibv_context* context = count > 0 ? ibv_open_device(list[0]) : nullptr;
        ibv_free_device_list(list);
        return context;
    }

    FakeCard card_;
    ibv_context* context_ = nullptr;
    ibv_pd* pd_ = nullptr;
};

class QpTest : public DeviceTest {
protected:
    static constexpr std::uint32_t kDepth = 16;

    void SetUp() override {
        DeviceTest::SetUp();
        cq_ = ibv_create_cq(context_, 64, nullptr, nullptr, 0);
        ASSERT_NE(cq_, nullptr);
        mr_ = ibv_reg_mr(pd_, buffer_.data(), buffer_.size(), IBV_ACCESS_LOCAL_WRITE);
        ASSERT_NE(mr_, nullptr);
        qp_ = create_qp(IBV_QPT_RC);
        ASSERT_NE(qp_, nullptr);
        move_to(qp_, IBV_QPS_RTS);
    }
    void TearDown() override {
        if (qp_ != nullptr) {
            EXPECT_EQ(ibv_destroy_qp(qp_), 0);
        }
        if (mr_ != nullptr) {
            EXPECT_EQ(ibv_dereg_mr(mr_), 0);
        }
        if (cq_ != nullptr) {
            EXPECT_EQ(ibv_destroy_cq(cq_), 0);
        }
        DeviceTest::TearDown();
    }

    ibv_qp* create_qp(ibv_qp_type type, ibv_srq* srq = nullptr) {
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = cq_;
        init.srq = srq;
        init.qp_type = type;
        init.cap = {.max_send_wr = kDepth,
                    .max_recv_wr = kDepth,
                    .max_send_sge = 4,
                    .max_recv_sge = 4,
                    .max_inline_data = 300};
        return ibv_create_qp(pd_, &init);
    }
    static void move_to(ibv_qp* qp, ibv_qp_state state) {
        ibv_qp_attr attributes{};
        attributes.qp_state = state;
        ASSERT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
    }

    ibv_sge sge(std::size_t offset, std::uint32_t length) {
        return {.addr = reinterpret_cast<std::uintptr_t>(buffer_.data() + offset),
                .length = length,
                .lkey = mr_->lkey};
    }
    int post_send(ibv_qp* qp, ibv_send_wr wr) {
        ibv_send_wr* bad = nullptr;
        return ibv_post_send(qp, &wr, &bad);
    }
    int send(std::uint64_t wr_id, ibv_sge* list, int count, unsigned flags = IBV_SEND_SIGNALED) {
        ibv_send_wr wr{};
        wr.wr_id = wr_id;
        wr.sg_list = list;
        wr.num_sge = count;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = flags;
        return post_send(qp_, wr);
    }
    int recv(std::uint64_t wr_id, ibv_sge* list, int count) {
        ibv_recv_wr wr{.wr_id = wr_id, .next = nullptr, .sg_list = list, .num_sge = count};
        ibv_recv_wr* bad = nullptr;
        return ibv_post_recv(qp_, &wr, &bad);
    }
    Completion send_completion(std::uint64_t wr_id, std::uint32_t ring_index) {
        return {.wr_id = wr_id, .qpn = qp_->qp_num, .ring_index = ring_index};
    }
    Completion recv_completion(std::uint64_t wr_id, std::uint32_t table_index,
                               std::uint32_t length) {
        return {.wr_id = wr_id,
                .qpn = qp_->qp_num,
                .ring_index = table_index,
                .byte_length = length,
                .flags = abi::kCqeRecv,
                .opcode = abi::CqeOpcode::kRecv};
    }
    std::uint32_t qpn() const { return qp_->qp_num; }
    std::uint32_t cqn() const { return cq_->handle; }

    std::array<char, 8192> buffer_{};
    ibv_cq* cq_ = nullptr;
    ibv_mr* mr_ = nullptr;
    ibv_qp* qp_ = nullptr;
};

// The bytes that ride behind the SGEs of an entry.
inline std::string payload_of(const abi::SendEntry& entry) {
    auto* sges = reinterpret_cast<const abi::Sge*>(&entry + 1);
    return {reinterpret_cast<const char*>(sges + entry.sge_count), entry.data_length};
}
inline const abi::Sge& sge_of(const abi::SendEntry& entry, unsigned index) {
    return reinterpret_cast<const abi::Sge*>(&entry + 1)[index];
}

}  // namespace rdmalab::verbs::testing

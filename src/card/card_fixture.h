// Two clients with a connected pair of RC QPs over the cable, for tests.
#pragma once

#include <gtest/gtest.h>

#include "card/test_client.h"

namespace rdmalab::card::testing {

class CardTest : public ::testing::Test {
protected:
    explicit CardTest(const CardConfig& config = loopback_config()) : setting(config) {
        a_mr = a.reg_mr(bytes_of(a_memory));
        b_mr = b.reg_mr(bytes_of(b_memory));
        a_qp = a.create_qp(a_cq);
        b_qp = b.create_qp(b_cq);
        EXPECT_EQ(a.connect(a_qp, b, b_qp), 0);
        EXPECT_EQ(b.connect(b_qp, a, a_qp), 0);
    }
    abi::Sge a_sge(std::size_t offset, std::uint32_t length) const {
        return {address_of(a_memory) + offset, length, a_mr.lkey};
    }
    abi::Sge b_sge(std::size_t offset, std::uint32_t length) const {
        return {address_of(b_memory) + offset, length, b_mr.lkey};
    }
    SendOptions write(std::uint64_t wr_id, std::uint32_t length) const {
        return {.wr_id = wr_id,
                .opcode = abi::SendOpcode::kWrite,
                .sges = {a_sge(0, length)},
                .remote_address = address_of(b_memory),
                .rkey = b_mr.rkey};
    }
    SendOptions send(std::uint64_t wr_id, std::uint32_t length) const {
        return {.wr_id = wr_id, .sges = {a_sge(0, length)}};
    }
    // Client a's next completion.
    transport::WcStatus status_of_a() {
        const auto wc = a.poll(a_cq);
        EXPECT_TRUE(wc);
        return wc ? wc->status : transport::WcStatus::kGeneralErr;
    }

    TestCard setting;
    TestClient a{setting, 2}, b{setting, 3};
    std::string a_memory = std::string(65536, 'a'), b_memory = std::string(65536, 'b');
    abi::RegMrReply a_mr{}, b_mr{};
    TestCq a_cq = a.create_cq(64), b_cq = b.create_cq(64);
    TestQp a_qp, b_qp;
};

}  // namespace rdmalab::card::testing

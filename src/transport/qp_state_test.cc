// The QP state machine, printed and compared with what the manual says, and probed with every mask.
#include "transport/qp_state.h"

#include <gtest/gtest.h>

#include <string>

namespace rdmalab::transport {
namespace {

constexpr std::pair<std::uint32_t, const char*> kBitNames[] = {
    {kQpCurState, "cur_state"},
    {kQpEnSqdAsyncNotify, "sqd_notify"},
    {kQpAccessFlags, "access"},
    {kQpPkeyIndex, "pkey"},
    {kQpPort, "port"},
    {kQpQkey, "qkey"},
    {kQpAv, "av"},
    {kQpPathMtu, "mtu"},
    {kQpTimeout, "timeout"},
    {kQpRetryCnt, "retry"},
    {kQpRnrRetry, "rnr_retry"},
    {kQpRqPsn, "rq_psn"},
    {kQpMaxQpRdAtomic, "max_rd"},
    {kQpAltPath, "alt"},
    {kQpMinRnrTimer, "min_rnr"},
    {kQpSqPsn, "sq_psn"},
    {kQpMaxDestRdAtomic, "max_dest_rd"},
    {kQpPathMigState, "mig"},
    {kQpDestQpn, "dest"},
};
constexpr QpState kStates[] = {QpState::kReset, QpState::kInit, QpState::kRtr, QpState::kRts,
                               QpState::kSqd,   QpState::kSqe,  QpState::kErr};

std::string names(std::uint32_t mask) {
    std::string text;
    for (const auto& [bit, name] : kBitNames)
        if ((mask & bit) != 0) text += std::string(" ") + name;
    return text;
}

std::string print(QpType type) {
    std::string text;
    for (const Transition& row : transitions(type)) {
        text += std::string(to_string(row.from)) + ">" + to_string(row.to) + ":" +
                names(row.required) + (row.optional != 0 ? " (" + names(row.optional) + " )" : "") +
                "\n";
    }
    return text;
}

//= IBA 11.2.5.2 test
TEST(QpState, table_of_rc) {
    EXPECT_EQ(print(QpType::kRc), R"(RESET>INIT: access pkey port
INIT>INIT: ( access pkey port )
INIT>RTR: av mtu rq_psn min_rnr max_dest_rd dest ( access pkey alt )
RTR>RTS: timeout retry rnr_retry max_rd sq_psn ( cur_state access alt min_rnr mig )
RTS>RTS: ( cur_state access alt min_rnr mig )
RTS>SQD: ( sqd_notify )
SQD>RTS: ( cur_state access alt min_rnr mig )
SQD>SQD: ( access pkey port av timeout retry rnr_retry max_rd alt min_rnr max_dest_rd mig )
)");
}

//= IBA 11.2.5.2 test
TEST(QpState, table_of_uc) {
    EXPECT_EQ(print(QpType::kUc), R"(RESET>INIT: access pkey port
INIT>INIT: ( access pkey port )
INIT>RTR: av mtu rq_psn dest ( access pkey alt )
RTR>RTS: sq_psn ( cur_state access alt mig )
RTS>RTS: ( cur_state access alt mig )
RTS>SQD: ( sqd_notify )
SQD>RTS: ( cur_state access alt mig )
SQD>SQD: ( access pkey av alt mig )
SQE>RTS: ( cur_state access )
)");
}

//= IBA 11.2.5.2 test
TEST(QpState, table_of_ud) {
    EXPECT_EQ(print(QpType::kUd), R"(RESET>INIT: pkey port qkey
INIT>INIT: ( pkey port qkey )
INIT>RTR: ( pkey qkey )
RTR>RTS: sq_psn ( cur_state qkey )
RTS>RTS: ( cur_state qkey )
RTS>SQD: ( sqd_notify )
SQD>RTS: ( cur_state qkey )
SQD>SQD: ( pkey qkey )
SQE>RTS: ( cur_state qkey )
)");
}

const Transition* row_of(QpType type, QpState from, QpState to) {
    for (const Transition& row : transitions(type))
        if (row.from == from && row.to == to) return &row;
    return nullptr;
}

// Each transition of each type: exactly the masks between "required" and "required and optional".
TEST(QpState, one_attribute_too_few_or_too_many_is_refused) {
    for (const QpType type : {QpType::kRc, QpType::kUc, QpType::kUd, QpType::kRaw}) {
        for (const QpState from : kStates) {
            for (const QpState to : kStates) {
                SCOPED_TRACE(std::string(to_string(type)) + " " + to_string(from) + ">" +
                             to_string(to));
                if (to == QpState::kReset || to == QpState::kErr) continue;
                const Transition* const row = row_of(type, from, to);
                const std::uint32_t least = row == nullptr ? 0 : row->required;
                EXPECT_EQ(is_transition_allowed(type, from, to, least | kQpState), row != nullptr);
                if (row == nullptr) continue;
                for (std::uint32_t bit = kQpCurState; bit <= kQpRateLimit; bit <<= 1) {
                    const bool is_needed = (row->required & bit) != 0;
                    EXPECT_EQ(is_transition_allowed(type, from, to, least & ~bit), !is_needed);
                    const bool may_be_there = ((row->required | row->optional) & bit) != 0;
                    EXPECT_EQ(is_transition_allowed(type, from, to, least | bit), may_be_there);
                }
            }
        }
    }
}

TEST(QpState, reset_and_err_are_reached_from_everywhere_with_the_state_alone) {
    for (const QpType type : {QpType::kRc, QpType::kUc, QpType::kUd, QpType::kRaw}) {
        for (const QpState from : kStates) {
            for (const QpState to : {QpState::kReset, QpState::kErr}) {
                EXPECT_TRUE(is_transition_allowed(type, from, to, kQpState));
                EXPECT_FALSE(is_transition_allowed(type, from, to, kQpState | kQpPort));
            }
        }
    }
}

TEST(QpState, raw_packets_need_a_port_and_nothing_else) {
    const auto allowed = [](QpState from, QpState to, std::uint32_t mask) {
        return is_transition_allowed(QpType::kRaw, from, to, kQpState | mask);
    };
    EXPECT_TRUE(allowed(QpState::kReset, QpState::kInit, kQpPort));
    EXPECT_FALSE(allowed(QpState::kReset, QpState::kInit, 0));
    EXPECT_FALSE(allowed(QpState::kReset, QpState::kInit, kQpPort | kQpPkeyIndex));
    EXPECT_TRUE(allowed(QpState::kInit, QpState::kRtr, 0));
    EXPECT_FALSE(allowed(QpState::kInit, QpState::kRtr, kQpAv));
    EXPECT_TRUE(allowed(QpState::kRtr, QpState::kRts, 0));
    EXPECT_FALSE(allowed(QpState::kRtr, QpState::kRts, kQpSqPsn));
}

TEST(QpState, the_ends_of_xrc_ask_for_what_their_half_of_the_protocol_needs) {
    const std::uint32_t to_rtr = kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn;
    const std::uint32_t answering = kQpMaxDestRdAtomic | kQpMinRnrTimer;
    const std::uint32_t asking = kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic;
    const auto rtr = [&](QpType type, std::uint32_t mask) {
        return is_transition_allowed(type, QpState::kInit, QpState::kRtr, mask);
    };
    const auto rts = [&](QpType type, std::uint32_t mask) {
        return is_transition_allowed(type, QpState::kRtr, QpState::kRts,
                                     kQpState | kQpSqPsn | kQpTimeout | mask);
    };
    EXPECT_TRUE(rtr(QpType::kXrcSend, to_rtr));
    EXPECT_TRUE(rtr(QpType::kXrcSend, to_rtr | answering));  // and ignored
    EXPECT_FALSE(rtr(QpType::kXrcRecv, to_rtr));
    EXPECT_TRUE(rtr(QpType::kXrcRecv, to_rtr | answering));
    EXPECT_TRUE(rts(QpType::kXrcSend, asking));
    EXPECT_FALSE(rts(QpType::kXrcSend, 0));
    EXPECT_TRUE(rts(QpType::kXrcRecv, 0));
    EXPECT_TRUE(rts(QpType::kXrcRecv, asking));
}

}  // namespace
}  // namespace rdmalab::transport

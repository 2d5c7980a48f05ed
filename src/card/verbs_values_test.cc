// The numbers of the ring ABI against the installed verbs.h.
#include "card/verbs_values.h"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

namespace rdmalab::card {
namespace {

using transport::AsyncEventType;
using transport::WcStatus;

// Across enum types, which the compiler will not compare.
template <class Ours, class Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
    return static_cast<std::int64_t>(ours) == static_cast<std::int64_t>(theirs);
}

static_assert(kIbvQptRc == IBV_QPT_RC && kIbvQptUc == IBV_QPT_UC && kIbvQptUd == IBV_QPT_UD);
static_assert(kIbvQptRawPacket == IBV_QPT_RAW_PACKET && kIbvQptXrcSend == IBV_QPT_XRC_SEND &&
              kIbvQptXrcRecv == IBV_QPT_XRC_RECV);
static_assert(kIbvPortActive == IBV_PORT_ACTIVE);
static_assert(kIbvAccessHugetlb == IBV_ACCESS_HUGETLB);
static_assert(kIbvAccessOptionalRange == IBV_ACCESS_OPTIONAL_RANGE);
static_assert(same(transport::kAccessLocalWrite, IBV_ACCESS_LOCAL_WRITE) &&
              same(transport::kAccessRemoteWrite, IBV_ACCESS_REMOTE_WRITE) &&
              same(transport::kAccessRemoteRead, IBV_ACCESS_REMOTE_READ) &&
              same(transport::kAccessRemoteAtomic, IBV_ACCESS_REMOTE_ATOMIC) &&
              same(transport::kAccessMwBind, IBV_ACCESS_MW_BIND) &&
              same(transport::kAccessZeroBased, IBV_ACCESS_ZERO_BASED) &&
              same(transport::kAccessOnDemand, IBV_ACCESS_ON_DEMAND) &&
              same(transport::kAccessRelaxedOrdering, IBV_ACCESS_RELAXED_ORDERING));
static_assert(same(transport::kQpState, IBV_QP_STATE) &&
              same(transport::kQpCurState, IBV_QP_CUR_STATE) &&
              same(transport::kQpEnSqdAsyncNotify, IBV_QP_EN_SQD_ASYNC_NOTIFY) &&
              same(transport::kQpAccessFlags, IBV_QP_ACCESS_FLAGS) &&
              same(transport::kQpPkeyIndex, IBV_QP_PKEY_INDEX) &&
              same(transport::kQpPort, IBV_QP_PORT) && same(transport::kQpQkey, IBV_QP_QKEY) &&
              same(transport::kQpAv, IBV_QP_AV) && same(transport::kQpPathMtu, IBV_QP_PATH_MTU) &&
              same(transport::kQpTimeout, IBV_QP_TIMEOUT) &&
              same(transport::kQpRetryCnt, IBV_QP_RETRY_CNT) &&
              same(transport::kQpRnrRetry, IBV_QP_RNR_RETRY) &&
              same(transport::kQpRqPsn, IBV_QP_RQ_PSN) &&
              same(transport::kQpMaxQpRdAtomic, IBV_QP_MAX_QP_RD_ATOMIC) &&
              same(transport::kQpAltPath, IBV_QP_ALT_PATH) &&
              same(transport::kQpMinRnrTimer, IBV_QP_MIN_RNR_TIMER) &&
              same(transport::kQpSqPsn, IBV_QP_SQ_PSN) &&
              same(transport::kQpMaxDestRdAtomic, IBV_QP_MAX_DEST_RD_ATOMIC) &&
              same(transport::kQpPathMigState, IBV_QP_PATH_MIG_STATE) &&
              same(transport::kQpCap, IBV_QP_CAP) && same(transport::kQpDestQpn, IBV_QP_DEST_QPN) &&
              same(transport::kQpRateLimit, IBV_QP_RATE_LIMIT));
static_assert(same(WcStatus::kLocQpOpErr, IBV_WC_LOC_QP_OP_ERR) &&
              same(WcStatus::kLocProtErr, IBV_WC_LOC_PROT_ERR) &&
              same(WcStatus::kWrFlushErr, IBV_WC_WR_FLUSH_ERR) &&
              same(WcStatus::kMwBindErr, IBV_WC_MW_BIND_ERR) &&
              same(WcStatus::kBadRespErr, IBV_WC_BAD_RESP_ERR) &&
              same(WcStatus::kLocAccessErr, IBV_WC_LOC_ACCESS_ERR) &&
              same(WcStatus::kRemInvReqErr, IBV_WC_REM_INV_REQ_ERR) &&
              same(WcStatus::kRemAccessErr, IBV_WC_REM_ACCESS_ERR) &&
              same(WcStatus::kRemOpErr, IBV_WC_REM_OP_ERR) &&
              same(WcStatus::kRetryExcErr, IBV_WC_RETRY_EXC_ERR) &&
              same(WcStatus::kRnrRetryExcErr, IBV_WC_RNR_RETRY_EXC_ERR) &&
              same(WcStatus::kRemAbortErr, IBV_WC_REM_ABORT_ERR) &&
              same(WcStatus::kFatalErr, IBV_WC_FATAL_ERR) &&
              same(WcStatus::kGeneralErr, IBV_WC_GENERAL_ERR));

TEST(VerbsValues, events_have_the_numbers_of_verbs_h) {
    EXPECT_EQ(event_to_verbs(AsyncEventType::kCqError), std::uint32_t{IBV_EVENT_CQ_ERR});
    EXPECT_EQ(event_to_verbs(AsyncEventType::kQpFatal), std::uint32_t{IBV_EVENT_QP_FATAL});
    EXPECT_EQ(event_to_verbs(AsyncEventType::kQpRequestError), std::uint32_t{IBV_EVENT_QP_REQ_ERR});
    EXPECT_EQ(event_to_verbs(AsyncEventType::kQpAccessError),
              std::uint32_t{IBV_EVENT_QP_ACCESS_ERR});
    EXPECT_EQ(event_to_verbs(AsyncEventType::kCommEstablished), std::uint32_t{IBV_EVENT_COMM_EST});
    EXPECT_EQ(event_to_verbs(AsyncEventType::kSqDrained), std::uint32_t{IBV_EVENT_SQ_DRAINED});
    EXPECT_EQ(event_to_verbs(AsyncEventType::kPathMigrated), std::uint32_t{IBV_EVENT_PATH_MIG});
    EXPECT_EQ(event_to_verbs(AsyncEventType::kQpLastWqeReached),
              std::uint32_t{IBV_EVENT_QP_LAST_WQE_REACHED});
    EXPECT_EQ(event_to_verbs(AsyncEventType::kSrqError), std::uint32_t{IBV_EVENT_SRQ_ERR});
    EXPECT_EQ(event_to_verbs(AsyncEventType::kSrqLimitReached),
              std::uint32_t{IBV_EVENT_SRQ_LIMIT_REACHED});
    EXPECT_EQ(event_to_verbs(AsyncEventType::kDeviceFatal), std::uint32_t{IBV_EVENT_DEVICE_FATAL});
    EXPECT_EQ(event_to_verbs(AsyncEventType::kPortActive), std::uint32_t{IBV_EVENT_PORT_ACTIVE});
    EXPECT_EQ(event_to_verbs(AsyncEventType::kPortError), std::uint32_t{IBV_EVENT_PORT_ERR});
    EXPECT_EQ(event_to_verbs(AsyncEventType::kGidChange), std::uint32_t{IBV_EVENT_GID_CHANGE});
}

TEST(VerbsValues, mtu_codes_and_bytes_convert_both_ways) {
    EXPECT_EQ(mtu_from_verbs(IBV_MTU_256), 256u);
    EXPECT_EQ(mtu_from_verbs(IBV_MTU_1024), 1024u);
    EXPECT_EQ(mtu_from_verbs(IBV_MTU_4096), 4096u);
    EXPECT_FALSE(mtu_from_verbs(0));
    EXPECT_FALSE(mtu_from_verbs(6));
    for (std::uint32_t mtu = 1; mtu <= 5; ++mtu) {
        EXPECT_EQ(mtu_to_verbs(*mtu_from_verbs(mtu)), mtu);
    }
    EXPECT_EQ(mtu_to_verbs(0), 0u);
}

TEST(VerbsValues, qp_states_have_the_numbers_of_verbs_h) {
    using transport::QpState;
    const std::pair<QpState, int> states[] = {
        {QpState::kReset, IBV_QPS_RESET}, {QpState::kInit, IBV_QPS_INIT},
        {QpState::kRtr, IBV_QPS_RTR},     {QpState::kRts, IBV_QPS_RTS},
        {QpState::kSqd, IBV_QPS_SQD},     {QpState::kSqe, IBV_QPS_SQE},
        {QpState::kErr, IBV_QPS_ERR}};
    for (const auto& [state, number] : states) {
        abi::QpAttributes attributes{};
        attributes.state = static_cast<std::uint32_t>(number);
        EXPECT_EQ(attributes_from_abi(attributes, transport::kQpState)->state, state);
    }
}

TEST(VerbsValues, a_queue_that_drains_says_so) {
    transport::QpAttributes attributes;
    EXPECT_EQ(attributes_to_abi(attributes).sq_draining, 0);
    attributes.sq_draining = true;
    EXPECT_EQ(attributes_to_abi(attributes).sq_draining, 1);
}

TEST(VerbsValues, rights_that_only_regions_have_are_ignored_for_qps) {
    abi::QpAttributes attributes{};
    attributes.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND |
                        IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB;
    const auto taken = attributes_from_abi(attributes, transport::kQpAccessFlags);
    ASSERT_TRUE(taken);
    EXPECT_EQ(taken->access, transport::kAccessRemoteWrite | transport::kAccessLocalWrite);
}

TEST(VerbsValues, attributes_outside_their_enum_are_refused_only_when_given) {
    abi::QpAttributes attributes{};
    attributes.state = 7;
    attributes.path_mtu = 9;
    attributes.access = 1u << 12;
    EXPECT_TRUE(attributes_from_abi(attributes, transport::kQpQkey));
    EXPECT_FALSE(attributes_from_abi(attributes, transport::kQpState));
    EXPECT_FALSE(attributes_from_abi(attributes, transport::kQpPathMtu));
    EXPECT_FALSE(attributes_from_abi(attributes, transport::kQpAccessFlags));
}

TEST(VerbsValues, attributes_survive_the_way_to_the_engine_and_back) {
    abi::QpAttributes in{};
    in.state = in.current_state = 3;
    in.path_mtu = 4;
    in.qkey = 0x1122'3344;
    in.rq_psn = 0xabcdef;
    in.sq_psn = 0x123456;
    in.destination_qpn = 0x654321;
    in.access = 15;
    in.ah = {{1, 2, 3}, 0xabcde, 2, 33, 106, 1, 5, 6, 1, 0};
    in.timeout = 14;
    in.retry_count = 6;
    in.rnr_retry = 5;
    in.reads_outstanding = 8;
    in.responder_resources = 9;
    in.min_rnr_timer = 12;
    in.port = 1;
    in.send_wr_max = 128;
    in.inline_max = 99;
    const auto engine = attributes_from_abi(in, ~0u);
    ASSERT_TRUE(engine);
    const abi::QpAttributes out = attributes_to_abi(*engine);
    EXPECT_EQ(std::memcmp(&in, &out, sizeof in), 0);
}

TEST(VerbsValues, remote_change_of_memory_needs_local_write) {
    EXPECT_EQ(mr_access_from_verbs(0), 0u);
    EXPECT_EQ(mr_access_from_verbs(IBV_ACCESS_REMOTE_READ), 4u);
    EXPECT_FALSE(mr_access_from_verbs(IBV_ACCESS_REMOTE_WRITE));
    EXPECT_FALSE(mr_access_from_verbs(IBV_ACCESS_REMOTE_ATOMIC));
    EXPECT_EQ(mr_access_from_verbs(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE), 3u);
    EXPECT_FALSE(mr_access_from_verbs(1u << 9));
    // Optional flags that the device does not know are ignored.
    EXPECT_EQ(mr_access_from_verbs(1u << 25), 0u);
}

}  // namespace
}  // namespace rdmalab::card

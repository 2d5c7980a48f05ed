// Objects: their life, their owners, and the attributes of QPs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "transport/test_pair.h"

namespace rdmalab::transport {
namespace {

constexpr OwnerId kOther{99};
constexpr OwnerId kOwner = Host::kOwner;

struct ControlTest : testing::Test {
    int modify(Qpn qpn, QpState state, std::uint32_t mask) {
        attributes.state = state;
        return bench.a.engine.modify_qp(kOwner, qpn, attributes, mask | kQpState, bench.now);
    }
    Bench bench;
    Engine& engine = bench.a.engine;
    QpAttributes attributes;
};

constexpr std::uint32_t kInit = kQpPkeyIndex | kQpPort | kQpAccessFlags;
constexpr std::uint32_t kRtr =
    kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer;
constexpr std::uint32_t kRts = kQpSqPsn | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic;

TEST_F(ControlTest, an_object_in_use_is_busy) {
    const PdId pd = *engine.create_pd(kOwner);
    const CqId cq = *engine.create_cq(kOwner, 10);
    const SrqId srq = *engine.create_srq({kOwner, pd, 10, 1, {}, {}});
    QpInit init;
    init.owner = kOwner;
    init.pd = pd;
    init.send_cq = init.recv_cq = cq;
    init.srq = srq;
    const Qpn qpn = *engine.create_qp(init);
    EXPECT_EQ(engine.destroy_pd(kOwner, pd), EBUSY);
    EXPECT_EQ(engine.destroy_cq(kOwner, cq), EBUSY);
    EXPECT_EQ(engine.destroy_srq(kOwner, srq), EBUSY);
    EXPECT_EQ(engine.destroy_qp(kOwner, qpn), 0);
    EXPECT_EQ(engine.destroy_cq(kOwner, cq), 0);
    EXPECT_EQ(engine.destroy_pd(kOwner, pd), EBUSY);
    EXPECT_EQ(engine.destroy_srq(kOwner, srq), 0);
    const auto keys = engine.register_mr({kOwner, Host::kSpace, pd, 0, 10, 0, 0});
    EXPECT_EQ(engine.destroy_pd(kOwner, pd), EBUSY);
    EXPECT_EQ(engine.deregister_mr(kOwner, keys->lkey), 0);
    const AhId ah = *engine.create_ah(kOwner, pd, bench.vector_to(bench.b.gid, bench.b.mac));
    EXPECT_EQ(engine.destroy_pd(kOwner, pd), EBUSY);
    EXPECT_EQ(engine.destroy_ah(kOwner, ah), 0);
    EXPECT_EQ(engine.destroy_pd(kOwner, pd), 0);
    EXPECT_EQ(engine.destroy_pd(kOwner, pd), EINVAL);
}

TEST_F(ControlTest, nobody_touches_what_belongs_to_another) {
    const Qpn qpn = bench.a.create_qp(QpType::kUd);
    auto& region = bench.a.region(10);
    const AhId ah = bench.address_of(bench.a, bench.b);
    EXPECT_EQ(engine.destroy_pd(kOther, bench.a.pd), EINVAL);
    EXPECT_EQ(engine.destroy_cq(kOther, bench.a.send_cq), EINVAL);
    EXPECT_EQ(engine.destroy_srq(kOther, bench.a.srq), EINVAL);
    EXPECT_EQ(engine.set_srq_limit(kOther, bench.a.srq, 1), EINVAL);
    EXPECT_EQ(engine.srq_limit(kOther, bench.a.srq).error().code, EINVAL);
    EXPECT_EQ(engine.deregister_mr(kOther, region.keys.lkey), EINVAL);
    EXPECT_EQ(engine.destroy_ah(kOther, ah), EINVAL);
    EXPECT_EQ(engine.destroy_qp(kOther, qpn), EINVAL);
    EXPECT_EQ(engine.modify_qp(kOther, qpn, {}, kQpState, bench.now), EINVAL);
    EXPECT_EQ(engine.query_qp(kOther, qpn).error().code, EINVAL);
    EXPECT_EQ(engine.attach_multicast(kOther, qpn, Gid::from_ipv4(0xe000'0001)), EINVAL);
    EXPECT_EQ(engine.register_mr({kOther, Host::kSpace, bench.a.pd, 0, 1, 0, 0}).error().code,
              EINVAL);
    QpInit init;
    init.owner = kOther;
    init.pd = bench.a.pd;
    EXPECT_EQ(engine.create_qp(init).error().code, EINVAL);
}

TEST_F(ControlTest, an_owner_that_leaves_takes_everything_along) {
    const Qpn qa = bench.a.create_qp(QpType::kRc, true), qb = bench.b.create_qp(QpType::kRc);
    bench.connect(qa, qb);
    bench.address_of(bench.a, bench.b);
    auto& region = bench.a.region(1000);
    const Qpn group_member = bench.a.create_qp(QpType::kUd);
    ASSERT_EQ(engine.attach_multicast(kOwner, group_member, Gid::from_ipv4(0xe000'0001)), 0);
    bench.a.post_send(qa, send_wqe(WrOpcode::kSend, {region.sge(0, 1000)}));
    bench.run(microseconds(1));
    engine.release_owner(kOwner);
    const auto counts = engine.object_counts();
    EXPECT_EQ(counts.pds + counts.mrs + counts.cqs + counts.srqs + counts.qps + counts.ahs, 0u);
    EXPECT_TRUE(engine.list_qps().empty());
    bench.run(seconds(1));
    EXPECT_TRUE(bench.a.poll_send().empty());
}

TEST_F(ControlTest, the_number_of_a_dead_qp_is_not_used_again_soon) {
    std::set<Qpn> seen;
    for (int i = 0; i < 2000; ++i) {
        const Qpn qpn = bench.a.create_qp(QpType::kRc);
        EXPECT_TRUE(seen.insert(qpn).second);
        EXPECT_GT(qpn.value, 0xffffu);
        EXPECT_LT(qpn.value, 0xff'0000u);
        ASSERT_EQ(engine.destroy_qp(kOwner, qpn), 0);
    }
}

TEST_F(ControlTest, as_many_qps_as_the_limit_says) {
    QpInit init;
    init.owner = kOwner;
    init.pd = bench.a.pd;
    init.send_cq = init.recv_cq = bench.a.send_cq;
    Result<Qpn> last = Error{};
    for (std::uint32_t i = 0; i < limits::kQpMax; ++i) {
        last = engine.create_qp(init);
        ASSERT_TRUE(last.ok());
    }
    EXPECT_EQ(engine.create_qp(init).error().code, ENOMEM);
    EXPECT_EQ(engine.destroy_qp(kOwner, *last), 0);
    EXPECT_TRUE(engine.create_qp(init).ok());
}

TEST_F(ControlTest, sizes_above_the_limits_are_refused) {
    QpInit init;
    init.owner = kOwner;
    init.pd = bench.a.pd;
    init.send_cq = init.recv_cq = bench.a.send_cq;
    init.type = QpType::kRc;
    init.caps.send_wr_max = limits::kWqeMax + 1;
    EXPECT_EQ(engine.create_qp(init).error().code, EINVAL);
    EXPECT_EQ(engine.create_cq(kOwner, 0).error().code, EINVAL);
    EXPECT_EQ(engine.create_cq(kOwner, limits::kCqeMax + 2).error().code, EINVAL);
}

// ibv_modify_qp(3): with a wrong attribute nothing is modified.
TEST_F(ControlTest, a_wrong_attribute_leaves_the_qp_as_it_was) {
    const Qpn qpn = bench.a.create_qp(QpType::kRc);
    attributes.access = kAccessRemoteRead;
    ASSERT_EQ(modify(qpn, QpState::kInit, kInit), 0);
    QpAttributes good;
    good.path_mtu = 1024;
    good.av = bench.vector_to(bench.b.gid, bench.b.mac);
    const std::function<void(QpAttributes&)> mistakes[] = {
        [](QpAttributes& a) { a.path_mtu = 0; },
        [](QpAttributes& a) { a.path_mtu = 1000; },
        [](QpAttributes& a) { a.path_mtu = 8192; },
        [](QpAttributes& a) { a.min_rnr_timer = 32; },
        [](QpAttributes& a) { a.responder_resources = limits::kReadsMax + 1; },
        [](QpAttributes& a) { a.destination_qpn = Qpn{1 << 24}; },
        [](QpAttributes& a) { a.av.is_global = false; },
        [](QpAttributes& a) { a.av.gid_index = 1; },
        [](QpAttributes& a) { a.av.gid_index = 200; },
        [](QpAttributes& a) { a.av.destination = *Gid::parse("fd00::1"); },
        [](QpAttributes& a) { a.av.destination = {}; },
    };
    for (const auto& mistake : mistakes) {
        attributes = good;
        mistake(attributes);
        EXPECT_EQ(modify(qpn, QpState::kRtr, kRtr), EINVAL);
    }
    EXPECT_EQ(engine.query_qp(kOwner, qpn)->state, QpState::kInit);
    EXPECT_EQ(engine.query_qp(kOwner, qpn)->path_mtu, 0u);
    attributes = good;
    EXPECT_EQ(modify(qpn, QpState::kRtr, kRtr), 0);
    attributes.timeout = 32;
    EXPECT_EQ(modify(qpn, QpState::kRts, kRts), EINVAL);
    attributes.timeout = 31;
    attributes.retry_count = 8;
    EXPECT_EQ(modify(qpn, QpState::kRts, kRts), EINVAL);
    attributes.retry_count = 7;
    attributes.rnr_retry = 8;
    EXPECT_EQ(modify(qpn, QpState::kRts, kRts), EINVAL);
    attributes.rnr_retry = 7;
    EXPECT_EQ(modify(qpn, QpState::kRts, kRts), 0);
    attributes.current_state = QpState::kSqd;
    EXPECT_EQ(modify(qpn, QpState::kRts, kQpCurState), EINVAL);
    attributes.current_state = QpState::kRts;
    EXPECT_EQ(modify(qpn, QpState::kRts, kQpCurState), 0);
}

TEST_F(ControlTest, query_tells_what_modify_has_set) {
    const Qpn qpn = bench.a.create_qp(QpType::kRc);
    attributes.access = kAccessRemoteRead | kAccessRemoteWrite;
    attributes.path_mtu = 2048;
    attributes.av = bench.vector_to(bench.b.gid, bench.b.mac);
    attributes.av.traffic_class = 0x68;
    attributes.destination_qpn = Qpn{0x123456};
    attributes.rq_psn = Psn{11};
    attributes.sq_psn = Psn{22};
    attributes.responder_resources = 3;
    attributes.reads_outstanding = 4;
    attributes.min_rnr_timer = 5;
    attributes.timeout = 6;
    attributes.retry_count = 7;
    attributes.rnr_retry = 2;
    ASSERT_EQ(modify(qpn, QpState::kInit, kInit), 0);
    ASSERT_EQ(modify(qpn, QpState::kRtr, kRtr), 0);
    ASSERT_EQ(modify(qpn, QpState::kRts, kRts), 0);
    const QpAttributes told = *engine.query_qp(kOwner, qpn);
    EXPECT_EQ(told.state, QpState::kRts);
    EXPECT_EQ(told.access, attributes.access);
    EXPECT_EQ(told.path_mtu, 2048u);
    EXPECT_EQ(told.av.traffic_class, 0x68);
    EXPECT_EQ(told.av.destination, bench.b.gid);
    EXPECT_EQ(told.destination_qpn, Qpn{0x123456});
    EXPECT_EQ(told.rq_psn, Psn{11});
    EXPECT_EQ(told.sq_psn, Psn{22});
    EXPECT_EQ(told.responder_resources, 3);
    EXPECT_EQ(told.reads_outstanding, 4);
    EXPECT_EQ(told.min_rnr_timer, 5);
    EXPECT_EQ(told.timeout, 6);
    EXPECT_EQ(told.retry_count, 7);
    EXPECT_EQ(told.rnr_retry, 2);
    EXPECT_EQ(told.caps.send_wr_max, 1024u);
    // RESET forgets it all.
    ASSERT_EQ(modify(qpn, QpState::kReset, 0), 0);
    EXPECT_EQ(engine.query_qp(kOwner, qpn)->path_mtu, 0u);
}

TEST_F(ControlTest, ece_options_are_settled_before_the_peer_is_known) {
    const Qpn qpn = bench.a.create_qp(QpType::kRc);
    const auto set = [&](std::uint32_t options, std::uint32_t mask = kQpEce) {
        QpAttributes wish;
        wish.ece_options = options;
        return engine.modify_qp(kOwner, qpn, wish, mask, bench.now);
    };
    const auto options = [&] { return engine.query_qp(kOwner, qpn)->ece_options; };
    EXPECT_EQ(options(), kEceSupported);
    EXPECT_EQ(set(0), 0);
    EXPECT_EQ(options(), 0u);
    EXPECT_EQ(set(~0u), 0);
    EXPECT_EQ(options(), kEceSupported) << "unknown ones fall away";
    EXPECT_EQ(set(0, kQpEce | kQpState), EINVAL);
    attributes.path_mtu = 1024;
    attributes.av = bench.vector_to(bench.b.gid, bench.b.mac);
    attributes.destination_qpn = Qpn{0x123456};
    ASSERT_EQ(modify(qpn, QpState::kInit, kInit), 0);
    EXPECT_EQ(set(0), 0);
    ASSERT_EQ(modify(qpn, QpState::kRtr, kRtr), 0);
    EXPECT_EQ(set(kEceSupported), EINVAL);
    EXPECT_EQ(options(), 0u);
    EXPECT_EQ(engine.probe_path(qpn), nullptr) << "no probes were agreed on";
    ASSERT_EQ(modify(qpn, QpState::kReset, 0), 0);
    EXPECT_EQ(options(), kEceSupported);
}

TEST_F(ControlTest, a_qp_works_again_after_reset) {
    const Qpn qa = bench.a.create_qp(QpType::kRc), qb = bench.b.create_qp(QpType::kRc);
    auto& ma = bench.a.region(100);
    auto& mb = bench.b.region(100);
    for (int i = 0; i < 3; ++i) {
        bench.connect(qa, qb);
        bench.a.post_send(qa, rdma_wqe(WrOpcode::kWrite, {ma.sge(0, 100)}, mb));
        bench.settle();
        const auto completions = bench.a.poll_send();
        ASSERT_EQ(completions.size(), 1u);
        EXPECT_EQ(completions[0].status, WcStatus::kSuccess);
        EXPECT_EQ(modify(qa, QpState::kReset, 0), 0);
        attributes.state = QpState::kReset;
        EXPECT_EQ(bench.b.engine.modify_qp(kOwner, qb, attributes, kQpState, bench.now), 0);
    }
}

TEST_F(ControlTest, address_handles_need_a_path_of_rocev2) {
    AddressVector av = bench.vector_to(bench.b.gid, bench.b.mac);
    EXPECT_TRUE(engine.create_ah(kOwner, bench.a.pd, av).ok());
    av.is_global = false;
    EXPECT_EQ(engine.create_ah(kOwner, bench.a.pd, av).error().code, EINVAL);
    av.is_global = true;
    av.gid_index = 3;
    EXPECT_EQ(engine.create_ah(kOwner, bench.a.pd, av).error().code, EINVAL);
    EXPECT_EQ(engine.create_ah(kOwner, PdId{77}, av).error().code, EINVAL);
}

TEST_F(ControlTest, only_datagram_qps_join_multicast_groups) {
    const Gid group = Gid::from_ipv4(0xe000'0101);
    const Qpn rc = bench.a.create_qp(QpType::kRc), ud = bench.a.create_qp(QpType::kUd);
    EXPECT_EQ(engine.attach_multicast(kOwner, rc, group), EINVAL);
    EXPECT_EQ(engine.attach_multicast(kOwner, ud, bench.b.gid), EINVAL);
    EXPECT_EQ(engine.detach_multicast(kOwner, ud, group), EINVAL);
    EXPECT_EQ(engine.attach_multicast(kOwner, ud, group), 0);
    EXPECT_EQ(engine.attach_multicast(kOwner, ud, group), 0);
    EXPECT_EQ(engine.destroy_qp(kOwner, ud), EBUSY);
    EXPECT_EQ(engine.detach_multicast(kOwner, ud, group), 0);
    EXPECT_EQ(engine.destroy_qp(kOwner, ud), 0);
}

}  // namespace
}  // namespace rdmalab::transport

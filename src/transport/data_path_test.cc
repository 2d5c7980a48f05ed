// What moves, on a link without faults: every verb, every service, and the edges of lengths.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/test_pair.h"

namespace rdmalab::transport {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::SizeIs;

void fill(Host::Region& region, std::uint64_t seed) {
    Prng prng(seed);
    for (std::byte& byte : region.bytes) byte = static_cast<std::byte>(prng.next());
}

// A connected pair and one region on each side.
struct Rig {
    explicit Rig(QpType type = QpType::kRc, const Connection& connection = {},
                 std::size_t size = 64 * 1024)
        : qa(bench.a.create_qp(type)),
          qb(bench.b.create_qp(type)),
          ma(bench.a.region(size)),
          mb(bench.b.region(size)) {
        bench.connect(qa, qb, connection);
        fill(ma, 1);
    }
    Bench bench;
    Qpn qa, qb;
    Host::Region& ma;
    Host::Region& mb;
};

auto status(WcStatus expected) { return Field(&Completion::status, expected); }

// Lengths around the MTU and its multiples.
std::vector<std::uint32_t> edge_lengths(std::uint32_t mtu) {
    return {0,           1,       3,           4,           mtu - 1, mtu,        mtu + 1,
            2 * mtu - 1, 2 * mtu, 2 * mtu + 1, 7 * mtu - 1, 7 * mtu, 7 * mtu + 1};
}

struct Lengths : testing::TestWithParam<std::tuple<QpType, std::uint32_t>> {
    // Calls `check(rig, length)` with a fresh rig for each length.
    template <class Check>
    static void for_each_length(QpType type, std::uint32_t mtu, Check check) {
        Connection connection;
        connection.mtu = mtu;
        for (const std::uint32_t length : edge_lengths(mtu)) {
            SCOPED_TRACE(length);
            Rig rig(type, connection);
            check(rig, length);
        }
    }
};

TEST_P(Lengths, send_arrives_whole) {
    const auto [type, mtu] = GetParam();
    for_each_length(type, mtu, [](Rig& rig, std::uint32_t length) {
        rig.bench.b.post_recv(rig.qb, recv_wqe({rig.mb.sge(0, 60'000)}, 9));
        rig.bench.a.post_send(rig.qa, send_wqe(WrOpcode::kSend, {rig.ma.sge(0, length)}, 5));
        rig.bench.settle();
        EXPECT_THAT(rig.bench.a.poll_send(),
                    ElementsAre(AllOf(status(WcStatus::kSuccess), Field(&Completion::wr_id, 5u))));
        EXPECT_THAT(rig.bench.b.poll_recv(),
                    ElementsAre(AllOf(status(WcStatus::kSuccess), Field(&Completion::wr_id, 9u),
                                      Field(&Completion::byte_length, length))));
        EXPECT_TRUE(
            std::equal(rig.ma.bytes.begin(), rig.ma.bytes.begin() + length, rig.mb.bytes.begin()));
        EXPECT_EQ(rig.mb.bytes[length], std::byte{0});
    });
}

TEST_P(Lengths, write_arrives_whole) {
    const auto [type, mtu] = GetParam();
    for_each_length(type, mtu, [](Rig& rig, std::uint32_t length) {
        rig.bench.a.post_send(rig.qa,
                              rdma_wqe(WrOpcode::kWrite, {rig.ma.sge(3, length)}, rig.mb, 17));
        rig.bench.settle();
        EXPECT_THAT(rig.bench.a.poll_send(), ElementsAre(status(WcStatus::kSuccess)));
        EXPECT_TRUE(std::equal(rig.ma.bytes.begin() + 3, rig.ma.bytes.begin() + 3 + length,
                               rig.mb.bytes.begin() + 17));
        EXPECT_EQ(rig.mb.bytes[17 + length], std::byte{0});
        EXPECT_THAT(rig.bench.b.poll_recv(), IsEmpty());
    });
}

INSTANTIATE_TEST_SUITE_P(around_the_mtu, Lengths,
                         testing::Combine(testing::Values(QpType::kRc, QpType::kUc),
                                          testing::Values(256u, 512u, 1024u, 2048u, 4096u)));

TEST(DataPath, read_arrives_whole) {
    for (const std::uint32_t mtu : {256u, 512u, 1024u, 2048u, 4096u}) {
        Lengths::for_each_length(QpType::kRc, mtu, [](Rig& rig, std::uint32_t length) {
            fill(rig.mb, 2);
            rig.bench.a.post_send(rig.qa,
                                  rdma_wqe(WrOpcode::kRead, {rig.ma.sge(5, length)}, rig.mb, 9));
            rig.bench.settle();
            EXPECT_THAT(rig.bench.a.poll_send(),
                        ElementsAre(AllOf(status(WcStatus::kSuccess),
                                          Field(&Completion::byte_length, length),
                                          Field(&Completion::opcode, WcOpcode::kRead))));
            EXPECT_TRUE(std::equal(rig.mb.bytes.begin() + 9, rig.mb.bytes.begin() + 9 + length,
                                   rig.ma.bytes.begin() + 5));
        });
    }
}

TEST(DataPath, datagram_brings_grh_source_and_length) {
    Bench bench;
    const Qpn qa = bench.a.create_qp(QpType::kUd), qb = bench.b.create_qp(QpType::kUd);
    bench.ready_datagram(bench.a, qa, 0x11);
    bench.ready_datagram(bench.b, qb, 0x11);
    auto& ma = bench.a.region(5000);
    auto& mb = bench.b.region(5000);
    fill(ma, 1);
    bench.b.post_recv(qb, recv_wqe({mb.sge(0, 4500)}));
    SendWqe wqe = send_wqe(WrOpcode::kSendImm, {ma.sge(0, 4096)});
    wqe.ah = bench.address_of(bench.a, bench.b);
    wqe.remote_qpn = qb;
    wqe.remote_qkey = 0x11;
    wqe.immediate = 0x1234'5678;
    bench.a.post_send(qa, wqe);
    bench.settle();
    EXPECT_THAT(bench.a.poll_send(), ElementsAre(status(WcStatus::kSuccess)));
    const auto received = bench.b.poll_recv();
    ASSERT_THAT(received, SizeIs(1));
    EXPECT_EQ(received[0].status, WcStatus::kSuccess);
    EXPECT_EQ(received[0].byte_length, 4096u + 40);
    EXPECT_TRUE(received[0].has_grh);
    EXPECT_EQ(received[0].source_qpn, qa);
    EXPECT_TRUE(received[0].has_immediate);
    EXPECT_EQ(received[0].immediate, 0x1234'5678u);
    EXPECT_TRUE(std::equal(ma.bytes.begin(), ma.bytes.begin() + 4096, mb.bytes.begin() + 40));
    // The IPv4 header stands in the last 20 of the 40 bytes: version, ..., source, destination.
    EXPECT_EQ(mb.bytes[0], std::byte{0});
    EXPECT_EQ(mb.bytes[20], std::byte{0x45});
    EXPECT_EQ(mb.bytes[35], std::byte{1});
    EXPECT_EQ(mb.bytes[39], std::byte{2});
}

TEST(DataPath, atomics_change_the_target_and_bring_back_its_old_value) {
    Rig rig;
    store_bytes(rig.mb.bytes.data(), std::uint64_t{40});
    SendWqe add = rdma_wqe(WrOpcode::kFetchAdd, {rig.ma.sge(0, 8)}, rig.mb, 0, 1);
    add.compare = 2;
    SendWqe swap = rdma_wqe(WrOpcode::kCompareSwap, {rig.ma.sge(8, 8)}, rig.mb, 0, 2);
    swap.compare = 42;
    swap.swap = 77;
    SendWqe miss = rdma_wqe(WrOpcode::kCompareSwap, {rig.ma.sge(16, 8)}, rig.mb, 0, 3);
    miss.compare = 1;
    miss.swap = 99;
    for (const SendWqe& wqe : {add, swap, miss}) rig.bench.a.post_send(rig.qa, wqe);
    rig.bench.settle();
    EXPECT_THAT(rig.bench.a.poll_send(), testing::Each(status(WcStatus::kSuccess)));
    EXPECT_EQ(load_bytes<std::uint64_t>(rig.ma.bytes.data()), 40u);
    EXPECT_EQ(load_bytes<std::uint64_t>(rig.ma.bytes.data() + 8), 42u);
    EXPECT_EQ(load_bytes<std::uint64_t>(rig.ma.bytes.data() + 16), 77u);
    EXPECT_EQ(load_bytes<std::uint64_t>(rig.mb.bytes.data()), 77u);
}

TEST(DataPath, many_sges_on_both_sides_keep_the_order_of_bytes) {
    for (const WrOpcode opcode : {WrOpcode::kSend, WrOpcode::kWrite, WrOpcode::kRead}) {
        Rig rig;
        fill(rig.mb, 2);
        const auto before_b = rig.mb.bytes;
        std::vector<Sge> sges;
        std::vector<std::byte> expected;
        for (std::uint32_t i = 0; i < 32; ++i) {
            const std::size_t from = 1500 * ((i * 7) % 32);
            const std::uint32_t length = i % 5 == 0 ? 0 : 100 + i * 13;
            sges.push_back(rig.ma.sge(from, length));
            expected.insert(expected.end(), rig.ma.bytes.begin() + static_cast<long>(from),
                            rig.ma.bytes.begin() + static_cast<long>(from + length));
        }
        SendWqe wqe = rdma_wqe(opcode, sges, rig.mb);
        const std::uint32_t total = wqe.length;
        rig.bench.b.post_recv(
            rig.qb, recv_wqe({rig.mb.sge(0, 1), rig.mb.sge(1, 3000), rig.mb.sge(3001, 50'000)}));
        rig.bench.a.post_send(rig.qa, wqe);
        rig.bench.settle();
        ASSERT_THAT(rig.bench.a.poll_send(), ElementsAre(status(WcStatus::kSuccess)));
        if (opcode == WrOpcode::kRead) {
            std::size_t at = 0;
            for (const Sge& sge : sges) {
                const auto* const place = reinterpret_cast<const std::byte*>(sge.address);
                ASSERT_TRUE(std::equal(place, place + sge.length, before_b.data() + at));
                at += sge.length;
            }
        } else {
            ASSERT_TRUE(std::equal(expected.begin(), expected.end(), rig.mb.bytes.begin()));
        }
        ASSERT_EQ(total, expected.size());
    }
}

// 2 GiB of memory that is only ever named: the copies are counted.
struct Huge {
    explicit Huge(std::uint32_t mtu) {
        Connection connection;
        connection.mtu = mtu;
        connection.psn_a = Psn{0xff'fff0};
        bench.connect(qa, qb, connection);
        bench.memory.is_dry = true;
        keys_a = name_memory(bench.a);
        keys_b = name_memory(bench.b);
    }
    static MrKeys name_memory(Host& host) {
        return *host.engine.register_mr(
            {Host::kOwner, Host::kSpace, host.pd, kBase, 4ull << 30, kBase, Host::kEverything});
    }
    SendWqe wqe(WrOpcode opcode, std::uint32_t extra = 0) const {
        SendWqe wqe = send_wqe(opcode, {{kBase, 1u << 30, keys_a.lkey},
                                        {kBase + (1u << 30), (1u << 30) + extra, keys_a.lkey}});
        wqe.remote_address = kBase;
        wqe.rkey = keys_b.rkey;
        return wqe;
    }
    static constexpr std::uint64_t kBase = 1ull << 40;
    Bench bench;
    Qpn qa = bench.a.create_qp(QpType::kRc), qb = bench.b.create_qp(QpType::kRc);
    MrKeys keys_a, keys_b;
};

//= IBA 9.7.7 test
TEST(DataPath, a_message_may_have_two_gibibytes_and_not_more) {
    for (const WrOpcode opcode : {WrOpcode::kWrite, WrOpcode::kRead}) {
        for (const std::uint32_t mtu : {256u, 4096u}) {
            Huge huge(mtu);
            huge.bench.a.post_send(huge.qa, huge.wqe(opcode));
            huge.bench.a.post_send(huge.qa, huge.wqe(opcode, 1));
            huge.bench.settle();
            EXPECT_THAT(huge.bench.a.poll_send(),
                        ElementsAre(status(WcStatus::kSuccess), status(WcStatus::kLocLenErr)));
            EXPECT_EQ(huge.bench.memory.bytes_copied, 1ull << 31);
        }
    }
}

}  // namespace
}  // namespace rdmalab::transport

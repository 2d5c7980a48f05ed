// Memory windows, atomic writes and null regions between two engines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "transport/test_packet.h"

namespace rdmalab::transport {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

struct WindowTest : testing::Test {
    WindowTest() {
        qa = bench.a.create_qp(QpType::kRc);
        qb = bench.b.create_qp(QpType::kRc);
        bench.connect(qa, qb);
        rkey = *bench.b.engine.create_window(Host::kOwner, bench.b.pd, WindowType::kType2);
    }
    SendWqe bind_wqe(std::uint64_t offset, std::uint64_t length, std::uint64_t wr_id = 1) {
        SendWqe wqe = send_wqe(WrOpcode::kBindMw, {}, wr_id);
        rkey.value = (rkey.value & ~0xffu) | ((rkey.value + 1) & 0xff);
        wqe.rkey = rkey;
        wqe.remote_address = target.address(offset);
        wqe.bind = {target.keys.lkey, kAccessRemoteWrite, length};
        return wqe;
    }
    SendWqe write_wqe(std::size_t offset, std::uint64_t wr_id = 1) {
        SendWqe wqe = rdma_wqe(WrOpcode::kWrite, {source.sge(0, 100)}, target, offset, wr_id);
        wqe.rkey = rkey;
        return wqe;
    }
    static std::vector<WcStatus> statuses(const std::vector<Completion>& completions) {
        std::vector<WcStatus> all;
        for (const Completion& completion : completions) all.push_back(completion.status);
        return all;
    }
    std::vector<WcStatus> after(Host& host, Qpn qpn, const SendWqe& wqe) {
        host.post_send(qpn, wqe);
        bench.settle();
        return statuses(host.poll_send());
    }

    Bench bench;
    Qpn qa, qb;
    Rkey rkey;
    Host::Region& source = bench.a.region(4096);
    Host::Region& target = bench.b.region(4096, kAccessLocalWrite | kAccessMwBind);
};

TEST_F(WindowTest, a_peer_writes_through_a_window_only_where_it_is_bound) {
    source.bytes.assign(source.bytes.size(), std::byte{7});
    EXPECT_THAT(after(bench.b, qb, bind_wqe(100, 200)), ElementsAre(WcStatus::kSuccess));
    EXPECT_THAT(after(bench.a, qa, write_wqe(150)), ElementsAre(WcStatus::kSuccess));
    EXPECT_EQ(target.bytes[150], std::byte{7});
    EXPECT_THAT(after(bench.a, qa, write_wqe(250)), ElementsAre(WcStatus::kRemAccessErr));
    EXPECT_EQ(target.bytes[250], std::byte{0});
}

TEST_F(WindowTest, a_bind_completes_in_its_turn) {
    bench.b.post_send(qb, rdma_wqe(WrOpcode::kWrite, {target.sge(0, 10)}, source, 0, 1));
    bench.b.post_send(qb, bind_wqe(0, 100, 2));
    bench.b.post_send(qb, rdma_wqe(WrOpcode::kWrite, {target.sge(0, 10)}, source, 0, 3));
    bench.settle();
    std::vector<std::uint64_t> ids;
    for (const Completion& completion : bench.b.poll_send()) ids.push_back(completion.wr_id);
    EXPECT_THAT(ids, ElementsAre(1, 2, 3));
}

//= IBA 11.6.2 test
TEST_F(WindowTest, a_bind_that_does_not_fit_is_an_error_of_the_qp) {
    EXPECT_THAT(after(bench.b, qb, bind_wqe(4000, 200)), ElementsAre(WcStatus::kMwBindErr));
    EXPECT_EQ(bench.b.state(qb), QpState::kErr);
}

TEST_F(WindowTest, local_invalidation_ends_access) {
    EXPECT_THAT(after(bench.b, qb, bind_wqe(0, 4096)), ElementsAre(WcStatus::kSuccess));
    SendWqe invalidate = send_wqe(WrOpcode::kLocalInvalidate, {});
    invalidate.immediate = rkey.value;
    EXPECT_THAT(after(bench.b, qb, invalidate), ElementsAre(WcStatus::kSuccess));
    EXPECT_THAT(after(bench.a, qa, write_wqe(0)), ElementsAre(WcStatus::kRemAccessErr));
}

//= IBA 9.4.1.1.3 test
TEST_F(WindowTest, a_send_with_invalidate_ends_access_and_says_so) {
    EXPECT_THAT(after(bench.b, qb, bind_wqe(0, 4096)), ElementsAre(WcStatus::kSuccess));
    bench.b.post_recv(qb, recv_wqe({target.sge(0, 100)}));
    SendWqe send = send_wqe(WrOpcode::kSendInvalidate, {source.sge(0, 10)});
    send.immediate = rkey.value;
    EXPECT_THAT(after(bench.a, qa, send), ElementsAre(WcStatus::kSuccess));
    const auto received = bench.b.poll_recv();
    ASSERT_THAT(received, SizeIs(1));
    EXPECT_TRUE(received[0].invalidated);
    EXPECT_EQ(received[0].immediate, rkey.value);
    EXPECT_THAT(after(bench.a, qa, write_wqe(0)), ElementsAre(WcStatus::kRemAccessErr));
}

//= IBA 9.4.1.1.3 test
TEST_F(WindowTest, a_send_that_would_invalidate_a_region_is_a_remote_access_error) {
    bench.b.post_recv(qb, recv_wqe({target.sge(0, 100)}));
    SendWqe send = send_wqe(WrOpcode::kSendInvalidate, {source.sge(0, 10)});
    send.immediate = target.keys.rkey.value;
    EXPECT_THAT(after(bench.a, qa, send), ElementsAre(WcStatus::kRemAccessErr));
}

struct AtomicWriteTest : WindowTest {
    SendWqe word_wqe(std::size_t offset, std::uint32_t length = 8) {
        return rdma_wqe(WrOpcode::kAtomicWrite, {source.sge(0, length)}, word, offset);
    }
    Host::Region& word = bench.b.region(4096);
};

//= IBA 9.4.8 test
TEST_F(AtomicWriteTest, eight_bytes_are_written_and_answered_by_an_empty_response) {
    Wiretap tap(bench);
    const std::uint64_t value = 0x0123'4567'89ab'cdef;
    std::memcpy(source.bytes.data(), &value, sizeof value);
    bench.a.post_send(qa, word_wqe(16));
    bench.settle();
    const auto completions = bench.a.poll_send();
    ASSERT_THAT(completions, SizeIs(1));
    EXPECT_EQ(completions[0].status, WcStatus::kSuccess);
    EXPECT_EQ(completions[0].opcode, WcOpcode::kAtomicWrite);
    EXPECT_EQ(std::memcmp(word.bytes.data() + 16, &value, sizeof value), 0);
    EXPECT_THAT(tap.names(), ElementsAre("RC ATOMIC WRITE", "RC RDMA READ Response Only"));
    EXPECT_EQ(tap.seen()[1].payload, 0u);
}

//= IBA 9.4.8 test
TEST_F(AtomicWriteTest, a_lost_answer_is_repeated_and_the_write_is_not) {
    int frames = 0;
    bench.fate = [&](const wire::Frame&) {
        Fate fate;
        fate.is_lost = ++frames == 2;  // the response
        if (fate.is_lost) word.bytes[16] = std::byte{0x55};
        return fate;
    };
    source.bytes[0] = std::byte{0x11};
    bench.a.post_send(qa, word_wqe(16));
    bench.run(seconds(1));
    EXPECT_THAT(statuses(bench.a.poll_send()), ElementsAre(WcStatus::kSuccess));
    EXPECT_EQ(word.bytes[16], std::byte{0x55});
}

TEST_F(AtomicWriteTest, a_length_that_is_no_word_is_an_error_here) {
    EXPECT_THAT(after(bench.a, qa, word_wqe(0, 4)), ElementsAre(WcStatus::kLocLenErr));
}

//= IBA 9.4.8 test
TEST_F(AtomicWriteTest, an_address_that_is_not_aligned_is_an_invalid_request) {
    EXPECT_THAT(after(bench.a, qa, word_wqe(4)), ElementsAre(WcStatus::kRemInvReqErr));
    EXPECT_TRUE(bench.b.has_event(AsyncEventType::kQpRequestError));
}

TEST_F(AtomicWriteTest, the_remote_right_to_write_is_needed) {
    SendWqe wqe = word_wqe(0);
    wqe.rkey = target.keys.rkey;
    wqe.remote_address = target.address(0) & ~7ull;
    EXPECT_THAT(after(bench.a, qa, wqe), ElementsAre(WcStatus::kRemAccessErr));
}

struct NullRegionTest : WindowTest {
    Sge null_sge(Host& host, std::uint32_t length) {
        const auto keys = host.engine.register_mr({.owner = Host::kOwner,
                                                   .space = {},
                                                   .pd = host.pd,
                                                   .length = UINT64_MAX,
                                                   .access = kAccessLocalWrite,
                                                   .kind = MrKind::kNull});
        return {0x1000, length, keys->lkey};
    }
};

TEST_F(NullRegionTest, what_comes_from_it_is_zero_and_what_goes_to_it_is_gone) {
    source.bytes.assign(source.bytes.size(), std::byte{7});
    target.bytes.assign(target.bytes.size(), std::byte{9});
    bench.b.post_recv(qb,
                      recv_wqe({target.sge(0, 10), null_sge(bench.b, 3000), target.sge(10, 20)}));
    const auto sent = after(
        bench.a, qa,
        send_wqe(WrOpcode::kSend, {source.sge(0, 5), null_sge(bench.a, 3010), source.sge(0, 15)}));
    EXPECT_THAT(sent, ElementsAre(WcStatus::kSuccess));
    const auto received = bench.b.poll_recv();
    ASSERT_THAT(received, SizeIs(1));
    EXPECT_EQ(received[0].byte_length, 3030u);
    const auto value = [&](std::size_t at) { return std::to_integer<int>(target.bytes[at]); };
    EXPECT_EQ(value(4), 7);
    EXPECT_EQ(value(5), 0);
    EXPECT_EQ(value(14), 0);
    EXPECT_EQ(value(15), 7);
    EXPECT_EQ(value(29), 7);
    EXPECT_EQ(value(30), 9);
}

}  // namespace
}  // namespace rdmalab::transport

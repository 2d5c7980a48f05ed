// The requester against a peer played by hand: what it sends, and what answers do to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/rnr_timer.h"
#include "transport/test_packet.h"

namespace rdmalab::transport {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::SizeIs;
using wire::PacketKind;
using wire::Position;

constexpr std::uint32_t kMtu = 256;
constexpr std::uint32_t kFirst = 100;
constexpr std::uint8_t kAck = 0x1f, kRnr = 0x20, kNak = 0x60;
constexpr Duration kTimeout = nanoseconds(4'096 << 10);  // timeout = 10

struct RequesterTest : testing::Test {
    RequesterTest() : tap(bench, false) { setup({}); }
    void setup(Connection connection) {
        connection.mtu = kMtu;
        connection.psn_a = Psn{kFirst};
        connection.timeout = 10;
        qa = bench.a.create_qp(QpType::kRc);
        qb = bench.b.create_qp(QpType::kRc);
        bench.connect(qa, qb, connection);
    }
    void write(std::uint32_t length, std::uint64_t wr_id = 1) {
        bench.a.post_send(qa, rdma_wqe(WrOpcode::kWrite, {local.sge(0, length)}, remote, 0, wr_id));
    }
    void read(std::uint32_t length, std::uint64_t wr_id = 1) {
        bench.a.post_send(qa, rdma_wqe(WrOpcode::kRead, {local.sge(0, length)}, remote, 0, wr_id));
    }
    void fetch_add(std::uint64_t wr_id = 1) {
        bench.a.post_send(qa, rdma_wqe(WrOpcode::kFetchAdd, {local.sge(0, 8)}, remote, 0, wr_id));
    }
    // What the requester sends now.
    std::vector<Seen> sent() {
        bench.settle();
        return tap.take();
    }
    std::vector<std::uint32_t> sent_psns() {
        std::vector<std::uint32_t> psns;
        for (const Seen& seen : sent()) psns.push_back(seen.psn);
        return psns;
    }
    void arrive(const Packet& packet) { bench.inject(bench.a, packet.frame()); }
    void arrive_ack(std::uint32_t psn, std::uint8_t syndrome = kAck) {
        Packet packet(bench, bench.a, qa, wire::Service::kRc, PacketKind::kAck);
        arrive(packet.psn(psn).aeth(syndrome));
    }
    void arrive_response(std::uint32_t psn, Position position, std::uint32_t length) {
        Packet packet(bench, bench.a, qa, wire::Service::kRc, PacketKind::kReadResponse, position);
        packet.psn(psn);
        if (position != Position::kMiddle) packet.aeth(kAck);
        arrive(packet.payload(remote, 0, length));
    }
    std::vector<std::uint64_t> done() {
        std::vector<std::uint64_t> ids;
        for (const Completion& completion : bench.a.poll_send()) {
            EXPECT_EQ(completion.status, WcStatus::kSuccess);
            ids.push_back(completion.wr_id);
        }
        return ids;
    }
    std::vector<WcStatus> statuses() {
        std::vector<WcStatus> all;
        for (const Completion& completion : bench.a.poll_send()) all.push_back(completion.status);
        return all;
    }

    Bench bench;
    Wiretap tap;
    Qpn qa, qb;
    Host::Region& local = bench.a.region(1 << 20);
    Host::Region& remote = bench.b.region(1 << 20);
};

TEST_F(RequesterTest, a_message_is_cut_into_packets_that_ask_for_an_ack_at_the_end) {
    write(3 * kMtu);
    const auto frames = sent();
    ASSERT_THAT(frames, SizeIs(3));
    EXPECT_EQ(frames[0].name, "RC RDMA WRITE First");
    EXPECT_EQ(frames[1].name, "RC RDMA WRITE Middle");
    EXPECT_EQ(frames[2].name, "RC RDMA WRITE Last");
    EXPECT_FALSE(frames[0].asks_ack || frames[1].asks_ack);
    EXPECT_TRUE(frames[2].asks_ack);
    EXPECT_EQ(frames[2].psn, kFirst + 2);
    EXPECT_EQ(frames[2].destination, qb);
}

TEST_F(RequesterTest, a_long_message_asks_for_an_ack_every_64_packets) {
    write(200 * kMtu);
    std::vector<std::uint32_t> asking;
    for (const Seen& seen : sent())
        if (seen.asks_ack) asking.push_back(seen.psn - kFirst);
    EXPECT_THAT(asking, ElementsAre(63, 127, 191, 199));
}

TEST_F(RequesterTest, the_window_bounds_what_is_unacknowledged) {
    write(2000 * kMtu);
    EXPECT_THAT(sent(), SizeIs(1024));
    arrive_ack(kFirst + 99);
    EXPECT_THAT(sent(), SizeIs(100));
}

//= IBA 9.7.5.1.1 test
TEST_F(RequesterTest, one_ack_completes_everything_before_it_in_order) {
    for (std::uint64_t id = 1; id <= 4; ++id) write(10, id);
    sent();
    arrive_ack(kFirst + 2);
    EXPECT_THAT(done(), ElementsAre(1, 2, 3));
    arrive_ack(kFirst + 2);
    EXPECT_THAT(done(), IsEmpty());
    arrive_ack(kFirst + 3);
    EXPECT_THAT(done(), ElementsAre(4));
}

//= IBA 9.7.5.1.1 test
TEST_F(RequesterTest, an_ack_for_what_was_never_sent_is_a_ghost) {
    write(10);
    sent();
    arrive_ack(kFirst + 1);
    arrive_ack(kFirst - 1);
    arrive_ack(kFirst + 0x70'0000);
    EXPECT_THAT(done(), IsEmpty());
    arrive_ack(kFirst);
    EXPECT_THAT(done(), ElementsAre(1));
}

TEST_F(RequesterTest, unsignaled_work_completes_silently) {
    SendWqe wqe = rdma_wqe(WrOpcode::kWrite, {local.sge(0, 8)}, remote, 0, 1);
    wqe.signaled = false;
    bench.a.post_send(qa, wqe);
    write(8, 2);
    sent();
    arrive_ack(kFirst + 1);
    EXPECT_THAT(done(), ElementsAre(2));
}

//= IBA 9.7.5.2.8 test
TEST_F(RequesterTest, a_sequence_nak_goes_back_to_the_packet_that_it_names) {
    write(2 * kMtu, 1);
    write(3 * kMtu, 2);
    sent();
    arrive_ack(kFirst + 3, kNak);
    EXPECT_THAT(done(), ElementsAre(1));
    EXPECT_EQ(bench.a.engine.counters().packet_seq_err, 1u);
    EXPECT_EQ(bench.a.engine.counters().retransmitted_frames, 2u);
    const auto& seen = tap.seen();
    ASSERT_THAT(seen, SizeIs(2));
    EXPECT_EQ(seen[0].psn, kFirst + 3);
    EXPECT_EQ(seen[0].name, "RC RDMA WRITE Middle");
    EXPECT_EQ(seen[1].psn, kFirst + 4);
}

TEST_F(RequesterTest, an_ack_that_overtakes_the_retransmission_ends_it) {
    write(600 * kMtu, 1);
    sent();
    bench.a.engine.handle_timeout(bench.now + kTimeout);
    wire::Frame again;
    ASSERT_TRUE(bench.a.engine.poll_frame(bench.now + kTimeout, again));
    EXPECT_EQ(look_at(again, bench.now).psn, kFirst);
    arrive_ack(kFirst + 399);
    EXPECT_THAT(sent_psns().size(), 200);
    arrive_ack(kFirst + 599);
    EXPECT_THAT(done(), ElementsAre(1));
    EXPECT_THAT(sent(), IsEmpty());
    write(10, 2);
    EXPECT_THAT(sent_psns(), ElementsAre(kFirst + 600));
}

TEST_F(RequesterTest, a_nak_for_an_error_ends_the_qp_with_its_status) {
    const std::pair<std::uint8_t, WcStatus> cases[] = {
        {1, WcStatus::kRemInvReqErr}, {2, WcStatus::kRemAccessErr}, {3, WcStatus::kRemOpErr}};
    for (const auto& [code, status] : cases) {
        setup({});
        for (std::uint64_t id = 1; id <= 3; ++id) write(10, id);
        sent();
        arrive_ack(kFirst + 1, static_cast<std::uint8_t>(kNak | code));
        EXPECT_THAT(statuses(), ElementsAre(WcStatus::kSuccess, status, WcStatus::kWrFlushErr));
        EXPECT_EQ(bench.a.state(qa), QpState::kErr);
        // Work that is posted later is flushed too.
        write(10);
        bench.settle();
        EXPECT_THAT(statuses(), ElementsAre(WcStatus::kWrFlushErr));
    }
}

//= IBA 9.7.6.1.3 test
TEST_F(RequesterTest, silence_is_answered_by_retries_and_then_by_an_error) {
    Connection connection;
    connection.retry_count = 3;
    setup(connection);
    const Instant start = bench.now;
    write(10, 1);
    write(10, 2);
    bench.run(kTimeout * 3);
    EXPECT_THAT(statuses(), IsEmpty());
    EXPECT_THAT(sent_psns(), ElementsAre(kFirst, kFirst + 1, kFirst, kFirst + 1, kFirst, kFirst + 1,
                                         kFirst, kFirst + 1));
    bench.run(kTimeout * 2);
    EXPECT_EQ(bench.now - start, kTimeout * 4);
    EXPECT_THAT(statuses(), ElementsAre(WcStatus::kRetryExcErr, WcStatus::kWrFlushErr));
    EXPECT_EQ(bench.a.engine.counters().local_ack_timeout_err, 4u);
}

TEST_F(RequesterTest, progress_gives_the_retries_back) {
    Connection connection;
    connection.retry_count = 1;
    setup(connection);
    write(10, 1);
    write(10, 2);
    write(10, 3);
    for (std::uint32_t i = 0; i < 3; ++i) {
        bench.run(kTimeout);
        arrive_ack(kFirst + i);
    }
    EXPECT_THAT(done(), ElementsAre(1, 2, 3));
}

TEST_F(RequesterTest, without_a_timeout_it_waits_for_ever) {
    Connection connection;
    connection.mtu = kMtu;
    connection.timeout = 0;
    qa = bench.a.create_qp(QpType::kRc);
    bench.connect(qa, bench.b.create_qp(QpType::kRc), connection);
    write(10);
    bench.run(seconds(1000));
    EXPECT_THAT(statuses(), IsEmpty());
    EXPECT_THAT(tap.seen(), SizeIs(1));
}

// Each code of the table: the requester is silent for exactly that time.
//= IBA 9.7.5.2.8 test
TEST_F(RequesterTest, an_rnr_nak_stops_it_for_the_time_of_its_code) {
    for (std::uint8_t code = 0; code < 32; ++code) {
        SCOPED_TRACE(int{code});
        setup({});
        write(10);
        sent();
        const Instant start = bench.now;
        arrive_ack(kFirst, static_cast<std::uint8_t>(kRnr | code));
        EXPECT_THAT(tap.take(), IsEmpty());
        bench.run(microseconds(kRnrTimerMicroseconds[code]));
        const auto again = tap.take();
        ASSERT_THAT(again, SizeIs(1));
        EXPECT_EQ(again[0].psn, kFirst);
        EXPECT_EQ(again[0].at - start, microseconds(kRnrTimerMicroseconds[code]));
        ASSERT_EQ(bench.a.engine.destroy_qp(Host::kOwner, qa), 0);
    }
}

//= IBA 9.7.5.2.8 test
TEST_F(RequesterTest, the_rnr_timer_table_is_that_of_the_standard) {
    constexpr std::int64_t kHundredthsOfMs[32] = {
        65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
        48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
        2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
    for (std::uint8_t code = 0; code < 32; ++code)
        EXPECT_EQ(rnr_timer(code), microseconds(kHundredthsOfMs[code] * 10));
}

//= IBA 9.7.5.2.8 test
TEST_F(RequesterTest, rnr_retries_run_out) {
    Connection connection;
    connection.rnr_retry = 2;
    setup(connection);
    write(10);
    for (int i = 0; i < 2; ++i) {
        sent();
        arrive_ack(kFirst, kRnr | 1);
        bench.run(microseconds(10));
        EXPECT_THAT(statuses(), IsEmpty());
    }
    arrive_ack(kFirst, kRnr | 1);
    EXPECT_THAT(statuses(), ElementsAre(WcStatus::kRnrRetryExcErr));
}

TEST_F(RequesterTest, rnr_retry_seven_is_for_ever) {
    write(10);
    for (int i = 0; i < 50; ++i) {
        sent();
        arrive_ack(kFirst, kRnr | 1);
        bench.run(microseconds(10));
    }
    EXPECT_THAT(statuses(), IsEmpty());
}

TEST_F(RequesterTest, no_more_reads_are_out_than_the_peer_has_resources) {
    Connection connection;
    connection.reads = 2;
    setup(connection);
    read(10, 1);
    read(10, 2);
    fetch_add(3);
    write(10, 4);
    EXPECT_THAT(sent_psns(), ElementsAre(kFirst, kFirst + 1));
    arrive_response(kFirst, Position::kOnly, 10);
    EXPECT_THAT(sent_psns(), ElementsAre(kFirst + 2, kFirst + 3));
}

//= IBA 10.8.3.3 test
TEST_F(RequesterTest, a_fence_waits_for_the_reads_before_it) {
    read(10, 1);
    SendWqe fenced = rdma_wqe(WrOpcode::kWrite, {local.sge(0, 8)}, remote, 0, 2);
    fenced.fence = true;
    bench.a.post_send(qa, fenced);
    EXPECT_THAT(sent_psns(), ElementsAre(kFirst));
    arrive_response(kFirst, Position::kOnly, 10);
    EXPECT_THAT(sent_psns(), ElementsAre(kFirst + 1));
}

TEST_F(RequesterTest, a_read_takes_the_packet_numbers_of_its_response) {
    read(3 * kMtu, 1);
    write(10, 2);
    EXPECT_THAT(sent_psns(), ElementsAre(kFirst, kFirst + 3));
    arrive_response(kFirst, Position::kFirst, kMtu);
    arrive_response(kFirst + 1, Position::kMiddle, kMtu);
    arrive_response(kFirst + 2, Position::kLast, kMtu);
    arrive_ack(kFirst + 3);
    EXPECT_THAT(done(), ElementsAre(1, 2));
}

//= IBA 9.7.5.1.1 test
TEST_F(RequesterTest, a_missing_response_is_an_implied_nak_for_the_rest_of_the_read) {
    read(4 * kMtu, 1);
    sent();
    arrive_response(kFirst, Position::kFirst, kMtu);
    // Expect: the response to kFirst + 1 is missing and asked for, once.
    arrive_response(kFirst + 2, Position::kMiddle, kMtu);
    arrive_response(kFirst + 3, Position::kLast, kMtu);
    const auto again = tap.take();
    ASSERT_THAT(again, SizeIs(1));
    EXPECT_EQ(again[0].psn, kFirst + 1);
    EXPECT_EQ(again[0].read_length, 3 * kMtu);
    EXPECT_EQ(bench.a.engine.counters().implied_nak_seq_err, 1u);
}

//= IBA 9.7.5.1.1 test
TEST_F(RequesterTest, an_ack_behind_an_unanswered_read_is_an_implied_nak) {
    read(10, 1);
    write(10, 2);
    sent();
    arrive_ack(kFirst + 1);
    EXPECT_THAT(done(), IsEmpty());
    EXPECT_THAT(sent_psns(), ElementsAre(kFirst, kFirst + 1));
}

//= IBA 9.7.5.1.4 test
TEST_F(RequesterTest, a_response_of_the_wrong_length_is_a_bad_response) {
    read(10);
    sent();
    arrive_response(kFirst, Position::kOnly, 9);
    EXPECT_THAT(statuses(), ElementsAre(WcStatus::kBadRespErr));
}

TEST_F(RequesterTest, a_response_of_the_wrong_kind_is_a_bad_response) {
    fetch_add();
    sent();
    Packet packet(bench, bench.a, qa, wire::Service::kRc, PacketKind::kAtomicAck);
    arrive(packet.psn(kFirst).aeth(kAck));
    EXPECT_THAT(done(), ElementsAre(1));
    read(10);
    sent();
    Packet wrong(bench, bench.a, qa, wire::Service::kRc, PacketKind::kAtomicAck);
    arrive(wrong.psn(kFirst + 1).aeth(kAck));
    EXPECT_THAT(statuses(), ElementsAre(WcStatus::kBadRespErr));
}

// Errors that the requester finds in its own WQEs.
struct LocalError {
    const char* what;
    std::function<SendWqe(RequesterTest&)> make;
    WcStatus expected;
};

//= IBA 10.7.2.2 test
TEST_F(RequesterTest, its_own_errors_are_reported_in_their_turn) {
    auto& read_only = bench.a.region(100, 0);
    const LocalError cases[] = {
        {"wrong lkey",
         [](RequesterTest& t) {
             Sge sge = t.local.sge(0, 10);
             sge.lkey.value ^= 1;
             return rdma_wqe(WrOpcode::kWrite, {sge}, t.remote);
         },
         WcStatus::kLocProtErr},
        {"beyond the region",
         [](RequesterTest& t) {
             return rdma_wqe(WrOpcode::kWrite, {t.local.sge((1 << 20) - 5, 10)}, t.remote);
         },
         WcStatus::kLocProtErr},
        {"read into memory that may not be written",
         [&](RequesterTest& t) {
             return rdma_wqe(WrOpcode::kRead, {read_only.sge(0, 10)}, t.remote);
         },
         WcStatus::kLocProtErr},
        {"atomic of other than eight bytes",
         [](RequesterTest& t) {
             return rdma_wqe(WrOpcode::kFetchAdd, {t.local.sge(0, 9)}, t.remote);
         },
         WcStatus::kLocLenErr},
        {"malformed",
         [](RequesterTest&) {
             SendWqe wqe;
             wqe.malformed = true;
             return wqe;
         },
         WcStatus::kLocQpOpErr},
        {"unknown window to bind", [](RequesterTest&) { return send_wqe(WrOpcode::kBindMw, {}); },
         WcStatus::kMwBindErr},
        {"unknown rkey to invalidate",
         [](RequesterTest&) {
             SendWqe wqe = send_wqe(WrOpcode::kLocalInvalidate, {});
             wqe.immediate = 0x1234'5601;
             return wqe;
         },
         WcStatus::kMwBindErr},
    };
    for (const LocalError& wrong : cases) {
        SCOPED_TRACE(wrong.what);
        setup({});
        write(10, 1);
        bench.a.post_send(qa, wrong.make(*this));
        write(10, 3);
        EXPECT_THAT(sent_psns(), ElementsAre(kFirst));
        // Expect: the error waits until the work before it is done.
        EXPECT_THAT(statuses(), IsEmpty());
        arrive_ack(kFirst);
        EXPECT_THAT(statuses(),
                    ElementsAre(WcStatus::kSuccess, wrong.expected, WcStatus::kWrFlushErr));
        EXPECT_EQ(bench.a.state(qa), QpState::kErr);
    }
}

TEST_F(RequesterTest, a_region_that_goes_away_within_a_message_is_a_protection_error) {
    write(2000 * kMtu);
    sent();
    ASSERT_EQ(bench.a.engine.deregister_mr(Host::kOwner, local.keys.lkey), 0);
    arrive_ack(kFirst + 1023);
    EXPECT_THAT(statuses(), ElementsAre(WcStatus::kLocProtErr));
}

TEST_F(RequesterTest, reads_without_resources_are_refused) {
    Connection connection;
    connection.reads = 0;
    setup(connection);
    read(10);
    bench.settle();
    EXPECT_THAT(statuses(), ElementsAre(WcStatus::kLocQpOpErr));
}

TEST_F(RequesterTest, inline_data_is_sent_from_where_it_lies) {
    const std::vector<std::byte> bytes(100, std::byte{7});
    SendWqe wqe = rdma_wqe(WrOpcode::kWrite, {}, remote);
    wqe.is_inline = true;
    wqe.inline_data = bytes;
    bench.fate = nullptr;
    bench.a.post_send(qa, wqe);
    bench.settle();
    EXPECT_THAT(done(), ElementsAre(1));
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), remote.bytes.begin()));
}

TEST_F(RequesterTest, small_data_that_rides_along_is_checked_like_its_sges) {
    const std::vector<std::byte> bytes(100, std::byte{7});
    SendWqe wqe = rdma_wqe(WrOpcode::kWrite, {local.sge(0, 100)}, remote);
    wqe.inline_data = bytes;
    wqe.sges[0].lkey.value ^= 1;
    bench.a.post_send(qa, wqe);
    bench.settle();
    EXPECT_THAT(statuses(), ElementsAre(WcStatus::kLocProtErr));
}

// A read of 2 GiB at the smallest MTU would take half of all packet numbers.
TEST_F(RequesterTest, a_huge_read_is_asked_for_in_pieces) {
    SendWqe wqe = rdma_wqe(WrOpcode::kRead, {local.sge(0, 1 << 20)}, remote);
    for (int i = 0; i < 30; ++i) wqe.sges[wqe.sge_count++] = local.sge(0, 1 << 20);
    // 31 SGEs of 66 MiB each, all of them the same memory.
    const auto keys = bench.a.engine.register_mr(
        {Host::kOwner, Host::kSpace, bench.a.pd, 1 << 20, 66u << 20, 1 << 20, Host::kEverything});
    for (auto& sge : wqe.sges) sge = {1 << 20, 66u << 20, keys->lkey};
    wqe.sge_count = 31;
    bench.a.post_send(qa, wqe);
    const auto requests = sent();
    ASSERT_THAT(requests, SizeIs(1));
    EXPECT_EQ(requests[0].read_length, (1u << 21) * kMtu);
}

TEST_F(RequesterTest, a_solicited_message_says_so_in_its_last_packet_only) {
    SendWqe wqe = send_wqe(WrOpcode::kSend, {local.sge(0, 2 * kMtu)});
    wqe.solicited = true;
    bench.a.post_send(qa, wqe);
    const auto frames = sent();
    ASSERT_THAT(frames, SizeIs(2));
    EXPECT_FALSE(frames[0].is_solicited);
    EXPECT_TRUE(frames[1].is_solicited);
}

}  // namespace
}  // namespace rdmalab::transport

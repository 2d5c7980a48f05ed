// A stream socket whose peer is played by hand.
#include <arpa/inet.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "verbs/rdmacm/rsockets/stream_protocol.h"
#include "verbs/rdmacm/testing.h"

namespace rdmalab::rdmacm::testing {
namespace {

constexpr std::uint32_t kSlots = 16, kRing = 4096;
constexpr std::uint64_t kPeerRing = 0x7000'0000;

class StreamTest : public RdmaCmTest {
protected:
    void SetUp() override {
        RdmaCmTest::SetUp();
        socket_ = rsocket(AF_INET, SOCK_STREAM, 0);
        ASSERT_GE(socket_, 0);
        set(SOL_RDMA, RDMA_RQSIZE, kSlots);
        set(SOL_RDMA, RDMA_IOMAPSIZE, 2);
        set(SOL_SOCKET, SO_RCVBUF, kRing);
        rfcntl(socket_, F_SETFL, O_NONBLOCK);
    }
    void TearDown() override {
        if (is_connected_) take(stream::Kind::kClose);  // so that closing need not wait
        if (socket_ >= 0) {
            EXPECT_EQ(rclose(socket_), 0);
        }
        RdmaCmTest::TearDown();
    }

    void set(int level, int name, int value) {
        ASSERT_EQ(rsetsockopt(socket_, level, name, &value, sizeof value), 0);
    }
    int error_of_socket() {
        int error = -1;
        socklen_t length = sizeof error;
        EXPECT_EQ(rgetsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &length), 0);
        return error;
    }
    short ready(short events) {
        pollfd entry{.fd = socket_, .events = events, .revents = 0};
        EXPECT_GE(rpoll(&entry, 1, 0), 0);
        return entry.revents;
    }

    // Until the REQ has been sent.
    void start() {
        sockaddr_storage peer = address("10.0.0.2", 7471);
        ASSERT_EQ(rconnect(socket_, as_sockaddr(peer), sizeof(sockaddr_in)), -1);
        ASSERT_EQ(errno, EINPROGRESS);
        while (cm_.requests(abi::CmOp::kConnect) == 0) ready(POLLOUT);
        auto request = cm_.last<abi::CmConnectRequest>(abi::CmOp::kConnect);
        id_ = request.id;
        qpn_ = request.conn.qp_num;
        memcpy(static_cast<void*>(&hello_), request.private_data.bytes, sizeof hello_);
    }
    void connect(std::uint8_t version = stream::kVersion) {
        start();
        stream::Hello peer;
        peer.version = version;
        peer.slots = std::uint16_t{kSlots};
        peer.ring_length = kRing;
        peer.ring_address = kPeerRing;
        peer.ring_key = 0x99u;
        peer.iomap_count = 1u;
        peer.iomap_address = 0x8000'0000u;
        cm_.raise(id_, abi::CmEventType::kConnectResponse, 0, [&](abi::CmEventRecord& r) {
            r.private_data.length = abi::kCmAcceptData;
            memcpy(r.private_data.bytes, &peer, sizeof peer);
        });
        ready(POLLOUT);
        is_connected_ = version == stream::kVersion;
    }

    std::uint32_t cq() { return card_.context().cqs.begin()->first; }
    std::uint32_t sent() { return card_.send_producer(qpn_); }
    abi::SendEntry& entry(std::uint32_t index) { return card_.send_entry(qpn_, index); }
    std::uint32_t immediate_of(std::uint32_t index) { return ntohl(entry(index).immediate); }

    // The peer has acknowledged everything.
    void complete_sends() {
        for (; completed_ != sent(); ++completed_) {
            card_.push(cq(), {.wr_id = entry(completed_).wr_id,
                              .qpn = qpn_,
                              .ring_index = completed_,
                              .opcode = abi::CqeOpcode::kWrite});
        }
    }
    // A message of the peer.
    void take(stream::Kind kind, std::uint32_t value = 0) {
        card_.push(cq(), {.wr_id = ~0ull,
                          .qpn = qpn_,
                          .ring_index = taken_ % kSlots,
                          .immediate = htonl(stream::immediate(kind, value)),
                          .flags = abi::kCqeRecv | abi::kCqeImmediate,
                          .opcode = abi::CqeOpcode::kRecvWriteImm});
        ++taken_;
    }
    void take_data(const std::string& data) {
        auto* ring = reinterpret_cast<char*>(std::uint64_t{hello_.ring_address});
        for (char c : data) ring[written_++ % kRing] = c;
        take(stream::Kind::kData, static_cast<std::uint32_t>(data.size()));
    }
    void grant(std::uint32_t slots, std::uint32_t bytes) {
        take(stream::Kind::kGrant, bytes / stream::kGrantUnit << stream::kGrantSlotBits | slots);
    }
    ssize_t send(std::size_t length) {
        std::string data(length, 'x');
        return rsend(socket_, data.data(), data.size(), 0);
    }
    std::string receive(std::size_t length) {
        std::string out(length, '\0');
        ssize_t n = rrecv(socket_, out.data(), length, 0);
        out.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
        return out;
    }

    int socket_ = -1;
    bool is_connected_ = false;
    std::uint32_t id_ = 0, qpn_ = 0, completed_ = 0, taken_ = 0;
    std::uint64_t written_ = 0;
    stream::Hello hello_;
};

TEST_F(StreamTest, connecting_tells_the_peer_where_to_write) {
    start();
    EXPECT_EQ(hello_.version, stream::kVersion);
    EXPECT_EQ(hello_.slots, kSlots);
    EXPECT_EQ(hello_.ring_length, kRing);
    EXPECT_NE(hello_.ring_address, 0u);
    EXPECT_EQ(hello_.iomap_count, 2u);
    EXPECT_EQ(ready(POLLIN | POLLOUT), 0);
    // The receive WRs are there before the peer can write.
    EXPECT_EQ(card_.recv_producer(qpn_), kSlots);
}

TEST_F(StreamTest, a_connected_socket_is_writable_and_knows_its_peer) {
    connect();
    EXPECT_EQ(ready(POLLIN | POLLOUT), POLLOUT);
    EXPECT_EQ(error_of_socket(), 0);
    sockaddr_in peer{};
    socklen_t length = sizeof peer;
    ASSERT_EQ(rgetpeername(socket_, reinterpret_cast<sockaddr*>(&peer), &length), 0);
    EXPECT_EQ(peer.sin_port, htons(7471));
}

TEST_F(StreamTest, a_refused_connection_is_an_error_of_the_socket) {
    start();
    cm_.raise(id_, abi::CmEventType::kRejected, 28);
    EXPECT_NE(ready(POLLOUT) & POLLERR, 0);
    EXPECT_EQ(error_of_socket(), ECONNREFUSED);
    EXPECT_EQ(error_of_socket(), 0);
}

TEST_F(StreamTest, a_peer_of_another_version_is_not_spoken_to) {
    connect(stream::kVersion + 1);
    EXPECT_NE(ready(POLLOUT) & POLLERR, 0);
    EXPECT_EQ(error_of_socket(), EPROTO);
}

TEST_F(StreamTest, data_are_written_one_after_the_other_into_the_ring_of_the_peer) {
    connect();
    ASSERT_EQ(send(100), 100);
    ASSERT_EQ(send(50), 50);
    ASSERT_EQ(sent(), 2u);
    EXPECT_EQ(static_cast<abi::SendOpcode>(entry(0).opcode), abi::SendOpcode::kWriteImm);
    EXPECT_EQ(entry(0).remote_address, kPeerRing);
    EXPECT_EQ(entry(0).rkey, 0x99u);
    EXPECT_EQ(immediate_of(0), stream::immediate(stream::Kind::kData, 100));
    EXPECT_EQ(entry(1).remote_address, kPeerRing + 100);
    EXPECT_EQ(immediate_of(1), stream::immediate(stream::Kind::kData, 50));
}

TEST_F(StreamTest, no_message_crosses_the_end_of_the_ring_and_none_overruns_it) {
    connect();
    ASSERT_EQ(send(kRing - 100), kRing - 100);
    EXPECT_EQ(send(300), 100);  // up to the end; the rest does not fit
    EXPECT_EQ(send(200), -1);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(ready(POLLOUT), 0);
    complete_sends();
    grant(2, 2048);
    EXPECT_EQ(ready(POLLOUT), POLLOUT);
    EXPECT_EQ(send(3000), 2048);
    EXPECT_EQ(entry(2).remote_address, kPeerRing);
}

TEST_F(StreamTest, data_leave_some_slots_for_grants) {
    connect();
    for (std::uint32_t i = 0; i < kSlots - stream::kSlotsReserved; ++i) ASSERT_EQ(send(1), 1);
    EXPECT_EQ(send(1), -1);
    EXPECT_EQ(errno, EAGAIN);
    complete_sends();
    grant(1, 0);
    EXPECT_EQ(send(1), 1);
    EXPECT_EQ(send(1), -1);
}

TEST_F(StreamTest, what_arrives_is_read_in_order_and_granted_back_when_half_is_read) {
    connect();
    EXPECT_EQ(receive(10), "");
    EXPECT_EQ(errno, EAGAIN);
    take_data("hello ");
    take_data("world");
    EXPECT_EQ(ready(POLLIN), POLLIN);
    EXPECT_EQ(receive(8), "hello wo");
    EXPECT_EQ(receive(8), "rld");
    EXPECT_EQ(sent(), 0u);  // too little for a grant
    take_data(std::string(kRing / 2, 'z'));
    EXPECT_EQ(receive(kRing), std::string(kRing / 2, 'z'));
    ASSERT_EQ(sent(), 1u);
    EXPECT_EQ(stream::kind_of(immediate_of(0)), stream::Kind::kGrant);
    std::uint32_t value = stream::value_of(immediate_of(0));
    EXPECT_EQ(value & stream::kSlotsMax, 3u);
    EXPECT_EQ(value >> stream::kGrantSlotBits, kRing / 2 / stream::kGrantUnit);
}

TEST_F(StreamTest, slots_are_granted_back_before_the_program_reads) {
    connect();
    for (std::uint32_t i = 0; i < kSlots / 2; ++i) take_data("x");
    EXPECT_EQ(ready(POLLIN), POLLIN);
    ASSERT_EQ(sent(), 1u);
    EXPECT_EQ(stream::value_of(immediate_of(0)), kSlots / 2);
    EXPECT_EQ(card_.recv_producer(qpn_), kSlots + kSlots / 2);  // posted again
}

TEST_F(StreamTest, the_ring_of_the_receiver_wraps) {
    connect();
    std::string first(3000, 'a'), second;
    for (int i = 0; i < 2000; ++i) second += static_cast<char>('a' + i % 26);
    take_data(first);
    EXPECT_EQ(receive(3000), first);
    take_data(second.substr(0, kRing - 3000));
    take_data(second.substr(kRing - 3000));
    EXPECT_EQ(receive(4000), second);
}

TEST_F(StreamTest, peeking_leaves_the_data) {
    connect();
    take_data("abc");
    char data[4] = {};
    EXPECT_EQ(rrecv(socket_, data, 3, MSG_PEEK), 3);
    EXPECT_EQ(rrecv(socket_, data, 3, 0), 3);
    EXPECT_STREQ(data, "abc");
    EXPECT_EQ(rrecv(socket_, data, 3, 0), -1);
}

TEST_F(StreamTest, vectors_are_gathered_and_scattered) {
    connect();
    char one[] = "ab", two[] = "cde";
    iovec out[2] = {{one, 2}, {two, 3}};
    EXPECT_EQ(rwritev(socket_, out, 2), 5);
    EXPECT_EQ(sent(), 2u);
    take_data("vwxyz");
    char left[3] = {}, right[3] = {};
    iovec in[2] = {{left, 2}, {right, 2}};
    EXPECT_EQ(rreadv(socket_, in, 2), 4);
    EXPECT_STREQ(left, "vw");
    EXPECT_STREQ(right, "xy");
}

TEST_F(StreamTest, after_the_peer_has_shut_down_the_rest_is_read_and_then_the_end) {
    connect();
    take_data("last");
    take(stream::Kind::kShutdown);
    EXPECT_EQ(receive(10), "last");
    char byte;
    EXPECT_EQ(rrecv(socket_, &byte, 1, 0), 0);
    EXPECT_EQ(send(5), 5);  // the other way still works
}

TEST_F(StreamTest, after_the_peer_has_closed_sending_is_epipe) {
    connect();
    take(stream::Kind::kClose);
    EXPECT_EQ(ready(POLLIN), POLLIN);
    EXPECT_EQ(send(1), -1);
    EXPECT_EQ(errno, EPIPE);
    char byte;
    EXPECT_EQ(rrecv(socket_, &byte, 1, 0), 0);
}

TEST_F(StreamTest, data_is_read_before_the_end_is_announced) {
    connect();
    take_data("rest");
    take(stream::Kind::kClose);
    cm_.raise(id_, abi::CmEventType::kDisconnected);
    for (int look = 0; look < 3; ++look) EXPECT_EQ(ready(POLLIN), POLLIN) << look;
    EXPECT_EQ(receive(10), "rest");
    EXPECT_EQ(ready(POLLIN), POLLIN | POLLHUP);
    char byte;
    EXPECT_EQ(rrecv(socket_, &byte, 1, 0), 0);
    is_connected_ = false;
}

TEST_F(StreamTest, a_connection_that_ends_without_farewell_was_reset) {
    connect();
    take_data("rest");
    cm_.raise(id_, abi::CmEventType::kDisconnected);
    EXPECT_EQ(receive(10), "rest");
    ready(POLLIN);
    char byte;
    EXPECT_EQ(rrecv(socket_, &byte, 1, 0), -1);
    EXPECT_EQ(errno, ECONNRESET);
    is_connected_ = false;
}

TEST_F(StreamTest, a_failed_write_resets_the_connection) {
    connect();
    ASSERT_EQ(send(10), 10);
    card_.push(cq(), {.wr_id = entry(0).wr_id, .qpn = qpn_, .status = IBV_WC_RETRY_EXC_ERR});
    EXPECT_EQ(ready(POLLOUT) & (POLLERR | POLLHUP), POLLERR | POLLHUP);
    EXPECT_EQ(send(10), -1);
    EXPECT_EQ(errno, ECONNRESET);
    is_connected_ = false;
}

TEST_F(StreamTest, shutting_down_tells_the_peer_once) {
    connect();
    rfcntl(socket_, F_SETFL, 0);
    // rshutdown waits for the acknowledgement, which is there already for a socket that closed.
    take(stream::Kind::kClose);
    ready(POLLIN);
    EXPECT_EQ(rshutdown(socket_, SHUT_WR), 0);
    EXPECT_EQ(sent(), 0u);
    EXPECT_EQ(send(1), -1);
    EXPECT_EQ(errno, EPIPE);
}

TEST_F(StreamTest, a_mapped_buffer_is_announced_in_the_table_of_the_peer) {
    connect();
    char buffer[256] = {};
    ASSERT_EQ(riomap(socket_, buffer, sizeof buffer, PROT_WRITE, 0, -1), 0);
    ASSERT_EQ(sent(), 1u);
    EXPECT_EQ(static_cast<abi::SendOpcode>(entry(0).opcode), abi::SendOpcode::kWrite);
    EXPECT_EQ(entry(0).remote_address, 0x8000'0000u);
    EXPECT_EQ(riomap(socket_, buffer, 16, PROT_WRITE, 0, 0), -1);
    EXPECT_EQ(errno, EINVAL);  // the offset is taken
    complete_sends();
    EXPECT_EQ(riomap(socket_, buffer, 16, PROT_WRITE, 0, -1), -1);
    EXPECT_EQ(errno, ENOBUFS);  // the peer has one entry
    EXPECT_EQ(riounmap(socket_, buffer, sizeof buffer), 0);
    EXPECT_EQ(sent(), 2u);
    complete_sends();
}

TEST_F(StreamTest, writing_to_a_mapping_goes_where_the_peer_has_said) {
    connect();
    EXPECT_EQ(riowrite(socket_, "abc", 3, 64, 0), static_cast<std::size_t>(-1));
    auto* table = reinterpret_cast<stream::IomapEntry*>(std::uint64_t{hello_.iomap_address});
    table[1] = {.offset = 64, .length = 100, .address = 0x9000, .key = 0x42, .reserved = 0};
    ASSERT_EQ(riowrite(socket_, "abc", 3, 70, 0), 3u);
    ASSERT_EQ(sent(), 1u);
    EXPECT_EQ(static_cast<abi::SendOpcode>(entry(0).opcode), abi::SendOpcode::kWrite);
    EXPECT_EQ(entry(0).remote_address, 0x9006u);
    EXPECT_EQ(entry(0).rkey, 0x42u);
}

TEST(Rsocket, what_is_not_offered_is_refused) {
    EXPECT_EQ(rsocket(AF_UNIX, SOCK_STREAM, 0), -1);
    EXPECT_EQ(rsocket(AF_INET, SOCK_RAW, 0), -1);
    EXPECT_EQ(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP), -1);
    EXPECT_EQ(rclose(12345), -1);
    EXPECT_EQ(errno, EBADF);
}

TEST(Rsocket, options_are_kept_and_sizes_are_clamped) {
    int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    ASSERT_GE(fd, 0);
    int value = 1, found = 0;
    socklen_t length = sizeof found;
    EXPECT_EQ(rsetsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &value, sizeof value), 0);
    EXPECT_EQ(rgetsockopt(fd, IPPROTO_TCP, 1, &found, &length), 0);
    EXPECT_EQ(found, 1);
    value = 1 << 30;
    EXPECT_EQ(rsetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, sizeof value), 0);
    EXPECT_EQ(rgetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &found, &length), 0);
    EXPECT_EQ(static_cast<std::uint32_t>(found), stream::kRingMax);
    EXPECT_EQ(rsetsockopt(fd, SOL_SOCKET, SO_BROADCAST, &value, sizeof value), -1);
    EXPECT_EQ(errno, ENOPROTOOPT);
    EXPECT_EQ(rfcntl(fd, F_GETFL), 0);
    EXPECT_EQ(rfcntl(fd, F_SETFL, O_NONBLOCK), 0);
    EXPECT_EQ(rfcntl(fd, F_GETFL), O_NONBLOCK);
    EXPECT_EQ(rclose(fd), 0);
}

TEST(Rsocket, ordinary_descriptors_can_be_polled_and_selected_too) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    pollfd entries[2] = {{.fd = ends[0], .events = POLLIN, .revents = 0},
                         {.fd = fd, .events = POLLIN, .revents = 0}};
    EXPECT_EQ(rpoll(entries, 1, 10), 0);
    ASSERT_EQ(write(ends[1], "x", 1), 1);
    EXPECT_EQ(rpoll(entries, 2, 1000), 2);
    EXPECT_EQ(entries[0].revents, POLLIN);
    EXPECT_EQ(entries[1].revents, POLLHUP);  // not connected
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(ends[0], &readable);
    timeval timeout{.tv_sec = 1, .tv_usec = 0};
    EXPECT_EQ(rselect(ends[0] + 1, &readable, nullptr, nullptr, &timeout), 1);
    rclose(fd);
    close(ends[0]);
    close(ends[1]);
}

}  // namespace
}  // namespace rdmalab::rdmacm::testing

// A datagram socket whose peers are played by hand.
#include "verbs/rdmacm/rsockets/datagram.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <string.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "verbs/rdmacm/testing.h"

namespace rdmalab::rdmacm::testing {
namespace {

constexpr std::uint8_t kOwn[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
constexpr std::uint8_t kPeer[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2};
constexpr std::uint32_t kPeerQpn = 0x4711;

class DatagramTest : public RdmaCmTest {
protected:
    void SetUp() override {
        RdmaCmTest::SetUp();
        socket_ = rsocket(AF_INET, SOCK_DGRAM, 0);
        ASSERT_GE(socket_, 0);
        int slots = 16;
        ASSERT_EQ(rsetsockopt(socket_, SOL_RDMA, RDMA_RQSIZE, &slots, sizeof slots), 0);
        sockaddr_storage local = address("10.0.0.1", 7471);
        ASSERT_EQ(rbind(socket_, as_sockaddr(local), sizeof(sockaddr_in)), 0);
        rfcntl(socket_, F_SETFL, O_NONBLOCK);
        listener_ = cm_.last<abi::CmListenRequest>(abi::CmOp::kListen).id;
    }
    void TearDown() override {
        EXPECT_EQ(rclose(socket_), 0);
        RdmaCmTest::TearDown();
    }
    bool is_readable() {
        pollfd entry{.fd = socket_, .events = POLLIN, .revents = 0};
        return rpoll(&entry, 1, 0) > 0;
    }
    // Somebody asks for the QP; the socket then has one.
    void ask() {
        abi::CmEventRecord record{};
        record.qp_type = IBV_QPT_UD;
        cm_.raise_request(listener_, record);
        is_readable();
        qpn_ = cm_.last<abi::CmConnectRequest>(abi::CmOp::kAccept).conn.qp_num;
    }
    void take(const std::string& data, std::uint16_t port, bool is_ours = true) {
        auto& entry = card_.recv_entry(qpn_, taken_);
        auto* sge = reinterpret_cast<abi::Sge*>(&entry + 1);
        auto* buffer = reinterpret_cast<std::byte*>(sge->address);
        ibv_grh grh{};
        grh.version_tclass_flow = htonl(6u << 28);
        memcpy(grh.sgid.raw, kPeer, sizeof kPeer);
        memcpy(grh.dgid.raw, kOwn, sizeof kOwn);
        memcpy(buffer, &grh, sizeof grh);
        DatagramHeader header;
        header.version = is_ours ? DatagramHeader::kVersion : 77;
        header.family = AF_INET;
        header.port = port;
        memcpy(header.address, kPeer, sizeof kPeer);
        memcpy(buffer + sizeof grh, &header, sizeof header);
        memcpy(buffer + sizeof grh + sizeof header, data.data(), data.size());
        auto length = static_cast<std::uint32_t>(sizeof grh + sizeof header + data.size());
        card_.push(card_.context().cqs.begin()->first, {.wr_id = entry.wr_id,
                                                        .qpn = qpn_,
                                                        .ring_index = taken_,
                                                        .byte_length = length,
                                                        .source_qpn = kPeerQpn,
                                                        .flags = abi::kCqeRecv | abi::kCqeGrh,
                                                        .opcode = abi::CqeOpcode::kRecv});
        ++taken_;
    }
    std::string receive(sockaddr_in& from) {
        char data[128];
        socklen_t length = sizeof from;
        ssize_t n =
            rrecvfrom(socket_, data, sizeof data, 0, reinterpret_cast<sockaddr*>(&from), &length);
        return n < 0 ? "" : std::string(data, static_cast<std::size_t>(n));
    }
    ssize_t send_to(const std::string& data, std::uint16_t port) {
        sockaddr_storage to = address("10.0.0.2", port);
        return rsendto(socket_, data.data(), data.size(), 0, as_sockaddr(to), sizeof(sockaddr_in));
    }

    int socket_ = -1;
    std::uint32_t listener_ = 0, qpn_ = 0, taken_ = 0;
};

TEST_F(DatagramTest, a_query_is_answered_with_the_qp_of_the_device) {
    ask();
    EXPECT_NE(qpn_, 0u);
    EXPECT_EQ(card_.recv_producer(qpn_), 16u);
    ask();  // the same again
    EXPECT_EQ(card_.requests(abi::Op::kCreateQp), 1u);
}

TEST_F(DatagramTest, a_datagram_names_its_sender_who_can_be_answered_without_a_query) {
    ask();
    EXPECT_FALSE(is_readable());
    take("ping", 5000);
    ASSERT_TRUE(is_readable());
    sockaddr_in from{};
    EXPECT_EQ(receive(from), "ping");
    EXPECT_EQ(from.sin_port, htons(5000));
    EXPECT_EQ(from.sin_addr.s_addr, inet_addr("10.0.0.2"));
    EXPECT_EQ(card_.recv_producer(qpn_), 17u);
    ASSERT_EQ(send_to("pong", 5000), 4);
    EXPECT_EQ(cm_.requests(abi::CmOp::kConnect), 0u);
    auto& entry = card_.send_entry(qpn_, 0);
    EXPECT_EQ(entry.remote_qpn, kPeerQpn);
    EXPECT_EQ(entry.data_length, sizeof(DatagramHeader) + 4);
    card_.push(card_.context().cqs.begin()->first, {.wr_id = entry.wr_id, .qpn = qpn_});
}

TEST_F(DatagramTest, the_qp_behind_a_new_address_is_asked_for_once) {
    auto sent = std::async(std::launch::async, [&] { return send_to("hello", 6000); });
    while (cm_.requests(abi::CmOp::kConnect) == 0) std::this_thread::yield();
    std::uint32_t asker = cm_.last<abi::CmConnectRequest>(abi::CmOp::kConnect).id;
    cm_.raise(asker, abi::CmEventType::kEstablished, 0, [](abi::CmEventRecord& r) {
        r.ud.qp_num = kPeerQpn;
        r.ud.qkey = RDMA_UDP_QKEY;
        r.ud.ah.is_global = 1;
        r.ud.ah.port = 1;
        memcpy(r.ud.ah.dgid, kPeer, sizeof kPeer);
    });
    EXPECT_EQ(sent.get(), 5);
    EXPECT_EQ(send_to("again", 6000), 5);
    EXPECT_EQ(cm_.requests(abi::CmOp::kConnect), 1u);
    std::uint32_t qpn = card_.context().qps.begin()->first;
    EXPECT_EQ(card_.send_producer(qpn), 2u);
    for (std::uint32_t i = 0; i < 2; ++i) {
        card_.push(card_.context().cqs.begin()->first,
                   {.wr_id = card_.send_entry(qpn, i).wr_id, .qpn = qpn, .ring_index = i});
    }
}

TEST_F(DatagramTest, nobody_behind_an_address_is_an_error_and_asked_for_again) {
    for (std::uint32_t attempt = 1; attempt <= 2; ++attempt) {
        auto sent = std::async(std::launch::async, [&] {
            ssize_t n = send_to("hello", 6000);
            return n < 0 ? errno : 0;
        });
        while (cm_.requests(abi::CmOp::kConnect) < attempt) std::this_thread::yield();
        std::uint32_t asker = cm_.last<abi::CmConnectRequest>(abi::CmOp::kConnect).id;
        cm_.raise(asker, abi::CmEventType::kUnreachable, 1);
        EXPECT_EQ(sent.get(), ECONNREFUSED);
    }
}

TEST_F(DatagramTest, what_is_not_of_such_a_socket_is_dropped) {
    ask();
    take("junk", 5000, false);
    EXPECT_FALSE(is_readable());
    EXPECT_EQ(card_.recv_producer(qpn_), 17u);
}

TEST_F(DatagramTest, a_datagram_must_fit_into_a_packet) {
    ask();
    take("ping", 5000);
    sockaddr_in from{};
    receive(from);
    EXPECT_EQ(send_to(std::string(5000, 'x'), 5000), -1);
    EXPECT_EQ(errno, EMSGSIZE);
}

TEST_F(DatagramTest, without_a_destination_nothing_is_sent) {
    EXPECT_EQ(rsend(socket_, "x", 1, 0), -1);
    EXPECT_EQ(errno, EDESTADDRREQ);
}

}  // namespace
}  // namespace rdmalab::rdmacm::testing

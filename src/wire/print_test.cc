#include "wire/print.h"

#include <gtest/gtest.h>

#include "wire/testing.h"

namespace rdmalab::wire {
namespace {

std::string line(std::uint8_t opcode, const char* extensions, std::size_t payload = 0) {
    Frame frame;
    start_roce(frame, make_lower_template(testing::path_of(false)), *find_opcode(opcode));
    Bth& bth = *header_at<Bth>(frame, frame.bth_offset);
    bth.destination_qp = 0x11;
    bth.psn = 5;
    const testing::Bytes bytes = testing::from_hex(extensions);
    EXPECT_EQ(bytes.size(), find_opcode(opcode)->extension_length);
    std::copy(bytes.begin(), bytes.end(), frame.header.begin() + frame.bth_offset + sizeof(Bth));
    frame.add_segment({kCardSpace, static_cast<std::uint32_t>(payload), 0});
    finish_roce(frame);
    return print(frame);
}

TEST(Print, a_write) {
    EXPECT_EQ(line(0x0a, "00007f0000001000 00000102 00000040", 64),
              "10.0.0.1 > 10.0.0.2 RC RDMA WRITE Only qp=0x11 psn=5 va=0x7f0000001000 rkey=0x102 "
              "len=64 payload 64");
}

TEST(Print, acknowledgements) {
    EXPECT_EQ(line(0x11, "1f000003"), "10.0.0.1 > 10.0.0.2 RC Acknowledge qp=0x11 psn=5 ack msn=3");
    EXPECT_EQ(line(0x11, "05000003"),
              "10.0.0.1 > 10.0.0.2 RC Acknowledge qp=0x11 psn=5 ack credits=5 msn=3");
    EXPECT_EQ(line(0x11, "2c000003"),
              "10.0.0.1 > 10.0.0.2 RC Acknowledge qp=0x11 psn=5 rnr-nak timer=12 msn=3");
    EXPECT_EQ(line(0x11, "62000003"),
              "10.0.0.1 > 10.0.0.2 RC Acknowledge qp=0x11 psn=5 nak=remote-access msn=3");
    EXPECT_EQ(line(0x11, "6f000003"),
              "10.0.0.1 > 10.0.0.2 RC Acknowledge qp=0x11 psn=5 syndrome=0x6f msn=3");
}

TEST(Print, the_other_extension_headers) {
    EXPECT_EQ(line(0x65, "80010000 00000007 deadbeef"),
              "10.0.0.1 > 10.0.0.2 UD SEND Only with Immediate qp=0x11 psn=5 qkey=0x80010000 "
              "srcqp=0x7 imm=0xdeadbeef");
    EXPECT_EQ(line(0xb3, "00000009 0000000000001000 00000102 0000000000000001 0000000000000002"),
              "10.0.0.1 > 10.0.0.2 XRC CmpSwap qp=0x11 psn=5 srq=0x9 va=0x1000 rkey=0x102 "
              "swap_or_add=0x1 compare=0x2");
    EXPECT_EQ(line(0x12, "1f000001 0000000000000007"),
              "10.0.0.1 > 10.0.0.2 RC ATOMIC Acknowledge qp=0x11 psn=5 ack msn=1 original=0x7");
    EXPECT_EQ(line(0x17, "00000102"),
              "10.0.0.1 > 10.0.0.2 RC SEND Only with Invalidate qp=0x11 psn=5 invalidate=0x102");
}

TEST(Print, flags) {
    Frame frame;
    emit_cnp(frame, make_lower_template(testing::path_of(true)), Qpn{2});
    header_at<Bth>(frame, frame.bth_offset)->ack_request = 0x80;
    header_at<Bth>(frame, frame.bth_offset)->flags = 0x80;
    set_ecn(frame, kEcnCe);
    EXPECT_EQ(print(frame),
              "fd00::1 > fd00::2 CNP qp=0x2 psn=0 ackreq solicited becn ce payload 16");
}

TEST(Print, an_opcode_that_does_not_fit_the_headers) {
    Frame frame;
    emit_cnp(frame, make_lower_template(testing::path_of(false)), Qpn{2});
    header_at<Bth>(frame, frame.bth_offset)->opcode = 0x0a;
    EXPECT_EQ(print(frame), "10.0.0.1 > 10.0.0.2 opcode=0x0a qp=0x2 psn=0 becn payload 16");
}

TEST(Print, frames_that_are_not_roce) {
    Frame frame;
    ASSERT_EQ(testing::parse(testing::from_hex("ffffffffffff 020000000001 0806 0001"), frame),
              ParseError::kNone);
    EXPECT_EQ(print(frame), "02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff type=0x0806 payload 2");
    testing::Bytes udp = testing::uc_send_only();
    udp[14 + 20 + 3] = std::byte{0xb8};
    ASSERT_EQ(testing::parse(udp, frame), ParseError::kNone);
    EXPECT_EQ(print(frame), "192.168.0.7 > 192.168.0.7 UDP 49152 > 4792 payload 36");
}

}  // namespace
}  // namespace rdmalab::wire

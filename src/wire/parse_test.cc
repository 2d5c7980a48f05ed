#include <gtest/gtest.h>

#include <set>

#include "wire/checksum.h"
#include "wire/headers.h"
#include "wire/print.h"
#include "wire/testing.h"

namespace rdmalab::wire {
namespace {

using testing::Bytes;
using testing::from_hex;
using testing::parse;

constexpr std::size_t kIp = 14;

Ipv4Header& ipv4_of(Bytes& bytes) { return *reinterpret_cast<Ipv4Header*>(bytes.data() + kIp); }
Ipv6Header& ipv6_of(Bytes& bytes) { return *reinterpret_cast<Ipv6Header*>(bytes.data() + kIp); }
UdpHeader& udp_of(Bytes& bytes, bool ipv6 = false) {
    return *reinterpret_cast<UdpHeader*>(bytes.data() + kIp + (ipv6 ? 40 : 20));
}
Bth& bth_of(Bytes& bytes, bool ipv6 = false) {
    return *reinterpret_cast<Bth*>(&udp_of(bytes, ipv6) + 1);
}
void fix_checksum(Bytes& bytes) {
    ipv4_of(bytes).checksum = 0;
    const std::size_t words = ipv4_of(bytes).version_ihl & 0xf;
    ipv4_of(bytes).checksum = static_cast<std::uint16_t>(~checksum_sum(bytes.data() + kIp, words));
}
// Sets the lengths of both layers to what the bytes are.
void fix_lengths(Bytes& bytes, bool ipv6 = false) {
    const auto l4_length = static_cast<std::uint16_t>(bytes.size() - kIp - (ipv6 ? 40 : 20));
    udp_of(bytes, ipv6).length = l4_length;
    if (ipv6) {
        ipv6_of(bytes).payload_length = l4_length;
    } else {
        ipv4_of(bytes).total_length = static_cast<std::uint16_t>(l4_length + 20);
        fix_checksum(bytes);
    }
}
Bytes made(bool ipv6, std::uint8_t opcode, std::size_t length) {
    Prng prng(5);
    Frame frame;
    const Bytes payload(length, std::byte{0x77});
    testing::make_frame(frame, ipv6, *find_opcode(opcode), payload, prng);
    return testing::written(frame, payload);
}
ParseError error_of(const Bytes& bytes) {
    Frame frame;
    return parse(bytes, frame);
}

TEST(Parse, a_cnp_of_a_real_adapter) {
    const Bytes bytes = testing::connectx_cnp();
    Frame frame;
    frame.origin = 7;  // of an earlier use
    ASSERT_EQ(parse(bytes, frame), ParseError::kNone);
    EXPECT_TRUE(is_roce(frame));
    EXPECT_EQ(source_gid(frame).to_string(), "10.0.17.1");
    EXPECT_EQ(destination_gid(frame).to_string(), "10.0.18.1");
    EXPECT_EQ(traffic_class(frame), 0xc2);
    EXPECT_EQ(hop_limit(frame), 64);
    const auto& bth = *header_at<Bth>(frame, frame.bth_offset);
    EXPECT_EQ(bth.opcode, kOpcodeCnp);
    EXPECT_EQ(bth.destination_qp, 0x118u);
    EXPECT_EQ(frame.payload_length, 16u);
    EXPECT_EQ(frame.icrc_state, IcrcState::kPresent);
    EXPECT_EQ(frame.icrc, 0x2a00'fd82u);
    EXPECT_EQ(frame.origin, 0u);
}

TEST(Parse, the_payload_is_a_reference_without_the_pad) {
    const Bytes bytes = testing::uc_send_only();
    Frame frame;
    ASSERT_EQ(parse_frame(bytes, {SpaceId{9}, 0, 1000}, frame), ParseError::kNone);
    ASSERT_EQ(frame.segment_count, 1);
    EXPECT_EQ(frame.segments[0].space, SpaceId{9});
    EXPECT_EQ(frame.segments[0].address, 1000u + 14 + 20 + 8 + 12);
    EXPECT_EQ(frame.segments[0].length, 18u);
    EXPECT_EQ(frame.header_length, 54);
}

TEST(Parse, padding_of_a_short_ethernet_frame_is_not_payload) {
    Bytes bytes = testing::uc_send_only();
    bytes.resize(bytes.size() + 7);
    Frame frame;
    ASSERT_EQ(parse(bytes, frame), ParseError::kNone);
    EXPECT_EQ(frame.payload_length, 18u);
    EXPECT_EQ(wire_length(frame), bytes.size() - 7);
}

TEST(Parse, behind_up_to_two_vlan_tags) {
    const Bytes plain = testing::connectx_cnp();
    const Bytes tags = from_hex("88a8 0064 8100 0065 8100 0066");
    for (const std::size_t count : {1u, 2u, 3u}) {
        Bytes bytes = plain;
        bytes.insert(bytes.begin() + 12, tags.begin(), tags.begin() + 4 * count);
        Frame frame;
        ASSERT_EQ(parse(bytes, frame), ParseError::kNone) << count;
        EXPECT_EQ(is_roce(frame), count <= 2) << count;
        if (count <= 2) {
            EXPECT_EQ(frame.l3_offset, 14 + 4 * count);
            EXPECT_EQ(testing::to_hex(testing::written(frame, Bytes(16))), testing::to_hex(bytes));
        }
    }
}

TEST(Parse, every_truncation_is_refused) {
    for (const bool ipv6 : {false, true}) {
        const Bytes whole = made(ipv6, 0x0b, 13);
        for (std::size_t length = 0; length < whole.size(); ++length)
            EXPECT_NE(error_of(Bytes(whole.begin(), whole.begin() + length)), ParseError::kNone)
                << length;
    }
}

TEST(Parse, every_truncation_with_fitting_lengths_is_refused_or_has_fewer_bytes) {
    for (const bool ipv6 : {false, true}) {
        const Bytes whole = made(ipv6, 0xb3, 0);
        for (std::size_t length = kIp + (ipv6 ? 48 : 28); length < whole.size(); ++length) {
            Bytes bytes(whole.begin(), whole.begin() + length);
            fix_lengths(bytes, ipv6);
            EXPECT_EQ(error_of(bytes), ParseError::kTooShort) << length;
        }
    }
}

TEST(Parse, length_fields_that_do_not_fit_are_refused) {
    Bytes bytes = made(false, 0x0a, 8);
    const std::uint16_t total = ipv4_of(bytes).total_length;
    for (const unsigned wrong : {0u, 19u, total + 1u, 65'535u}) {
        ipv4_of(bytes).total_length = static_cast<std::uint16_t>(wrong);
        fix_checksum(bytes);
        EXPECT_EQ(error_of(bytes), ParseError::kBadLength) << wrong;
    }
    ipv4_of(bytes).total_length = static_cast<std::uint16_t>(total - 4);
    fix_checksum(bytes);
    EXPECT_EQ(error_of(bytes), ParseError::kBadUdpLength);

    bytes = made(true, 0x0a, 8);
    const std::uint16_t payload = ipv6_of(bytes).payload_length;
    ipv6_of(bytes).payload_length = static_cast<std::uint16_t>(payload + 1);
    EXPECT_EQ(error_of(bytes), ParseError::kBadLength);
    ipv6_of(bytes).payload_length = static_cast<std::uint16_t>(payload - 1);
    EXPECT_EQ(error_of(bytes), ParseError::kBadUdpLength);
    ipv6_of(bytes).payload_length = 7;
    EXPECT_EQ(error_of(bytes), ParseError::kBadUdpLength);
    for (const unsigned wrong : {0u, 7u, payload - 1u, payload + 1u}) {
        bytes = made(true, 0x0a, 8);
        udp_of(bytes, true).length = static_cast<std::uint16_t>(wrong);
        EXPECT_EQ(error_of(bytes), ParseError::kBadUdpLength) << wrong;
    }
}

TEST(Parse, a_wrong_ip_version_or_checksum_is_refused) {
    Bytes bytes = made(false, 0x0a, 8);
    ipv4_of(bytes).version_ihl = 0x65;
    EXPECT_EQ(error_of(bytes), ParseError::kBadIpVersion);
    ipv4_of(bytes).version_ihl = 0x44;
    EXPECT_EQ(error_of(bytes), ParseError::kBadLength);
    bytes = made(false, 0x0a, 8);
    ipv4_of(bytes).ttl ^= 1;
    EXPECT_EQ(error_of(bytes), ParseError::kBadIpChecksum);
    bytes = made(true, 0x0a, 8);
    ipv6_of(bytes).version_class_label = 4u << 28;
    EXPECT_EQ(error_of(bytes), ParseError::kBadIpVersion);
}

TEST(Parse, roce_in_a_fragment_is_refused) {
    Bytes bytes = made(false, 0x0a, 8);
    ipv4_of(bytes).flags_fragment = 0x2000;  // more fragments
    fix_checksum(bytes);
    EXPECT_EQ(error_of(bytes), ParseError::kFragment);
}

TEST(Parse, a_later_fragment_has_no_l4_header) {
    Bytes bytes = made(false, 0x0a, 8);
    ipv4_of(bytes).flags_fragment = 0x0001;
    fix_checksum(bytes);
    Frame frame;
    ASSERT_EQ(parse(bytes, frame), ParseError::kNone);
    EXPECT_FALSE(is_roce(frame));
    EXPECT_EQ(frame.l4_offset, 0);
    EXPECT_EQ(frame.header_length, 34);
}

TEST(Parse, ip_options_are_refused_for_roce_and_kept_for_others) {
    Bytes bytes = made(false, 0x0a, 8);
    const Bytes options = from_hex("94040000");  // router alert
    bytes.insert(bytes.begin() + kIp + 20, options.begin(), options.end());
    ipv4_of(bytes).version_ihl = 0x46;
    ipv4_of(bytes).total_length = static_cast<std::uint16_t>(ipv4_of(bytes).total_length + 4);
    fix_checksum(bytes);
    EXPECT_EQ(error_of(bytes), ParseError::kIpOptions);
    ipv4_of(bytes).protocol = 2;  // IGMP
    fix_checksum(bytes);
    Frame frame;
    ASSERT_EQ(parse(bytes, frame), ParseError::kNone);
    EXPECT_EQ(frame.header_length, 38);
}

TEST(Parse, an_unknown_opcode_or_transport_version_is_refused) {
    Bytes bytes = made(false, 0x04, 8);
    for (unsigned opcode = 0; opcode < 256; ++opcode) {
        bth_of(bytes).opcode = static_cast<std::uint8_t>(opcode);
        EXPECT_EQ(error_of(bytes) == ParseError::kUnknownOpcode,
                  find_opcode(static_cast<std::uint8_t>(opcode)) == nullptr)
            << opcode;
    }
    bth_of(bytes).opcode = 0x04;
    bth_of(bytes).flags = 0x41;
    EXPECT_EQ(error_of(bytes), ParseError::kBadTransportVersion);
}

TEST(Parse, a_pad_that_cannot_be_is_refused) {
    Bytes bytes = made(false, 0x04, 0);
    bth_of(bytes).flags = 0x50;
    EXPECT_EQ(error_of(bytes), ParseError::kBadPad) << "more pad than payload";
    bytes = made(false, 0x04, 7);
    bytes[bytes.size() - 5] = std::byte{1};
    EXPECT_EQ(error_of(bytes), ParseError::kBadPad) << "pad is zero";
    bytes = made(false, 0x04, 8);
    bytes.resize(bytes.size() - 1);
    fix_lengths(bytes);
    EXPECT_EQ(error_of(bytes), ParseError::kBadPad) << "not a multiple of four";
}

TEST(Parse, payload_where_none_may_be_is_refused) {
    for (const std::uint8_t opcode :
         std::initializer_list<std::uint8_t>{0x0c, 0x11, 0x12, 0x13, 0x14}) {
        Bytes bytes = made(false, opcode, 0);
        bytes.resize(bytes.size() + 4);
        fix_lengths(bytes);
        EXPECT_EQ(error_of(bytes), ParseError::kBadLength) << unsigned{opcode};
    }
    Bytes cnp = testing::connectx_cnp();
    cnp.resize(cnp.size() - 4);
    fix_lengths(cnp);
    EXPECT_EQ(error_of(cnp), ParseError::kBadLength);
}

TEST(Parse, a_frame_longer_than_any_is_refused) {
    Bytes bytes = made(false, 0x04, 8);
    bytes.resize(70'000);
    EXPECT_EQ(error_of(bytes), ParseError::kTooLong);
}

TEST(Parse, a_frame_that_is_not_roce_is_taken_apart_as_far_as_it_goes) {
    Frame frame;
    const Bytes arp = from_hex("ffffffffffff 020000000001 0806 00010800060400010200");
    ASSERT_EQ(parse(arp, frame), ParseError::kNone);
    EXPECT_FALSE(is_roce(frame));
    EXPECT_EQ(frame.icrc_state, IcrcState::kNone);
    EXPECT_EQ(frame.l3_offset, 0);
    EXPECT_EQ(frame.header_length, 14);
    EXPECT_EQ(frame.payload_length, 10u);
    EXPECT_EQ(traffic_class(frame), 0);
    EXPECT_TRUE(source_gid(frame).is_zero());

    Bytes udp = made(false, 0x04, 8);
    udp_of(udp).destination_port = 53;
    ASSERT_EQ(parse(udp, frame), ParseError::kNone);
    EXPECT_EQ(frame.l4_offset, 34);
    EXPECT_EQ(frame.header_length, 42);
    EXPECT_EQ(wire_length(frame), udp.size());

    Bytes tcp = made(true, 0x04, 8);
    ipv6_of(tcp).next_header = 6;
    ASSERT_EQ(parse(tcp, frame), ParseError::kNone);
    EXPECT_EQ(frame.l3_offset, 14);
    EXPECT_EQ(frame.l4_offset, 54);
    EXPECT_EQ(frame.header_length, 74);
    const Bytes payload(tcp.begin() + 74, tcp.end());
    EXPECT_EQ(testing::to_hex(testing::written(frame, payload)), testing::to_hex(tcp));
}

// The first bytes of a frame, as a raw packet QP has them.
bool head_of(const Bytes& bytes, Frame& out) {
    return parse_head(ByteView(bytes).first(std::min(bytes.size(), Frame::kHeaderMax)),
                      bytes.size(), out);
}

TEST(ParseHead, the_lower_headers_are_taken_and_all_else_is_payload) {
    Frame frame;
    Bytes udp = made(false, 0x04, 1000);
    udp_of(udp).destination_port = 53;
    udp.resize(udp.size() + 7);  // a trailer is kept
    EXPECT_FALSE(head_of(udp, frame));
    EXPECT_EQ(frame.l3_offset, 14);
    EXPECT_EQ(frame.l4_offset, 34);
    EXPECT_EQ(frame.header_length, 42);
    EXPECT_EQ(frame.segment_count, 0);
    EXPECT_EQ(frame.icrc_state, IcrcState::kNone);
}

TEST(ParseHead, roce_is_recognised_and_not_taken_apart) {
    Frame frame;
    EXPECT_TRUE(head_of(made(true, 0x04, 1000), frame));
    EXPECT_FALSE(is_roce(frame));
    EXPECT_EQ(frame.header_length, 62);
}

TEST(ParseHead, what_is_not_well_formed_is_an_ethernet_frame) {
    Frame frame;
    Bytes bytes = made(false, 0x04, 100);
    ipv4_of(bytes).checksum = ipv4_of(bytes).checksum ^ 1;
    EXPECT_FALSE(head_of(bytes, frame));
    EXPECT_EQ(frame.l3_offset, 0);
    EXPECT_EQ(frame.header_length, 14);
    bytes = made(false, 0x04, 100);
    ipv4_of(bytes).total_length = 2000;
    fix_checksum(bytes);
    EXPECT_FALSE(head_of(bytes, frame));
    EXPECT_EQ(frame.header_length, 14);
}

TEST(ParseHead, any_bytes_and_any_length_do_no_harm) {
    Prng prng(1);
    Frame frame;
    for (unsigned round = 0; round < 50'000; ++round) {
        Bytes bytes(14 + prng.below(200));
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.next());
        const unsigned type = std::array{0x0800u, 0x86ddu, 0x8100u, 0x0806u}[prng.below(4)];
        bytes[12] = static_cast<std::byte>(type >> 8);
        bytes[13] = static_cast<std::byte>(type & 0xff);
        if (bytes.size() > 14) bytes[14] = static_cast<std::byte>(type == 0x0800 ? 0x4f : 0x60);
        head_of(bytes, frame);
        EXPECT_LE(frame.header_length, bytes.size());
        EXPECT_LE(frame.header_length, Frame::kHeaderMax);
    }
}

TEST(Parse, of_tcp_and_icmp_the_fixed_header_is_taken_if_it_is_there) {
    Bytes bytes = made(false, 0x04, 8);
    Frame frame;
    ipv4_of(bytes).protocol = kIpProtocolIcmp;
    fix_checksum(bytes);
    ASSERT_EQ(parse(bytes, frame), ParseError::kNone);
    EXPECT_EQ(frame.l4_offset, 34);
    EXPECT_EQ(frame.header_length, 42);
    EXPECT_EQ(print(frame).find("UDP"), std::string::npos);

    ipv4_of(bytes).protocol = kIpProtocolTcp;
    ipv4_of(bytes).total_length = 39;  // one byte too few for TCP
    fix_checksum(bytes);
    ASSERT_EQ(parse(bytes, frame), ParseError::kNone);
    EXPECT_EQ(frame.l4_offset, 0);
    EXPECT_EQ(frame.header_length, 34);
    EXPECT_EQ(frame.payload_length, 19u);

    ipv4_of(bytes).protocol = 47;  // GRE
    fix_checksum(bytes);
    ASSERT_EQ(parse(bytes, frame), ParseError::kNone);
    EXPECT_EQ(frame.l4_offset, 0);
}

TEST(Parse, what_was_emitted_comes_back) {
    constexpr std::uint64_t kSeed = 11;
    Prng prng(kSeed);
    for (int run = 0; run < 2'000; ++run) {
        const auto opcodes = testing::all_opcodes();
        const OpcodeInfo& info = *opcodes[prng.below(opcodes.size())];
        const bool ipv6 = prng.chance(0.5);
        const Bytes payload = testing::random_payload(info, 4096, prng);
        Frame sent;
        testing::make_frame(sent, ipv6, info, payload, prng);
        const Bytes bytes = testing::written(sent, payload);
        ASSERT_EQ(bytes.size(), wire_length(sent));
        Frame received;
        ASSERT_EQ(parse(bytes, received), ParseError::kNone) << "seed " << kSeed << " run " << run;
        EXPECT_EQ(testing::to_hex(received.header_bytes()), testing::to_hex(sent.header_bytes()));
        EXPECT_EQ(received.l3_offset, sent.l3_offset);
        EXPECT_EQ(received.l4_offset, sent.l4_offset);
        EXPECT_EQ(received.bth_offset, sent.bth_offset);
        EXPECT_EQ(received.payload_length, payload.size());
        EXPECT_EQ(testing::written(received, payload), bytes);
        Icrc icrc(received);
        icrc.add(payload);
        icrc.add(Bytes((0u - payload.size()) & 3));
        EXPECT_EQ(icrc.value(), received.icrc);
    }
}

TEST(Parse, every_error_has_its_own_text) {
    std::set<std::string> texts;
    constexpr int kErrors = 12;
    for (int i = 0; i < kErrors; ++i) texts.insert(to_string(static_cast<ParseError>(i)));
    EXPECT_EQ(texts.size(), kErrors);
    EXPECT_FALSE(texts.contains("unknown error"));
}

}  // namespace
}  // namespace rdmalab::wire

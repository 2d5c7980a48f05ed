#include "wire/offload.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/prng.h"
#include "wire/headers.h"

namespace rdmalab::wire {
namespace {

using Bytes = std::vector<std::byte>;

Bytes from_hex(const std::string& text) {
    Bytes bytes;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2)
        bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
    return bytes;
}

// A UDP datagram, and a TCP segment with one byte of data (an odd length).
const std::string kEthernet = "020000000001020000000002";
const Bytes kUdp = from_hex(kEthernet +
                            "0800450000260001000040112ec40a0000010a000002"
                            "1f90003500127d6868656c6c6f776f726c64");
const Bytes kTcp = from_hex(kEthernet +
                            "0800450000290001000040062ecc0a0000010a000002"
                            "1f9000500000000100000000500220004e6e000061");

// The textbook's way: 16-bit words one by one.
std::uint16_t plain_sum(const Bytes& bytes, std::size_t from, std::size_t to, std::uint32_t sum) {
    for (std::size_t i = from; i < to; i += 2) {
        sum += std::to_integer<std::uint32_t>(bytes[i]) << 8;
        if (i + 1 < to) sum += std::to_integer<std::uint32_t>(bytes[i + 1]);
    }
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(sum);
}
bool is_right_by_the_book(const Bytes& frame) {
    const std::size_t end = 14 + std::to_integer<std::size_t>(frame[17]);
    const std::uint32_t pseudo =
        std::to_integer<std::uint32_t>(frame[23]) + static_cast<std::uint32_t>(end - 34);
    return plain_sum(frame, 14, 34, 0) == 0xffff &&
           plain_sum(frame, 34, end, pseudo + plain_sum(frame, 26, 34, 0)) == 0xffff;
}

TEST(Offload, checksums_are_filled_in_as_the_book_has_them) {
    for (Bytes frame : {kUdp, kTcp}) {
        frame.resize(60);  // the pad of the link does not count
        for (const std::size_t at : {24, 25}) frame[at] = std::byte{0x77};
        fill_checksums(frame);
        EXPECT_TRUE(is_right_by_the_book(frame));
        EXPECT_TRUE(has_right_checksums(frame));
    }
}

TEST(Offload, any_broken_byte_is_noticed) {
    for (Bytes frame : {kUdp, kTcp}) {
        fill_checksums(frame);
        for (std::size_t at = 14; at < frame.size(); ++at) {
            SCOPED_TRACE(at);
            Bytes broken = frame;
            broken[at] ^= std::byte{0x10};
            EXPECT_FALSE(has_right_checksums(broken));
        }
    }
}

TEST(Offload, a_udp_checksum_of_zero_is_none) {
    Bytes frame = kUdp;
    fill_checksums(frame);
    frame[40] = frame[41] = std::byte{0};
    EXPECT_TRUE(has_right_checksums(frame));
}

TEST(Offload, tags_are_stepped_over) {
    Bytes frame = kUdp;
    const Bytes tags = from_hex(
        "88a800018100"
        "0002");
    frame.insert(frame.begin() + 12, tags.begin(), tags.end());
    fill_checksums(frame);
    EXPECT_TRUE(has_right_checksums(frame));
}

TEST(Offload, a_fragment_has_only_its_header_filled_in) {
    Bytes frame = kUdp;
    frame[20] = std::byte{0x20};  // more fragments
    const Bytes before = frame;
    fill_checksums(frame);
    EXPECT_EQ(plain_sum(frame, 14, 34, 0), 0xffff);
    EXPECT_TRUE(std::equal(frame.begin() + 34, frame.end(), before.begin() + 34));
    EXPECT_FALSE(has_right_checksums(frame));
}

TEST(Offload, ipv6_has_the_checksum_of_its_datagram) {
    Bytes frame = from_hex(kEthernet + "86dd6000000000121140" + std::string(30, '0') + "01" +
                           std::string(30, '0') + "02" +
                           "1f900035001200006865"
                           "6c6c6f776f726c64");
    fill_checksums(frame);
    const std::uint32_t pseudo = 17 + 18 + plain_sum(frame, 22, 54, 0);
    EXPECT_EQ(plain_sum(frame, 54, frame.size(), pseudo), 0xffff);
    EXPECT_FALSE(has_right_checksums(frame)) << "is about IPv4";
}

TEST(Offload, nothing_is_read_or_written_beyond_random_frames) {
    Prng prng(5);
    for (int round = 0; round < 20'000; ++round) {
        Bytes frame = round % 2 == 0 ? kUdp : kTcp;
        for (int i = 0; i < 3; ++i)
            frame[12 + prng.below(static_cast<std::uint32_t>(frame.size() - 12))] =
                static_cast<std::byte>(prng.below(256));
        frame.resize(prng.below(static_cast<std::uint32_t>(frame.size() + 1)));
        frame.shrink_to_fit();
        has_right_checksums(frame);
        fill_checksums(frame);
    }
}

}  // namespace
}  // namespace rdmalab::wire

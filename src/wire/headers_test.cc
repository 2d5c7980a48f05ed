// Each header both ways: known bytes are taken apart, and the same bytes are made from the parts.
#include "wire/headers.h"

#include <gtest/gtest.h>

#include "wire/testing.h"

namespace rdmalab::wire {
namespace {

using testing::from_hex;
using testing::to_hex;

template <class Header>
Header view(const char* hex) {
    const testing::Bytes bytes = from_hex(hex);
    EXPECT_EQ(bytes.size(), sizeof(Header));
    return load_bytes<Header>(bytes.data());
}
template <class Header>
std::string hex_of(const Header& header) {
    return to_hex(std::as_bytes(std::span(&header, 1)));
}

TEST(Headers, ethernet) {
    constexpr const char* kBytes = "e41d2dab2bc27cfe90643b320800";
    const auto header = view<EthernetHeader>(kBytes);
    EXPECT_EQ(MacAddress{header.destination}.to_string(), "e4:1d:2d:ab:2b:c2");
    EXPECT_EQ(MacAddress{header.source}.to_string(), "7c:fe:90:64:3b:32");
    EXPECT_EQ(header.type, kEtherTypeIpv4);
    EXPECT_EQ(hex_of(EthernetHeader{header.destination, header.source, kEtherTypeIpv4}), kBytes);
}

TEST(Headers, vlan) {
    const auto tag = view<VlanTag>("606486dd");
    EXPECT_EQ(tag.tci, 0x6064);
    EXPECT_EQ(tag.type, kEtherTypeIpv6);
    EXPECT_EQ(hex_of(VlanTag{0x6064, kEtherTypeIpv6}), "606486dd");
}

TEST(Headers, ipv4) {
    constexpr const char* kBytes = "45c2003c718c4000401191610a0011010a001201";
    const auto header = view<Ipv4Header>(kBytes);
    EXPECT_EQ(header.version_ihl, 0x45);
    EXPECT_EQ(header.tos, 0xc2);
    EXPECT_EQ(header.total_length, 60);
    EXPECT_EQ(header.identification, 0x718c);
    EXPECT_EQ(header.flags_fragment, 0x4000);
    EXPECT_EQ(header.ttl, 64);
    EXPECT_EQ(header.protocol, kIpProtocolUdp);
    EXPECT_EQ(header.checksum, 0x9161);
    EXPECT_EQ(Gid::from_ipv4(header.source).to_string(), "10.0.17.1");
    EXPECT_EQ(Gid::from_ipv4(header.destination).to_string(), "10.0.18.1");
    EXPECT_EQ(hex_of(Ipv4Header{0x45, 0xc2, 60, 0x718c, 0x4000, 64, 17, 0x9161, 0x0a00'1101,
                                0x0a00'1201}),
              kBytes);
}

TEST(Headers, ipv6) {
    constexpr const char* kBytes =
        "66a1234500201140fd000000000000000000000000000001fd000000000000000000000000000002";
    const auto header = view<Ipv6Header>(kBytes);
    EXPECT_EQ(header.version_class_label >> 28, 6u);
    EXPECT_EQ(header.version_class_label >> 20 & 0xff, 0x6au);
    EXPECT_EQ(header.version_class_label & 0xf'ffff, 0x1'2345u);
    EXPECT_EQ(header.payload_length, 32);
    EXPECT_EQ(header.next_header, kIpProtocolUdp);
    EXPECT_EQ(header.hop_limit, 64);
    EXPECT_EQ(Gid{header.source}.to_string(), "fd00::1");
    EXPECT_EQ(Gid{header.destination}.to_string(), "fd00::2");
    EXPECT_EQ(hex_of(Ipv6Header{0x66a1'2345, 32, 17, 64, header.source, header.destination}),
              kBytes);
}

TEST(Headers, udp) {
    const auto header = view<UdpHeader>("c00012b7002caca2");
    EXPECT_EQ(header.source_port, 0xc000);
    EXPECT_EQ(header.destination_port, kRoceUdpPort);
    EXPECT_EQ(header.length, 44);
    EXPECT_EQ(header.checksum, 0xaca2);
    EXPECT_EQ(hex_of(UdpHeader{0xc000, kRoceUdpPort, 44, 0xaca2}), "c00012b7002caca2");
}

TEST(Headers, bth) {
    constexpr const char* kBytes = "0ae0ffff400000d380cf1710";
    const auto bth = view<Bth>(kBytes);
    EXPECT_EQ(bth.opcode, 0x0a);
    EXPECT_TRUE(bth.solicited());
    EXPECT_EQ(bth.pad_count(), 2);
    EXPECT_EQ(bth.pkey, 0xffff);
    EXPECT_EQ(bth.destination_qp, 0xd3u);
    EXPECT_TRUE(bth.wants_ack());
    EXPECT_EQ(bth.psn, 0xcf'1710u);
    EXPECT_EQ(hex_of(Bth{0x0a, 0xe0, 0xffff, 0x40, 0xd3, 0x80, 0xcf'1710}), kBytes);
}

TEST(Headers, reth) {
    constexpr const char* kBytes = "00007f12345678900000010200010000";
    const auto reth = view<Reth>(kBytes);
    EXPECT_EQ(reth.virtual_address, 0x7f12'3456'7890u);
    EXPECT_EQ(reth.rkey, 0x102u);
    EXPECT_EQ(reth.length, 65'536u);
    EXPECT_EQ(hex_of(Reth{0x7f12'3456'7890u, 0x102, 65'536}), kBytes);
}

TEST(Headers, atomic_eth) {
    constexpr const char* kBytes = "0000000000001000000001020102030405060708f0f1f2f3f4f5f6f7";
    const auto atomic = view<AtomicEth>(kBytes);
    EXPECT_EQ(atomic.virtual_address, 0x1000u);
    EXPECT_EQ(atomic.rkey, 0x102u);
    EXPECT_EQ(atomic.swap_or_add, 0x0102'0304'0506'0708u);
    EXPECT_EQ(atomic.compare, 0xf0f1'f2f3'f4f5'f6f7u);
    EXPECT_EQ(hex_of(AtomicEth{0x1000, 0x102, 0x0102'0304'0506'0708u, 0xf0f1'f2f3'f4f5'f6f7u}),
              kBytes);
}

TEST(Headers, aeth) {
    const auto aeth = view<Aeth>("1f000203");
    EXPECT_EQ(aeth.syndrome, kSyndromeAck);
    EXPECT_EQ(aeth.msn, 0x203u);
    EXPECT_EQ(hex_of(Aeth{kSyndromeNak | 2, 0x203}), "62000203");
}

TEST(Headers, atomic_ack_eth) {
    EXPECT_EQ(view<AtomicAckEth>("0102030405060708").original, 0x0102'0304'0506'0708u);
    EXPECT_EQ(hex_of(AtomicAckEth{0x0102'0304'0506'0708u}), "0102030405060708");
}

TEST(Headers, immediate_and_invalidate) {
    EXPECT_EQ(view<ImmDt>("deadbeef").immediate, 0xdead'beefu);
    EXPECT_EQ(view<Ieth>("00000102").rkey, 0x102u);
    EXPECT_EQ(hex_of(ImmDt{0xdead'beef}), "deadbeef");
    EXPECT_EQ(hex_of(Ieth{0x102}), "00000102");
}

TEST(Headers, deth) {
    const auto deth = view<Deth>("8001000000000001");
    EXPECT_EQ(deth.qkey, 0x8001'0000u);
    EXPECT_EQ(deth.source_qp, 1u);
    EXPECT_EQ(hex_of(Deth{0x8001'0000, 0, 1}), "8001000000000001");
}

TEST(Headers, xrceth) {
    EXPECT_EQ(view<Xrceth>("00012345").srq, 0x1'2345u);
    EXPECT_EQ(hex_of(Xrceth{0, 0x1'2345}), "00012345");
}

}  // namespace
}  // namespace rdmalab::wire

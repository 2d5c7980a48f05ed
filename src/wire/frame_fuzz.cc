// Any bytes: what parses must print, and must be written back as it came. What the random bytes
// cannot reach (a right IPv4 checksum, fitting lengths) is put in place in half of the runs.
#include <algorithm>
#include <cstdlib>

#include "wire/checksum.h"
#include "wire/print.h"
#include "wire/testing.h"

namespace rdmalab::wire {
namespace {

using testing::Bytes;

void require(bool holds) {
    if (!holds) std::abort();
}

void parse_print_and_write(const Bytes& bytes) {
    Frame frame;
    if (testing::parse(bytes, frame) != ParseError::kNone) return;
    require(frame.header_length <= Frame::kHeaderMax && !print(frame).empty());
    const std::size_t length = wire_length(frame);
    require(length <= bytes.size());  // less by the padding of the Ethernet frame
    const Bytes payload(bytes.begin() + frame.header_length,
                        bytes.begin() + frame.header_length + frame.payload_length);
    const Bytes out = testing::written(frame, payload);
    require(out.size() == length && std::equal(out.begin(), out.end(), bytes.begin()));
    set_ecn(frame, kEcnCe);
    require(frame.l3_offset == 0 || ecn(frame) == kEcnCe);
    Frame again;
    require(testing::parse(testing::written(frame, payload), again) == ParseError::kNone);
}

// A BTH of a known opcode, with a pad that can be.
void make_plausible_bth(Bytes& bytes, std::size_t bth_at) {
    static const auto kOpcodes = testing::all_opcodes();
    auto& bth = *reinterpret_cast<Bth*>(bytes.data() + bth_at);
    bth.opcode = kOpcodes[bth.opcode % kOpcodes.size()]->opcode;
    bth.flags &= 0xf0;
    const std::size_t icrc_at = bytes.size() - kIcrcLength;
    if (icrc_at < bth_at + sizeof bth + bth.pad_count()) return;
    std::fill_n(bytes.begin() + icrc_at - bth.pad_count(), bth.pad_count(), std::byte{0});
}

// Makes a plausible RoCEv2 frame of the bytes: family, opcode, pad and length stay their choice.
void make_plausible(Bytes& bytes, bool ipv6) {
    constexpr std::size_t kIp = sizeof(EthernetHeader);
    const std::size_t udp_at = kIp + (ipv6 ? sizeof(Ipv6Header) : sizeof(Ipv4Header));
    const std::size_t bth_at = udp_at + sizeof(UdpHeader);
    if (bytes.size() < bth_at + sizeof(Bth) + kIcrcLength) return;
    bytes.resize(bytes.size() - (bytes.size() - bth_at) % 4);
    make_plausible_bth(bytes, bth_at);
    const auto l4_length = static_cast<std::uint16_t>(bytes.size() - udp_at);
    store_bytes(bytes.data() + udp_at, UdpHeader{0xc000, kRoceUdpPort, l4_length, 0});
    const Be16 type = ipv6 ? kEtherTypeIpv6 : kEtherTypeIpv4;
    store_bytes(bytes.data() + kIp - sizeof type, type);
    if (ipv6) {
        store_bytes(bytes.data() + kIp, Ipv6Header{6u << 28, l4_length, kIpProtocolUdp, 1, {}, {}});
        return;
    }
    const auto total = static_cast<std::uint16_t>(l4_length + sizeof(Ipv4Header));
    Ipv4Header ip{0x45, 0, total, 0, 0x4000, 1, kIpProtocolUdp, 0, 1, 2};
    const auto sum = checksum_sum(reinterpret_cast<const std::byte*>(&ip), sizeof ip / 4);
    ip.checksum = static_cast<std::uint16_t>(~sum);
    store_bytes(bytes.data() + kIp, ip);
}

}  // namespace
}  // namespace rdmalab::wire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace rdmalab::wire;
    if (size == 0) return 0;
    const auto* const from = reinterpret_cast<const std::byte*>(data);
    testing::Bytes bytes(from + 1, from + size);
    const unsigned choice = data[0];
    if ((choice & 1) != 0) make_plausible(bytes, (choice & 2) != 0);
    // A quarter of them with one bit flipped.
    if ((choice & 12) == 12 && !bytes.empty())
        bytes[choice * bytes.size() / 256] ^= static_cast<std::byte>(1u << choice % 8);
    parse_print_and_write(bytes);
    return 0;
}

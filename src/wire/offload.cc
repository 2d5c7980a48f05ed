#include "wire/offload.h"

#include "wire/checksum.h"
#include "wire/headers.h"

namespace rdmalab::wire {
namespace {

constexpr std::uint16_t kEtherTypeServiceVlan = 0x88a8;
constexpr std::size_t kIpv4ChecksumOffset = 10;
constexpr std::size_t kTcpChecksumOffset = 16, kUdpChecksumOffset = 6;
constexpr std::size_t kTcpLength = 20, kUdpLength = 8;
constexpr std::uint16_t kFragmentBits = 0x3fff;

// Where the headers of a packet stand; 0: they are not there, or not whole.
struct Places {
    std::size_t l3 = 0, l4 = 0, end = 0;
    bool is_ipv4 = false;
    std::uint8_t protocol = 0;
    std::size_t l4_checksum() const {
        return l4 + (protocol == kIpProtocolTcp ? kTcpChecksumOffset : kUdpChecksumOffset);
    }
};

std::uint16_t be16(ByteView bytes, std::size_t at) { return load_bytes<Be16>(bytes.data() + at); }

// TCP or UDP, if it has its fixed part.
void find_l4(Places& places, std::size_t at) {
    const bool is_tcp = places.protocol == kIpProtocolTcp;
    if (!is_tcp && places.protocol != kIpProtocolUdp) return;
    if (places.end - at >= (is_tcp ? kTcpLength : kUdpLength)) places.l4 = at;
}

void find_ipv4(ByteView frame, std::size_t at, Places& places) {
    if (frame.size() - at < sizeof(Ipv4Header)) return;
    const auto ip = load_bytes<Ipv4Header>(frame.data() + at);
    const std::size_t header = (ip.version_ihl & 0xfu) * 4;
    const bool is_whole = ip.version_ihl >> 4 == 4 && header >= sizeof ip &&
                          ip.total_length >= header && ip.total_length <= frame.size() - at;
    if (!is_whole) return;
    places.l3 = at;
    places.end = at + ip.total_length;
    places.is_ipv4 = true;
    places.protocol = ip.protocol;
    if ((ip.flags_fragment & kFragmentBits) == 0) find_l4(places, at + header);
}

void find_ipv6(ByteView frame, std::size_t at, Places& places) {
    if (frame.size() - at < sizeof(Ipv6Header)) return;
    const auto ip = load_bytes<Ipv6Header>(frame.data() + at);
    if (ip.payload_length > frame.size() - at - sizeof ip) return;
    places.l3 = at;
    places.end = at + sizeof ip + ip.payload_length;
    places.protocol = ip.next_header;
    find_l4(places, at + sizeof ip);
}

Places find(ByteView frame) {
    Places places;
    std::size_t at = sizeof(EthernetHeader);
    if (frame.size() < at) return places;
    std::uint16_t type = be16(frame, at - 2);
    for (int tags = 0; tags < 2; ++tags) {
        if (type != kEtherTypeVlan && type != kEtherTypeServiceVlan) break;
        at += sizeof(VlanTag);
        if (frame.size() < at) return places;
        type = be16(frame, at - 2);
    }
    if (type == kEtherTypeIpv4) find_ipv4(frame, at, places);
    if (type == kEtherTypeIpv6) find_ipv6(frame, at, places);
    return places;
}

// The one's complement sum of the bytes, of which there may be an odd number.
std::uint32_t sum_of(ByteView bytes) {
    const std::size_t words = bytes.size() / 4;
    std::uint32_t sum = checksum_sum(bytes.data(), words);
    const ByteView tail = bytes.subspan(words * 4);
    for (std::size_t i = 0; i < tail.size(); ++i)
        sum += std::to_integer<std::uint32_t>(tail[i]) << (i % 2 == 0 ? 8 : 0);
    return sum;
}

std::uint16_t sum_of_ipv4(ByteView frame, const Places& places) {
    const std::size_t words = std::to_integer<std::size_t>(frame[places.l3]) & 0xf;
    return checksum_sum(frame.data() + places.l3, words);
}

// With the pseudo header.
std::uint16_t sum_of_l4(ByteView frame, const Places& places) {
    const std::size_t addresses = places.is_ipv4 ? 12 : 8;
    const std::size_t length = places.is_ipv4 ? 8 : 32;
    std::uint64_t sum = sum_of(frame.subspan(places.l3 + addresses, length));
    sum += places.protocol;
    sum += places.end - places.l4;
    sum += sum_of(frame.subspan(places.l4, places.end - places.l4));
    return fold_checksum(sum);
}

void put(ByteSpan frame, std::size_t at, std::uint16_t value) {
    store_bytes(frame.data() + at, Be16{value});
}

}  // namespace

void fill_checksums(ByteSpan frame) {
    const Places places = find(frame);
    if (places.is_ipv4) {
        put(frame, places.l3 + kIpv4ChecksumOffset, 0);
        const auto checksum = static_cast<std::uint16_t>(~sum_of_ipv4(frame, places));
        put(frame, places.l3 + kIpv4ChecksumOffset, checksum);
    }
    if (places.l4 == 0) return;
    put(frame, places.l4_checksum(), 0);
    auto checksum = static_cast<std::uint16_t>(~sum_of_l4(frame, places));
    if (checksum == 0 && places.protocol == kIpProtocolUdp) checksum = 0xffff;
    put(frame, places.l4_checksum(), checksum);
}

bool has_right_checksums(ByteView frame) {
    const Places places = find(frame);
    if (!places.is_ipv4 || places.l4 == 0 || sum_of_ipv4(frame, places) != 0xffff) return false;
    const bool is_absent =
        places.protocol == kIpProtocolUdp && be16(frame, places.l4_checksum()) == 0;
    return is_absent || sum_of_l4(frame, places) == 0xffff;
}

}  // namespace rdmalab::wire

// Takes frames apart. The bytes may come from anywhere: every length is checked before what it
// covers is read, and nothing is read beyond `bytes`.
//
// The steps run down the layers. Each either finds that the frame is not RoCEv2 after all, and then
// it is an Ethernet or IP frame whose headers end there, or goes on to the next one.
#include <algorithm>

#include "wire/burst.h"
#include "wire/checksum.h"
#include "wire/headers.h"

namespace rdmalab::wire {
namespace {

constexpr std::uint16_t kEtherTypeServiceVlan = 0x88a8;
constexpr std::size_t kVlanTagMax = 2;
constexpr std::size_t kL3LengthMax = 65'535 + sizeof(Ipv6Header);
constexpr std::size_t kFrameMax =
    sizeof(EthernetHeader) + kVlanTagMax * sizeof(VlanTag) + kL3LengthMax;
constexpr std::uint16_t kFragmentBits = 0x3fff;    // more fragments, offset
constexpr std::uint16_t kFragmentOffset = 0x1fff;  // of it, the offset
constexpr std::uint32_t kCnpPayloadLength = 16;
constexpr std::size_t kTcpHeaderLength = 20, kIcmpHeaderLength = 8;

enum class Step : std::uint8_t { kNext, kStop };

class Parser {
public:
    Parser(ByteView bytes, Frame& out) : bytes_(bytes), end_(bytes.size()), out_(out) {}

    ParseError run(PayloadSegment where);
    bool run_head(std::size_t length);
    std::optional<ParseError> run_burst(std::uint32_t segment_length, std::uint32_t index,
                                        PayloadSegment where);

private:
    template <class Header>
    Header load(std::size_t at) const {
        return load_bytes<Header>(bytes_.data() + at);
    }
    bool has(std::size_t length) const { return end_ - at_ >= length; }
    Step stop(ParseError error) {
        error_ = error;
        return Step::kStop;
    }

    Step parse_ethernet();
    Step parse_ip();
    Step parse_ipv4();
    Step parse_ipv6();
    Step parse_l4();
    Step parse_udp();
    Step stop_behind(std::size_t l4_header);
    Step parse_bth();
    Step check_payload(const Bth& bth, const OpcodeInfo& info);
    void take_icrc();
    void give_lower_headers(std::uint32_t index, std::size_t lower, std::size_t begin,
                            std::size_t udp_payload);
    void clear();

    ByteView bytes_;
    std::size_t at_ = 0;  // everything before it has been parsed
    std::size_t end_;     // what lies behind it is padding of the lower layer, pad or ICRC
    Frame& out_;
    std::uint16_t ether_type_ = 0;
    std::uint8_t protocol_ = 0;
    bool is_fragment_ = false;
    bool has_options_ = false;
    ParseError error_ = ParseError::kNone;
};

Step Parser::parse_ethernet() {
    if (end_ > kFrameMax) return stop(ParseError::kTooLong);
    if (!has(sizeof(EthernetHeader))) return stop(ParseError::kTooShort);
    ether_type_ = load<EthernetHeader>(0).type;
    at_ = sizeof(EthernetHeader);
    for (std::size_t tags = 0; tags < kVlanTagMax; ++tags) {
        if (ether_type_ != kEtherTypeVlan && ether_type_ != kEtherTypeServiceVlan) break;
        if (!has(sizeof(VlanTag))) return stop(ParseError::kTooShort);
        ether_type_ = load<VlanTag>(at_).type;
        at_ += sizeof(VlanTag);
    }
    return Step::kNext;
}

Step Parser::parse_ip() {
    if (ether_type_ == kEtherTypeIpv4) return parse_ipv4();
    if (ether_type_ == kEtherTypeIpv6) return parse_ipv6();
    return Step::kStop;
}

Step Parser::parse_ipv4() {
    if (!has(sizeof(Ipv4Header))) return stop(ParseError::kTooShort);
    const auto ip = load<Ipv4Header>(at_);
    if (ip.version_ihl >> 4 != 4) return stop(ParseError::kBadIpVersion);
    const std::size_t header_length = (ip.version_ihl & 0xfu) * 4;
    if (header_length < sizeof ip || ip.total_length < header_length || !has(ip.total_length))
        return stop(ParseError::kBadLength);
    if (checksum_sum(bytes_.data() + at_, header_length / 4) != 0xffff)
        return stop(ParseError::kBadIpChecksum);
    out_.l3_offset = static_cast<std::uint16_t>(at_);
    end_ = at_ + ip.total_length;
    at_ += header_length;
    has_options_ = header_length != sizeof ip;
    is_fragment_ = (ip.flags_fragment & kFragmentBits) != 0;
    protocol_ = ip.protocol;
    // Only the first fragment has the L4 header.
    return (ip.flags_fragment & kFragmentOffset) == 0 ? Step::kNext : Step::kStop;
}

Step Parser::parse_ipv6() {
    if (!has(sizeof(Ipv6Header))) return stop(ParseError::kTooShort);
    const auto ip = load<Ipv6Header>(at_);
    if (ip.version_class_label >> 28 != 6) return stop(ParseError::kBadIpVersion);
    if (!has(sizeof ip + ip.payload_length)) return stop(ParseError::kBadLength);
    out_.l3_offset = static_cast<std::uint16_t>(at_);
    at_ += sizeof ip;
    end_ = at_ + ip.payload_length;
    protocol_ = ip.next_header;
    return Step::kNext;
}

Step Parser::parse_l4() {
    switch (protocol_) {
        case kIpProtocolUdp:
            return parse_udp();
        case kIpProtocolTcp:
            return stop_behind(kTcpHeaderLength);
        case kIpProtocolIcmp:
        case kIpProtocolIcmp6:
            return stop_behind(kIcmpHeaderLength);
        default:
            return Step::kStop;
    }
}

// The fixed part of an L4 header that is not looked into, if it is there.
Step Parser::stop_behind(std::size_t l4_header) {
    if (!has(l4_header)) return Step::kStop;
    out_.l4_offset = static_cast<std::uint16_t>(at_);
    at_ += l4_header;
    return Step::kStop;
}

Step Parser::parse_udp() {
    if (!has(sizeof(UdpHeader))) return stop(ParseError::kBadUdpLength);
    const auto udp = load<UdpHeader>(at_);
    out_.l4_offset = static_cast<std::uint16_t>(at_);
    at_ += sizeof udp;
    if (udp.destination_port != kRoceUdpPort) return Step::kStop;
    if (is_fragment_) return stop(ParseError::kFragment);
    if (has_options_) return stop(ParseError::kIpOptions);
    if (udp.length != end_ - out_.l4_offset) return stop(ParseError::kBadUdpLength);
    return Step::kNext;
}

Step Parser::parse_bth() {
    if (!has(sizeof(Bth) + kIcrcLength)) return stop(ParseError::kTooShort);
    const auto bth = load<Bth>(at_);
    const OpcodeInfo* const info = find_opcode(bth.opcode);
    if (info == nullptr) return stop(ParseError::kUnknownOpcode);
    if ((bth.flags & 0x0f) != 0) return stop(ParseError::kBadTransportVersion);
    if (!has(sizeof bth + info->extension_length + kIcrcLength)) return stop(ParseError::kTooShort);
    out_.bth_offset = static_cast<std::uint16_t>(at_);
    at_ += sizeof bth + info->extension_length;
    end_ -= kIcrcLength;
    take_icrc();
    return check_payload(bth, *info);
}

Step Parser::check_payload(const Bth& bth, const OpcodeInfo& info) {
    const std::size_t padded = end_ - at_;
    if (padded % 4 != 0 || bth.pad_count() > padded) return stop(ParseError::kBadPad);
    for (std::size_t i = 0; i < bth.pad_count(); ++i)
        if (bytes_[end_ - 1 - i] != std::byte{0}) return stop(ParseError::kBadPad);
    end_ -= bth.pad_count();
    const std::size_t length = end_ - at_;
    if (!info.carries_payload && length != 0) return stop(ParseError::kBadLength);
    if (info.kind == PacketKind::kCnp && length != kCnpPayloadLength)
        return stop(ParseError::kBadLength);
    return Step::kNext;
}

void Parser::take_icrc() {
    out_.icrc_state = IcrcState::kPresent;
    for (std::size_t i = 0; i < kIcrcLength; ++i)
        out_.icrc |= std::to_integer<std::uint32_t>(bytes_[end_ + i]) << (8 * i);
}

void Parser::clear() {
    out_.l3_offset = out_.l4_offset = out_.bth_offset = 0;
    out_.icrc_state = IcrcState::kNone;
    out_.header_kept = false;
    out_.segment_count = 0;
    out_.payload_length = 0;
    out_.icrc = 0;
    out_.origin = 0;
}

ParseError Parser::run(PayloadSegment where) {
    clear();
    for (const auto step :
         {&Parser::parse_ethernet, &Parser::parse_ip, &Parser::parse_l4, &Parser::parse_bth})
        if ((this->*step)() == Step::kStop) break;
    if (error_ != ParseError::kNone) return error_;
    out_.header_length = static_cast<std::uint16_t>(at_);
    std::memcpy(out_.header.data(), bytes_.data(), at_);
    const auto length = static_cast<std::uint32_t>(end_ - at_);
    if (length != 0) out_.add_segment({where.space, length, where.address + at_});
    return ParseError::kNone;
}

// The lower headers are those of the burst; from the BTH on the frame is parsed where it lies.
std::optional<ParseError> Parser::run_burst(std::uint32_t segment_length, std::uint32_t index,
                                            PayloadSegment where) {
    clear();
    for (const auto step : {&Parser::parse_ethernet, &Parser::parse_ip, &Parser::parse_l4}) {
        if ((this->*step)() == Step::kNext) continue;
        if (index != 0) return std::nullopt;
        return error_ != ParseError::kNone ? error_ : ParseError::kTooShort;
    }
    const std::size_t lower = at_, begin = lower + std::size_t{segment_length} * index;
    if (begin >= end_) return std::nullopt;
    at_ = begin;
    end_ = std::min(end_, begin + segment_length);
    const std::size_t udp_payload = end_ - begin;
    parse_bth();
    if (error_ != ParseError::kNone) return error_;
    give_lower_headers(index, lower, begin, udp_payload);
    const auto length = static_cast<std::uint32_t>(end_ - at_);
    if (length != 0) out_.add_segment({where.space, length, where.address + at_});
    return ParseError::kNone;
}

void Parser::give_lower_headers(std::uint32_t index, std::size_t lower, std::size_t begin,
                                std::size_t udp_payload) {
    std::memcpy(out_.header.data(), bytes_.data(), lower);
    std::memcpy(out_.header.data() + lower, bytes_.data() + begin, at_ - begin);
    out_.header_length = static_cast<std::uint16_t>(lower + at_ - begin);
    out_.bth_offset = static_cast<std::uint16_t>(lower);
    const auto l4_length = static_cast<std::uint16_t>(sizeof(UdpHeader) + udp_payload);
    header_at<UdpHeader>(out_, out_.l4_offset)->length = l4_length;
    if (out_.l4_offset - out_.l3_offset == sizeof(Ipv6Header)) {
        header_at<Ipv6Header>(out_, out_.l3_offset)->payload_length = l4_length;
        return;
    }
    auto* const ip = header_at<Ipv4Header>(out_, out_.l3_offset);
    const auto total = static_cast<std::uint16_t>(sizeof *ip + l4_length);
    ip->checksum = updated_checksum(ip->checksum, ip->total_length, total);
    ip->total_length = total;
    const auto id = static_cast<std::uint16_t>(ip->identification + index);
    ip->checksum = updated_checksum(ip->checksum, ip->identification, id);
    ip->identification = id;
}

// The lower headers take 90 bytes at most (two tags, IPv4 with options), so none of them reaches
// beyond the head.
bool Parser::run_head(std::size_t length) {
    clear();
    end_ = length;
    Step step = parse_ethernet();
    std::size_t whole = error_ == ParseError::kNone ? at_ : 0;
    bool is_roce = false;
    if (step == Step::kNext) {
        step = parse_ip();
        if (step == Step::kNext) step = parse_l4();
        is_roce = step == Step::kNext;
        if (error_ == ParseError::kNone)
            whole = at_;
        else
            out_.l3_offset = out_.l4_offset = 0;
    }
    out_.header_length = static_cast<std::uint16_t>(whole);
    std::memcpy(out_.header.data(), bytes_.data(), whole);
    return is_roce;
}

}  // namespace

const char* to_string(ParseError error) {
    switch (error) {
        case ParseError::kNone:
            return "no error";
        case ParseError::kTooShort:
            return "too short for its headers";
        case ParseError::kBadLength:
            return "length field does not fit the frame";
        case ParseError::kBadIpVersion:
            return "IP version does not fit the EtherType";
        case ParseError::kBadIpChecksum:
            return "wrong IPv4 header checksum";
        case ParseError::kFragment:
            return "RoCEv2 in an IP fragment";
        case ParseError::kBadUdpLength:
            return "UDP length does not fit the IP length";
        case ParseError::kUnknownOpcode:
            return "unknown BTH opcode";
        case ParseError::kBadTransportVersion:
            return "BTH transport version is not 0";
        case ParseError::kBadPad:
            return "BTH pad count does not fit the payload";
        case ParseError::kTooLong:
            return "longer than any frame";
        case ParseError::kIpOptions:
            return "RoCEv2 behind IPv4 options";
    }
    return "unknown error";
}

ParseError parse_frame(ByteView bytes, PayloadSegment where, Frame& out) {
    return Parser(bytes, out).run(where);
}

std::optional<ParseError> parse_burst(ByteView bytes, std::uint32_t segment_length,
                                      std::uint32_t index, PayloadSegment where, Frame& out) {
    return Parser(bytes, out).run_burst(segment_length, index, where);
}

bool parse_head(ByteView head, std::size_t length, Frame& out) {
    return Parser(head, out).run_head(length);
}

}  // namespace rdmalab::wire

#include "wire/print.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>

#include "wire/headers.h"

namespace rdmalab::wire {
namespace {

template <class... Values>
void append(std::string& out, const char* format, Values... values) {
    std::array<char, 96> text;
    const int length = std::snprintf(text.data(), text.size(), format, values...);
    out.append(text.data(), std::min(static_cast<std::size_t>(length), text.size() - 1));
}

void append_bth(std::string& out, const Bth& bth) {
    append(out, " qp=0x%" PRIx32 " psn=%" PRIu32, std::uint32_t{bth.destination_qp},
           std::uint32_t{bth.psn});
    if (bth.wants_ack()) out += " ackreq";
    if (bth.solicited()) out += " solicited";
    if ((bth.resv8a & 0x80) != 0) out += " fecn";
    if ((bth.resv8a & 0x40) != 0) out += " becn";
}

void append_syndrome(std::string& out, std::uint8_t syndrome) {
    static constexpr std::array<const char*, 5> kNakNames{
        "psn-sequence", "invalid-request", "remote-access", "remote-operational", "invalid-rd"};
    const unsigned value = syndrome & 0x1fu;
    switch (syndrome & 0xe0u) {
        case 0:
            out += " ack";
            if (value != kSyndromeAck) append(out, " credits=%u", value);
            return;
        case kSyndromeRnr:
            return append(out, " rnr-nak timer=%u", value);
        case kSyndromeNak:
            if (value < kNakNames.size()) return append(out, " nak=%s", kNakNames[value]);
            break;
    }
    append(out, " syndrome=0x%02x", unsigned{syndrome});
}

void append_header(std::string& out, const Xrceth& header) {
    append(out, " srq=0x%" PRIx32, std::uint32_t{header.srq});
}
void append_header(std::string& out, const Deth& header) {
    append(out, " qkey=0x%" PRIx32 " srcqp=0x%" PRIx32, std::uint32_t{header.qkey},
           std::uint32_t{header.source_qp});
}
void append_header(std::string& out, const Reth& header) {
    append(out, " va=0x%" PRIx64 " rkey=0x%" PRIx32 " len=%" PRIu32,
           std::uint64_t{header.virtual_address}, std::uint32_t{header.rkey},
           std::uint32_t{header.length});
}
void append_header(std::string& out, const AtomicEth& header) {
    append(out, " va=0x%" PRIx64 " rkey=0x%" PRIx32, std::uint64_t{header.virtual_address},
           std::uint32_t{header.rkey});
    append(out, " swap_or_add=0x%" PRIx64 " compare=0x%" PRIx64, std::uint64_t{header.swap_or_add},
           std::uint64_t{header.compare});
}
void append_header(std::string& out, const Aeth& header) {
    append_syndrome(out, header.syndrome);
    append(out, " msn=%" PRIu32, std::uint32_t{header.msn});
}
void append_header(std::string& out, const AtomicAckEth& header) {
    append(out, " original=0x%" PRIx64, std::uint64_t{header.original});
}
void append_header(std::string& out, const ImmDt& header) {
    append(out, " imm=0x%" PRIx32, std::uint32_t{header.immediate});
}
void append_header(std::string& out, const Ieth& header) {
    append(out, " invalidate=0x%" PRIx32, std::uint32_t{header.rkey});
}

class ExtensionPrinter {
public:
    ExtensionPrinter(std::string& out, const Frame& frame, const OpcodeInfo& info)
        : out_(out), frame_(frame), info_(info), at_(frame.bth_offset + sizeof(Bth)) {}

    template <class Header>
    void take(ExtensionBits bit) {
        if ((info_.extensions & bit) == 0) return;
        append_header(out_, *header_at<Header>(frame_, at_));
        at_ += sizeof(Header);
    }

private:
    std::string& out_;
    const Frame& frame_;
    const OpcodeInfo& info_;
    std::size_t at_;
};

void append_roce(std::string& out, const Frame& frame) {
    const Bth& bth = *header_at<Bth>(frame, frame.bth_offset);
    const OpcodeInfo* const info = find_opcode(bth.opcode);
    // A rewrite may have put another opcode in place; then the extension headers are unknown.
    const std::size_t extensions = frame.header_length - frame.bth_offset - sizeof bth;
    if (info == nullptr || info->extension_length != extensions) {
        append(out, " opcode=0x%02x", unsigned{bth.opcode});
        return append_bth(out, bth);
    }
    out += ' ';
    out += info->name;
    append_bth(out, bth);
    ExtensionPrinter printer(out, frame, *info);
    printer.take<Xrceth>(kHasXrceth);
    printer.take<Deth>(kHasDeth);
    printer.take<Reth>(kHasReth);
    printer.take<AtomicEth>(kHasAtomicEth);
    printer.take<Aeth>(kHasAeth);
    printer.take<AtomicAckEth>(kHasAtomicAckEth);
    printer.take<ImmDt>(kHasImmDt);
    printer.take<Ieth>(kHasIeth);
}

void append_l4(std::string& out, const Frame& frame) {
    const std::uint8_t protocol = ip_protocol(frame);
    if (protocol != kIpProtocolUdp && protocol != kIpProtocolTcp) {
        const auto type = std::to_integer<unsigned>(frame.header[frame.l4_offset]);
        return append(out, " ICMP type %u", type);
    }
    // The ports of TCP and UDP stand at the same place.
    const auto& ports = *header_at<UdpHeader>(frame, frame.l4_offset);
    append(out, " %s %u > %u", protocol == kIpProtocolUdp ? "UDP" : "TCP",
           unsigned{ports.source_port}, unsigned{ports.destination_port});
}

void append_other(std::string& out, const Frame& frame) {
    if (frame.l4_offset != 0) return append_l4(out, frame);
    if (frame.l3_offset == 0) {
        const auto type =
            load_bytes<Be16>(frame.header.data() + frame.header_length - sizeof(Be16));
        append(out, " type=0x%04x", unsigned{type});
    }
}

}  // namespace

std::string print(const Frame& frame) {
    std::string out;
    if (frame.l3_offset != 0) {
        out = source_gid(frame).to_string() + " > " + destination_gid(frame).to_string();
    } else {
        out = source_mac(frame).to_string() + " > " + destination_mac(frame).to_string();
    }
    if (is_roce(frame)) {
        append_roce(out, frame);
        if (ecn(frame) == kEcnCe) out += " ce";
    } else {
        append_other(out, frame);
    }
    if (frame.payload_length != 0) append(out, " payload %" PRIu32, frame.payload_length);
    return out;
}

}  // namespace rdmalab::wire

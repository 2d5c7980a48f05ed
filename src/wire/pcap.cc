// Blocks are written in the byte order of this machine; the byte-order magic of the section header
// tells a reader which one that is.
#include "wire/pcap.h"

#include <cstring>

namespace rdmalab::wire {
namespace {

constexpr std::uint32_t kSectionHeaderBlock = 0x0a0d'0d0a;
constexpr std::uint32_t kInterfaceBlock = 1;
constexpr std::uint32_t kEnhancedPacketBlock = 6;
constexpr std::uint32_t kByteOrderMagic = 0x1a2b'3c4d;
constexpr std::uint16_t kLinkTypeEthernet = 1;
constexpr std::uint16_t kOptionEnd = 0, kOptionInterfaceName = 2, kOptionTimeResolution = 9,
                        kOptionPacketFlags = 2;
constexpr std::uint8_t kNanoseconds = 9;  // units of 10^-9 seconds
constexpr std::uint32_t kFlagInbound = 1, kFlagOutbound = 2;

using Bytes = std::vector<std::byte>;

template <class T>
void append(Bytes& out, const T& value) {
    const auto* const from = reinterpret_cast<const std::byte*>(&value);
    out.insert(out.end(), from, from + sizeof value);
}

void append_padded(Bytes& out, ByteView bytes) {
    out.insert(out.end(), bytes.begin(), bytes.end());
    out.resize(out.size() + (0u - bytes.size()) % 4);
}

void append_option(Bytes& out, std::uint16_t code, ByteView value) {
    append(out, code);
    append(out, static_cast<std::uint16_t>(value.size()));
    append_padded(out, value);
}

// Opens a block; its total length, which stands at both ends, is filled in by `close_block`.
std::size_t open_block(Bytes& out, std::uint32_t type) {
    const std::size_t start = out.size();
    append(out, type);
    append(out, std::uint32_t{0});
    return start;
}

void close_block(Bytes& out, std::size_t start) {
    const auto length = static_cast<std::uint32_t>(out.size() - start + sizeof(std::uint32_t));
    append(out, length);
    store_bytes(out.data() + start + sizeof(std::uint32_t), length);
}

}  // namespace

std::vector<std::byte> pcapng_header(std::string_view interface_name, std::uint32_t snap_length) {
    Bytes out;
    const std::size_t section = open_block(out, kSectionHeaderBlock);
    append(out, kByteOrderMagic);
    append(out, std::uint16_t{1});  // version 1.0
    append(out, std::uint16_t{0});
    append(out, std::int64_t{-1});  // section length: not given
    close_block(out, section);

    const std::size_t interface = open_block(out, kInterfaceBlock);
    append(out, kLinkTypeEthernet);
    append(out, std::uint16_t{0});
    append(out, snap_length);
    const auto name = interface_name.substr(0, UINT16_MAX);
    append_option(out, kOptionInterfaceName, std::as_bytes(std::span(name)));
    append_option(out, kOptionTimeResolution, std::as_bytes(std::span(&kNanoseconds, 1)));
    append_option(out, kOptionEnd, {});
    close_block(out, interface);
    return out;
}

void append_pcapng_packet(std::vector<std::byte>& out, std::int64_t epoch_ns, ByteView frame,
                          bool inbound) {
    const std::size_t block = open_block(out, kEnhancedPacketBlock);
    const auto time = static_cast<std::uint64_t>(epoch_ns);
    append(out, std::uint32_t{0});  // interface
    append(out, static_cast<std::uint32_t>(time >> 32));
    append(out, static_cast<std::uint32_t>(time));
    append(out, static_cast<std::uint32_t>(frame.size()));  // captured
    append(out, static_cast<std::uint32_t>(frame.size()));  // on the wire
    append_padded(out, frame);
    const std::uint32_t flags = inbound ? kFlagInbound : kFlagOutbound;
    append_option(out, kOptionPacketFlags, std::as_bytes(std::span(&flags, 1)));
    append_option(out, kOptionEnd, {});
    close_block(out, block);
}

}  // namespace rdmalab::wire

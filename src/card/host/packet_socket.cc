#include "card/host/packet_socket.h"

#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "wire/headers.h"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace rdmalab::card::host {
namespace {

// struct virtio_net_hdr, whose kernel header is not C++.
struct VnetHeader {
    std::uint8_t flags, gso_type;
    std::uint16_t header_length, gso_size, checksum_start, checksum_offset;
};
static_assert(sizeof(VnetHeader) == 10);
constexpr std::uint8_t kNeedsChecksum = 1, kGsoUdpL4 = 5;

constexpr std::size_t kFrameMax = 65'535 + 64;
constexpr std::size_t kSendMax = 64;  // bursts of one call
// Holds what peers may have on the way: a QP sends 4 MiB before it wants an answer.
constexpr int kReceiveQueueBytes = 128 << 20, kSendQueueBytes = 8 << 20;
constexpr std::uint16_t kUdpChecksumOffset = 6;

// RoCEv2: whole IPv4 without options or IPv6 without extension headers, UDP, port 4791. The card's
// parser judges what passes.
constexpr sock_filter kRoceFilter[] = {
    BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 0, 7),
    BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 23),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 11),
    BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 20),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x1fff, 9, 0),
    BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 14),
    BPF_STMT(BPF_LD | BPF_H | BPF_IND, 16),
    BPF_JUMP(BPF_JMP | BPF_JA, 4, 0, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IPV6, 0, 5),
    BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 20),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 3),
    BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 56),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, wire::kRoceUdpPort, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, 0xffff'ffff),
    BPF_STMT(BPF_RET | BPF_K, 0),
};
constexpr sock_filter kDropAll[] = {BPF_STMT(BPF_RET | BPF_K, 0)};

template <std::size_t Size>
bool attach(int fd, const sock_filter (&filter)[Size]) {
    const sock_fprog program{Size, const_cast<sock_filter*>(filter)};
    return ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0;
}

bool set_option(int fd, int level, int name, int value) {
    return ::setsockopt(fd, level, name, &value, sizeof value) == 0;
}

// With the rights to it beyond the limits of the system.
void set_queue(int fd, int forced, int plain, int bytes) {
    if (!set_option(fd, SOL_SOCKET, forced, bytes)) set_option(fd, SOL_SOCKET, plain, bytes);
}

// One socket for both families, if the kernel has both.
Result<UniqueFd> open_silencer(const std::string& netdev) {
    constexpr int kKind = SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    UniqueFd fd(::socket(AF_INET6, kKind, 0));
    const bool has_ipv6 = static_cast<bool>(fd);
    if (!has_ipv6) fd.reset(::socket(AF_INET, kKind, 0));
    if (!fd || !attach(fd.value(), kDropAll)) return system_error("cannot open a UDP socket");
    set_option(fd.value(), SOL_SOCKET, SO_RCVBUF, 0);
    // Without it the kernel would cut bursts into frames before it drops them.
    set_option(fd.value(), IPPROTO_UDP, UDP_GRO, 1);
    if (has_ipv6) set_option(fd.value(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (::setsockopt(fd.value(), SOL_SOCKET, SO_BINDTODEVICE, netdev.c_str(),
                     static_cast<socklen_t>(netdev.size())) != 0) {
        return system_error(fmt::format("cannot bind to {}", netdev));
    }
    sockaddr_in6 ipv6{};
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(wire::kRoceUdpPort);
    sockaddr_in ipv4{};
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(wire::kRoceUdpPort);
    const auto* const address =
        has_ipv6 ? reinterpret_cast<const sockaddr*>(&ipv6) : reinterpret_cast<sockaddr*>(&ipv4);
    if (::bind(fd.value(), address, has_ipv6 ? sizeof ipv6 : sizeof ipv4) == 0) return fd;
    if (errno != EADDRINUSE) return system_error("cannot bind to UDP port 4791");
    return Error{EADDRINUSE,
                 fmt::format("UDP port {} of {} is in use: another card or the kernel's own RoCE "
                             "(rdma_rxe) serves this interface",
                             wire::kRoceUdpPort, netdev)};
}

VnetHeader header_for(const UplinkBurst& burst) {
    VnetHeader header{};
    if (burst.segment_length == 0) return header;
    header.flags = kNeedsChecksum;
    header.gso_type = kGsoUdpL4;
    header.header_length = static_cast<std::uint16_t>(burst.head.size());
    header.gso_size = static_cast<std::uint16_t>(burst.segment_length);
    header.checksum_start = burst.l4_offset;
    header.checksum_offset = kUdpChecksumOffset;
    return header;
}

iovec piece(ByteView bytes) { return {const_cast<std::byte*>(bytes.data()), bytes.size()}; }

}  // namespace

// What recvmmsg and sendmmsg work on.
struct PacketSocket::Buffers {
    std::array<std::vector<std::byte>, kReceiveMax> frames;
    std::array<VnetHeader, kReceiveMax> headers{};
    std::array<std::array<iovec, 2>, kReceiveMax> receive_pieces{};
    std::array<mmsghdr, kReceiveMax> receive_messages{};
    std::array<Received, kReceiveMax> received{};
    std::array<VnetHeader, kSendMax> send_headers{};
    std::array<std::array<iovec, 3>, kSendMax> send_pieces{};
    std::array<mmsghdr, kSendMax> send_messages{};

    Buffers() {
        for (std::size_t i = 0; i < kReceiveMax; ++i) {
            frames[i].resize(kFrameMax);
            receive_pieces[i] = {iovec{&headers[i], sizeof headers[i]},
                                 iovec{frames[i].data(), frames[i].size()}};
            receive_messages[i].msg_hdr.msg_iov = receive_pieces[i].data();
            receive_messages[i].msg_hdr.msg_iovlen = receive_pieces[i].size();
        }
        for (std::size_t i = 0; i < kSendMax; ++i)
            send_messages[i].msg_hdr.msg_iov = send_pieces[i].data();
    }
};

void PacketSocket::FreeBuffers::operator()(Buffers* buffers) const { delete buffers; }

PacketSocket::PacketSocket(UniqueFd fd, UniqueFd silencer)
    : fd_(std::move(fd)), silencer_(std::move(silencer)), buffers_(new Buffers) {}

Result<PacketSocket> PacketSocket::open(const std::string& netdev, int interface) {
    // Protocol 0: nothing is received before the filter is there.
    UniqueFd fd(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) {
        const Error error =
            system_error(fmt::format("uplink {}: cannot open a packet socket", netdev));
        if (error.code != EPERM) return error;
        return Error{EPERM, error.text +
                                "; an uplink needs CAP_NET_RAW: root, or setcap "
                                "cap_net_raw,cap_net_admin+ep on rdmalab-card"};
    }
    auto silencer = open_silencer(netdev);
    if (!silencer.ok())
        return Error{silencer.error().code,
                     fmt::format("uplink {}: {}", netdev, silencer.error().text)};
    PacketSocket made(std::move(fd), std::move(*silencer));
    if (Status tuned = made.tune(netdev, interface); !tuned) return tuned.error();
    return made;
}

Status PacketSocket::tune(const std::string& netdev, int interface) {
    const int fd = fd_.value();
    interface_ = interface;
    packet_mreq all_multicast{};
    all_multicast.mr_ifindex = interface;
    all_multicast.mr_type = PACKET_MR_ALLMULTI;
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = interface;
    set_queue(fd, SO_RCVBUFFORCE, SO_RCVBUF, kReceiveQueueBytes);
    set_queue(fd, SO_SNDBUFFORCE, SO_SNDBUF, kSendQueueBytes);
    const bool done = attach(fd, kRoceFilter) && set_option(fd, SOL_PACKET, PACKET_VNET_HDR, 1) &&
                      set_option(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1) &&
                      ::setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all_multicast,
                                   sizeof all_multicast) == 0 &&
                      ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    if (done) return {};
    return system_error(fmt::format("uplink {}: cannot set up the packet socket", netdev));
}

std::size_t PacketSocket::send(std::span<const UplinkBurst> bursts, SendError& error) {
    Buffers& b = *buffers_;
    error = SendError::kNone;
    std::size_t done = 0;
    while (done < bursts.size()) {
        const std::size_t count = std::min(bursts.size() - done, kSendMax);
        for (std::size_t i = 0; i < count; ++i) {
            const UplinkBurst& burst = bursts[done + i];
            b.send_headers[i] = header_for(burst);
            std::size_t pieces = 0;
            b.send_pieces[i][pieces++] = {&b.send_headers[i], sizeof b.send_headers[i]};
            if (!burst.head.empty()) b.send_pieces[i][pieces++] = piece(burst.head);
            b.send_pieces[i][pieces++] = piece(burst.payload);
            b.send_messages[i].msg_hdr.msg_iovlen = pieces;
        }
        const int sent =
            ::sendmmsg(fd_.value(), b.send_messages.data(), static_cast<unsigned>(count), 0);
        if (sent > 0) {
            done += static_cast<std::size_t>(sent);
            continue;
        }
        if (errno == EINTR) continue;
        if (errno == ENOBUFS) {  // a queue of the interface was full: lost, as on any wire
            ++done;
            continue;
        }
        const bool is_burst = bursts[done].segment_length != 0;
        error = errno == EAGAIN                       ? SendError::kFull
                : errno == EINVAL && is_burst         ? SendError::kNoBursts
                : errno == ENETDOWN || errno == ENXIO ? SendError::kDown
                                                      : SendError::kOther;
        return done;
    }
    return done;
}

std::span<const PacketSocket::Received> PacketSocket::receive() {
    Buffers& b = *buffers_;
    const int count =
        ::recvmmsg(fd_.value(), b.receive_messages.data(), kReceiveMax, MSG_DONTWAIT, nullptr);
    if (count <= 0) return {};
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        const std::size_t length = b.receive_messages[i].msg_len;
        const std::size_t header = sizeof b.headers[i];
        b.received[i].bytes = ByteView(b.frames[i]).first(length > header ? length - header : 0);
        b.received[i].segment_length =
            b.headers[i].gso_type == kGsoUdpL4 ? std::uint32_t{b.headers[i].gso_size} : 0;
    }
    return std::span(b.received).first(static_cast<std::size_t>(count));
}

std::uint64_t PacketSocket::count_overruns() {
    tpacket_stats stats{};  // the kernel counts from the last look
    socklen_t length = sizeof stats;
    if (::getsockopt(fd_.value(), SOL_PACKET, PACKET_STATISTICS, &stats, &length) == 0)
        overruns_ += stats.tp_drops;
    return overruns_;
}

void PacketSocket::nudge(const Gid& address) {
    sockaddr_in6 to{};
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(wire::kRoceUdpPort);
    std::copy(address.bytes.begin(), address.bytes.end(), to.sin6_addr.s6_addr);
    to.sin6_scope_id = static_cast<std::uint32_t>(interface_);
    [[maybe_unused]] const ssize_t sent = ::sendto(
        silencer_.value(), nullptr, 0, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
}

}  // namespace rdmalab::card::host

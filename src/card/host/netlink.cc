#include "card/host/netlink.h"

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace rdmalab::card::host {
namespace {

// A request under construction.
class Request {
public:
    template <class Body>
    Request(std::uint16_t type, std::uint16_t flags, const Body& body) {
        bytes_.resize(NLMSG_SPACE(sizeof body));
        nlmsghdr header{};
        header.nlmsg_type = type;
        header.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
        store_bytes(bytes_.data(), header);
        store_bytes(bytes_.data() + NLMSG_HDRLEN, body);
    }
    void add(std::uint16_t type, const void* data, std::size_t length) {
        const std::size_t at = bytes_.size();
        bytes_.resize(at + RTA_SPACE(length));
        const rtattr attribute{static_cast<unsigned short>(RTA_LENGTH(length)), type};
        store_bytes(bytes_.data() + at, attribute);
        std::memcpy(bytes_.data() + at + RTA_LENGTH(0), data, length);
    }
    void add(std::uint16_t type, const Gid& address) {
        if (address.is_ipv4())
            add(type, address.bytes.data() + 12, 4);
        else
            add(type, address.bytes.data(), 16);
    }
    std::vector<std::byte>& bytes() { return bytes_; }

private:
    std::vector<std::byte> bytes_;
};

std::uint8_t family_of(const Gid& address) { return address.is_ipv4() ? AF_INET : AF_INET6; }

Gid address_from(ByteView bytes) {
    Gid gid;
    if (bytes.size() == 4) {
        gid = Gid::from_ipv4(0);
        std::memcpy(gid.bytes.data() + 12, bytes.data(), 4);
    } else if (bytes.size() == 16) {
        std::memcpy(gid.bytes.data(), bytes.data(), 16);
    }
    return gid;
}

// Calls `handle(type, data)` for the attributes behind a body of `body_length`.
template <class Handle>
void for_each_attribute(ByteView message, std::size_t body_length, Handle&& handle) {
    std::size_t at = NLMSG_SPACE(body_length);
    while (at + sizeof(rtattr) <= message.size()) {
        const auto attribute = load_bytes<rtattr>(message.data() + at);
        if (attribute.rta_len < sizeof attribute || at + attribute.rta_len > message.size()) return;
        handle(attribute.rta_type,
               message.subspan(at + RTA_LENGTH(0), attribute.rta_len - RTA_LENGTH(0)));
        at += RTA_ALIGN(attribute.rta_len);
    }
}

template <class Body>
std::optional<Body> body_of(ByteView message) {
    if (message.size() < NLMSG_LENGTH(sizeof(Body))) return std::nullopt;
    return load_bytes<Body>(message.data() + NLMSG_HDRLEN);
}

Result<UniqueFd> open_socket(std::uint32_t groups) {
    UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = groups;
    if (!fd ||
        ::bind(fd.value(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        return system_error("cannot reach the kernel's routing tables (netlink)");
    }
    return fd;
}

NeighbourState state_of(std::uint16_t nud) {
    constexpr std::uint16_t kKnown =
        NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;
    if ((nud & kKnown) != 0) return NeighbourState::kKnown;
    if ((nud & NUD_INCOMPLETE) != 0) return NeighbourState::kAsking;
    return (nud & NUD_FAILED) != 0 ? NeighbourState::kFailed : NeighbourState::kUnknown;
}

}  // namespace

Result<Netlink> Netlink::open() {
    auto fd = open_socket(0);
    if (!fd.ok()) return fd.error();
    return Netlink(std::move(*fd));
}

Result<UniqueFd> Netlink::listen(std::uint32_t groups) { return open_socket(groups); }

ByteView Netlink::call(std::vector<std::byte>& request, int& error) {
    auto header = load_bytes<nlmsghdr>(request.data());
    header.nlmsg_len = static_cast<std::uint32_t>(request.size());
    header.nlmsg_seq = ++sequence_;
    store_bytes(request.data(), header);
    error = EIO;
    if (::send(fd_.value(), request.data(), request.size(), 0) < 0) {
        error = errno;
        return {};
    }
    // The kernel answers within send; an older answer is passed over.
    while (true) {
        const ssize_t length = ::recv(fd_.value(), buffer_.data(), buffer_.size(), 0);
        if (length < static_cast<ssize_t>(sizeof(nlmsghdr))) return {};
        const auto answer = load_bytes<nlmsghdr>(buffer_.data());
        if (answer.nlmsg_seq != sequence_ ||
            answer.nlmsg_len > static_cast<std::uint32_t>(length)) {
            continue;
        }
        const ByteView message = ByteView(buffer_).first(answer.nlmsg_len);
        error = 0;
        if (answer.nlmsg_type != NLMSG_ERROR) return message;
        const auto failed = body_of<nlmsgerr>(message);
        error = failed ? -failed->error : EIO;
        return {};
    }
}

std::optional<KernelRoute> Netlink::find_route(const Gid& destination, int interface) {
    rtmsg body{};
    body.rtm_family = family_of(destination);
    body.rtm_dst_len = destination.is_ipv4() ? 32 : 128;
    Request request(RTM_GETROUTE, 0, body);
    request.add(RTA_DST, destination);
    if (interface != 0) request.add(RTA_OIF, &interface, sizeof interface);
    int error = 0;
    const ByteView answer = call(request.bytes(), error);
    const auto found = body_of<rtmsg>(answer);
    if (!found || (found->rtm_type != RTN_UNICAST && found->rtm_type != RTN_LOCAL)) return {};
    KernelRoute route;
    route.next_hop = destination;
    route.is_local = found->rtm_type == RTN_LOCAL;
    for_each_attribute(answer, sizeof(rtmsg), [&](std::uint16_t type, ByteView data) {
        if (type == RTA_OIF && data.size() == sizeof(int))
            route.interface = load_bytes<int>(data.data());
        if (type == RTA_PREFSRC) route.source = address_from(data);
        if (type == RTA_GATEWAY) route.next_hop = address_from(data);
        // A gateway of the other family: two bytes of family, then the address.
        if (type == RTA_VIA && data.size() > 2) route.next_hop = address_from(data.subspan(2));
    });
    return route;
}

KernelNeighbour Netlink::find_neighbour(int interface, const Gid& address) {
    ndmsg body{};
    body.ndm_family = family_of(address);
    body.ndm_ifindex = interface;
    Request request(RTM_GETNEIGH, 0, body);
    request.add(NDA_DST, address);
    int error = 0;
    const ByteView answer = call(request.bytes(), error);
    const auto found = body_of<ndmsg>(answer);
    if (!found) return {};
    KernelNeighbour neighbour;
    neighbour.state = state_of(found->ndm_state);
    bool has_mac = false;
    for_each_attribute(answer, sizeof(ndmsg), [&](std::uint16_t type, ByteView data) {
        if (type != NDA_LLADDR || data.size() != neighbour.mac.bytes.size()) return;
        std::memcpy(neighbour.mac.bytes.data(), data.data(), data.size());
        has_mac = true;
    });
    if (neighbour.state == NeighbourState::kKnown && !has_mac)
        neighbour.state = NeighbourState::kFailed;
    return neighbour;
}

bool Netlink::ask_for(int interface, const Gid& address) {
    ndmsg body{};
    body.ndm_family = family_of(address);
    body.ndm_ifindex = interface;
    body.ndm_flags = NTF_USE;
    Request request(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_ACK, body);
    request.add(NDA_DST, address);
    int error = 0;
    call(request.bytes(), error);
    return error == 0;
}

bool Netlink::read_changes(int fd, const std::function<void(const Change&)>& handle) {
    alignas(nlmsghdr) std::array<std::byte, kBufferSize> buffer;
    while (true) {
        const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), 0);
        if (got < 0) return errno != ENOBUFS;
        ByteView rest = ByteView(buffer).first(static_cast<std::size_t>(got));
        while (rest.size() >= sizeof(nlmsghdr)) {
            const auto header = load_bytes<nlmsghdr>(rest.data());
            if (header.nlmsg_len < sizeof header || header.nlmsg_len > rest.size()) break;
            const ByteView message = rest.first(header.nlmsg_len);
            Change change;
            change.type = header.nlmsg_type;
            if (const auto link = body_of<ifinfomsg>(message);
                link && (change.type == RTM_NEWLINK || change.type == RTM_DELLINK)) {
                change.interface = link->ifi_index;
                change.flags = link->ifi_flags;
            } else if (const auto neighbour = body_of<ndmsg>(message);
                       neighbour && (change.type == RTM_NEWNEIGH || change.type == RTM_DELNEIGH)) {
                change.interface = neighbour->ndm_ifindex;
            }
            handle(change);
            rest = rest.subspan(std::min<std::size_t>(NLMSG_ALIGN(header.nlmsg_len), rest.size()));
        }
    }
}

}  // namespace rdmalab::card::host

// The kernel's tables of interfaces, addresses, routes and neighbours, by rtnetlink(7). One socket
// asks (its answers come within the call), another listens for changes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/address.h"
#include "base/bytes.h"
#include "base/result.h"
#include "card/host/descriptor.h"

namespace rdmalab::card::host {

struct KernelRoute {
    int interface = 0;
    Gid source;    // zero: the kernel names none
    Gid next_hop;  // the destination itself when it is on the link
    bool is_local = false;
};

enum class NeighbourState : std::uint8_t { kUnknown, kAsking, kFailed, kKnown };
struct KernelNeighbour {
    NeighbourState state = NeighbourState::kUnknown;
    MacAddress mac;
};

class Netlink {
public:
    static Result<Netlink> open();

    // `interface` 0: any. nullopt: there is no route.
    std::optional<KernelRoute> find_route(const Gid& destination, int interface);
    KernelNeighbour find_neighbour(int interface, const Gid& address);
    // The kernel is to find out about it, as if it had something to send. Needs CAP_NET_ADMIN.
    bool ask_for(int interface, const Gid& address);

    // What changes may be heard of: bits of RTMGRP_*.
    static Result<UniqueFd> listen(std::uint32_t groups);
    struct Change {
        std::uint16_t type = 0;  // RTM_NEWLINK, RTM_NEWNEIGH, ...
        int interface = 0;
        std::uint32_t flags = 0;  // of a link: IFF_*
    };
    // Reads what has come; false when messages were lost, so that everything may have changed.
    static bool read_changes(int fd, const std::function<void(const Change&)>& handle);

private:
    explicit Netlink(UniqueFd fd) : fd_(std::move(fd)), buffer_(kBufferSize) {}
    static constexpr std::size_t kBufferSize = 16 * 1024;

    // The answer of one message; empty when there is none, with the kernel's error in `error`.
    ByteView call(std::vector<std::byte>& request, int& error);

    UniqueFd fd_;
    std::uint32_t sequence_ = 0;
    std::vector<std::byte> buffer_;
};

}  // namespace rdmalab::card::host

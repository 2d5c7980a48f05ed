#include "card/host/uplinks.h"

#include <fmt/format.h>
#include <linux/rtnetlink.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>

#include "base/limits.h"
#include "card/host/clock.h"
#include "card/host/interface_facts.h"

namespace rdmalab::card::host {
namespace {

// How long the card looks out for the next frame after one.
constexpr Duration kBusyTime = microseconds(200);
// The kernel asks a neighbour three times, a second apart.
constexpr Duration kAnswerTime = seconds(4);
constexpr Duration kLookTime = milliseconds(250);

// fe80:: with the EUI-64 of a MAC: no neighbour needs to be asked for it.
std::optional<MacAddress> mac_from_link_local(const Gid& gid) {
    const auto& b = gid.bytes;
    if (!gid.is_link_local() || b[11] != 0xff || b[12] != 0xfe) return std::nullopt;
    return MacAddress{{static_cast<std::uint8_t>(b[8] ^ 2), b[9], b[10], b[13], b[14], b[15]}};
}

Error wrong(const std::string& netdev, std::string_view what) {
    return {EINVAL, fmt::format("uplink {}: {}", netdev, what)};
}

// The PF takes what its interface has. Addresses that the topology gives must be among them; they
// choose and order its GIDs.
Status adopt(FunctionConfig& pf, const InterfaceFacts& facts, const std::string& netdev) {
    pf.mac = facts.mac;
    pf.netdev = netdev;
    const auto length_of = [&](const Gid& ip) -> std::optional<std::uint8_t> {
        for (const auto& address : facts.addresses)
            if (address.gid == ip) return address.prefix_length;
        return std::nullopt;
    };
    if (pf.ips.empty()) {
        for (const auto& address : facts.addresses) {
            if (pf.ips.size() + 1 == limits::kGidMax) break;
            pf.ips.push_back(address.gid);
            pf.prefix_lengths.push_back(address.prefix_length);
        }
        return {};
    }
    for (std::size_t i = 0; i < pf.ips.size(); ++i) {
        const auto length = length_of(pf.ips[i]);
        if (!length)
            return wrong(netdev, fmt::format("expected it to have the address {} of {}; 'ip "
                                             "address add {}/{} dev {}' gives it",
                                             pf.ips[i].to_string(), pf.device,
                                             pf.ips[i].to_string(), pf.prefix_lengths[i], netdev));
        pf.prefix_lengths[i] = *length;
    }
    return {};
}

}  // namespace

Result<std::unique_ptr<Uplinks>> Uplinks::open(CardConfig& config) {
    auto netlink = Netlink::open();
    if (!netlink.ok()) return netlink.error();
    std::unique_ptr<Uplinks> uplinks(new Uplinks(std::move(*netlink)));
    auto changes = Netlink::listen(RTMGRP_LINK | RTMGRP_NEIGH);
    if (!changes.ok()) return changes.error();
    uplinks->changes_ = std::move(*changes);
    uplinks->timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!uplinks->timer_) return system_error("cannot make a timer");
    for (std::uint32_t port = 0; port < config.ports.size(); ++port) {
        if (config.ports[port].uplink.empty()) continue;
        if (Status added = uplinks->add(config, port); !added) return added.error();
    }
    return uplinks;
}

Uplinks::~Uplinks() {
    if (poller_ == nullptr) return;
    poller_->remove(changes_watch_);
    poller_->remove(timer_watch_);
    for (const auto& uplink : uplinks_) poller_->remove(uplink->watch);
}

Status Uplinks::add(CardConfig& config, std::uint32_t port) {
    const std::string& netdev = config.ports[port].uplink;
    const auto facts = find_interface(netdev);
    if (!facts.ok()) return Error{facts.error().code, "uplink: " + facts.error().text};
    if (!facts->is_ethernet) return wrong(netdev, "expected an Ethernet interface, found another");
    const std::uint32_t mtu = roce_mtu_for(facts->mtu);
    if (mtu == 0)
        return wrong(netdev, fmt::format("expected an MTU of at least 352, found {}", facts->mtu));
    auto pf = std::find_if(config.functions.begin(), config.functions.end(),
                           [&](const FunctionConfig& function) {
                               return function.device == config.ports[port].pf_device;
                           });
    if (Status adopted = adopt(*pf, *facts, netdev); !adopted) return adopted;
    config.port_mtu = std::min(config.port_mtu, mtu);
    auto socket = PacketSocket::open(netdev, facts->index);
    if (!socket.ok()) return socket.error();
    auto uplink = std::make_unique<Uplink>();
    uplink->port = port;
    uplink->function = static_cast<std::uint32_t>(pf - config.functions.begin());
    uplink->interface = facts->index;
    uplink->socket = std::make_unique<PacketSocket>(std::move(*socket));
    uplink->facts.netdev = netdev;
    uplink->facts.mtu = facts->mtu;
    uplink->facts.is_up = facts->is_up;
    uplink->facts.has_bursts = config.ports[port].may_burst;
    uplinks_.push_back(std::move(uplink));
    return {};
}

Status Uplinks::start(Card& card, Poller& poller, std::function<void()> on_neighbours) {
    card_ = &card;
    poller_ = &poller;
    on_neighbours_ = std::move(on_neighbours);
    changes_watch_ =
        poller.add(changes_.value(), EPOLLIN, [this](std::uint32_t) { hear_changes(); });
    timer_watch_ = poller.add(timer_.value(), EPOLLIN, [this](std::uint32_t) {
        std::uint64_t expirations = 0;
        if (::read(timer_.value(), &expirations, sizeof expirations) > 0) look_again();
    });
    if (changes_watch_ == Poller::kNone || timer_watch_ == Poller::kNone)
        return system_error("cannot watch the network");
    for (const auto& uplink : uplinks_) {
        uplink->watch = poller.add(
            uplink->socket->fd(), EPOLLIN,
            [this, one = uplink.get()](std::uint32_t events) { handle_events(*one, events); });
        if (uplink->watch == Poller::kNone)
            return system_error(fmt::format("cannot watch uplink {}", uplink->facts.netdev));
        card.set_uplink_state(uplink->port, uplink->facts.is_up);
    }
    return {};
}

// --- Frames

void Uplinks::handle_events(Uplink& uplink, std::uint32_t events) {
    if ((events & EPOLLOUT) != 0) {
        want_room(uplink, false);
        card_->resume_uplink(uplink.port);
    }
    receive(uplink);
}

bool Uplinks::poll() {
    bool any = false;
    for (const auto& uplink : uplinks_) any |= receive(*uplink);
    return any;
}

bool Uplinks::is_busy(Instant now) const { return now - last_frame_ < kBusyTime; }

// The round at the end reads the payload out of the socket's buffers, before they are used again.
bool Uplinks::receive(Uplink& uplink) {
    const auto received = uplink.socket->receive();
    if (received.empty()) return false;
    const Instant now = monotonic_now();
    last_frame_ = now;
    for (const PacketSocket::Received& one : received) {
        if (one.segment_length != 0) ++uplink.facts.rx_bursts;
        card_->handle_uplink(uplink.port, one.bytes, one.segment_length, now);
    }
    card_->poll(now);
    return true;
}

std::size_t Uplinks::send(std::uint32_t port, std::span<const UplinkBurst> bursts) {
    const auto found = std::find_if(uplinks_.begin(), uplinks_.end(),
                                    [&](const auto& uplink) { return uplink->port == port; });
    Uplink& uplink = **found;
    std::size_t done = 0;
    while (done < bursts.size()) {
        auto error = PacketSocket::SendError::kNone;
        const std::size_t sent = uplink.socket->send(bursts.subspan(done), error);
        for (const UplinkBurst& burst : bursts.subspan(done, sent))
            if (burst.segment_length != 0) ++uplink.facts.tx_bursts;
        done += sent;
        if (error == PacketSocket::SendError::kNone) break;
        if (error == PacketSocket::SendError::kFull) {
            want_room(uplink, true);
            break;
        }
        if (error == PacketSocket::SendError::kNoBursts && uplink.facts.has_bursts) {
            spdlog::info("{} takes no bursts", uplink.facts.netdev);
            uplink.facts.has_bursts = false;
            card_->forbid_bursts(port);
        }
        // Lost, as on a wire that is cut. The peers' retries tell who minds.
        ++uplink.facts.tx_lost;
        ++done;
    }
    return done;
}

void Uplinks::want_room(Uplink& uplink, bool on) {
    if (uplink.wants_room == on) return;
    uplink.wants_room = on;
    poller_->change(uplink.watch, on ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

// --- State of the wire

void Uplinks::set_state(Uplink& uplink, bool is_up) {
    if (uplink.facts.is_up == is_up) return;
    uplink.facts.is_up = is_up;
    spdlog::info("uplink {} is {}", uplink.facts.netdev, is_up ? "up" : "down");
    card_->set_uplink_state(uplink.port, is_up);
}

void Uplinks::hear_changes() {
    bool has_neighbours = false;
    const auto hear = [&](const Netlink::Change& change) {
        has_neighbours |= change.type == RTM_NEWNEIGH || change.type == RTM_DELNEIGH;
        for (const auto& uplink : uplinks_) {
            if (uplink->interface != change.interface) continue;
            if (change.type == RTM_NEWLINK) set_state(*uplink, is_up(change.flags));
            if (change.type == RTM_DELLINK) set_state(*uplink, false);
        }
    };
    if (!Netlink::read_changes(changes_.value(), hear)) {
        has_neighbours = true;
        for (const auto& uplink : uplinks_) {
            const auto facts = find_interface(uplink->facts.netdev);
            set_state(*uplink, facts.ok() && facts->is_up);
        }
    }
    if (has_neighbours && !asked_.empty()) on_neighbours_();
}

// --- Neighbours

std::optional<NeighbourPort::Route> Uplinks::find_route(const Gid& peer) {
    const auto route = netlink_.find_route(peer, 0);
    if (!route || route->is_local) return std::nullopt;
    for (const auto& uplink : uplinks_)
        if (uplink->interface == route->interface)
            return NeighbourPort::Route{uplink->function, route->source};
    return std::nullopt;
}

Result<MacAddress> Uplinks::find_neighbour(std::uint32_t function, const Gid& peer) {
    const auto found = std::find_if(uplinks_.begin(), uplinks_.end(), [&](const auto& uplink) {
        return uplink->function == function;
    });
    if (found == uplinks_.end()) return Error{EHOSTUNREACH, "the device has no uplink"};
    if (const auto mac = mac_from_link_local(peer)) return *mac;
    Uplink& uplink = **found;
    const auto route = netlink_.find_route(peer, uplink.interface);
    if (!route || route->is_local || route->interface != uplink.interface)
        return Error{EHOSTUNREACH,
                     fmt::format("{} has no route to {}", uplink.facts.netdev, peer.to_string())};
    const KernelNeighbour neighbour = netlink_.find_neighbour(uplink.interface, route->next_hop);
    if (neighbour.state == NeighbourState::kKnown) {
        asked_.erase({uplink.interface, route->next_hop});
        return neighbour.mac;
    }
    const auto asked = asked_.find({uplink.interface, route->next_hop});
    if (asked == asked_.end()) return await(uplink, route->next_hop);
    const bool is_over = neighbour.state == NeighbourState::kFailed ||
                         monotonic_now() - asked->second >= kAnswerTime;
    if (!is_over) return Error{kAwaitsNeighbour, ""};
    asked_.erase(asked);
    return Error{EHOSTUNREACH, fmt::format("{} does not answer on {}", route->next_hop.to_string(),
                                           uplink.facts.netdev)};
}

Result<MacAddress> Uplinks::await(Uplink& uplink, const Gid& next_hop) {
    if (!netlink_.ask_for(uplink.interface, next_hop)) uplink.socket->nudge(next_hop);
    // A neighbour on the same machine has often answered already.
    const KernelNeighbour neighbour = netlink_.find_neighbour(uplink.interface, next_hop);
    if (neighbour.state == NeighbourState::kKnown) return neighbour.mac;
    if (asked_.empty()) keep_looking(true);
    asked_.emplace(std::pair(uplink.interface, next_hop), monotonic_now());
    return Error{kAwaitsNeighbour, ""};
}

// The kernel tells of most changes; this is for those that it does not tell of, and for the end.
void Uplinks::look_again() {
    on_neighbours_();
    // Who asked may have gone without waiting for the answer.
    const Instant now = monotonic_now();
    std::erase_if(asked_, [&](const auto& entry) { return now - entry.second >= kAnswerTime * 2; });
    if (asked_.empty()) keep_looking(false);
}

void Uplinks::keep_looking(bool on) {
    itimerspec times{};
    if (on) times.it_value.tv_nsec = times.it_interval.tv_nsec = kLookTime.ns;
    ::timerfd_settime(timer_.value(), 0, &times, nullptr);
}

std::optional<Uplinks::Facts> Uplinks::facts(std::uint32_t port) const {
    for (const auto& uplink : uplinks_) {
        if (uplink->port != port) continue;
        Facts facts = uplink->facts;
        facts.overruns = uplink->socket->count_overruns();
        return facts;
    }
    return std::nullopt;
}

}  // namespace rdmalab::card::host

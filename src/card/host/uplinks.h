// The uplinks of a card: ports that lead to a network interface of this host, and through it to
// other hosts.
//
// As with a RoCE adapter, device and interface are one: the PF has the MAC and the addresses of its
// interface, and the kernel's routes and neighbours are its own. So ARP and ND, gateways, and what
// happens when a neighbour moves are the kernel's work. The card asks its tables when an address
// handle or a connection is made, and makes the kernel ask when a neighbour is not known yet.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "card/card.h"
#include "card/config.h"
#include "card/host/netlink.h"
#include "card/host/packet_socket.h"
#include "card/host/poller.h"
#include "card/neighbour_port.h"

namespace rdmalab::card::host {

class Uplinks {
public:
    struct Facts {
        std::string netdev;
        std::uint32_t mtu = 0;  // of the interface
        bool is_up = false, has_bursts = false;
        std::uint64_t overruns = 0, tx_bursts = 0, rx_bursts = 0, tx_lost = 0;
    };

    // Opens the interfaces that the configuration names, and completes it: MAC, addresses, MTU.
    static Result<std::unique_ptr<Uplinks>> open(CardConfig& config);
    ~Uplinks();

    // From here on frames flow. `card` and `poller` outlive the uplinks. `on_neighbours` is called
    // when a neighbour that has been asked for may be known.
    Status start(Card& card, Poller& poller, std::function<void()> on_neighbours);
    // Hands on what has come and carries out the copies that it asks for. True: there was
    // something.
    bool poll();
    // A frame came not long ago: more are likely to follow.
    bool is_busy(Instant now) const;

    // HostPort
    std::size_t send(std::uint32_t port, std::span<const UplinkBurst> bursts);
    std::optional<NeighbourPort::Route> find_route(const Gid& peer);
    Result<MacAddress> find_neighbour(std::uint32_t function, const Gid& peer);

    std::optional<Facts> facts(std::uint32_t port) const;

private:
    struct Uplink {
        std::uint32_t port = 0, function = 0;
        int interface = 0;
        std::unique_ptr<PacketSocket> socket;
        Facts facts;
        bool wants_room = false;
        Poller::Token watch = Poller::kNone;
    };
    explicit Uplinks(Netlink netlink) : netlink_(std::move(netlink)) {}
    Status add(CardConfig& config, std::uint32_t port);
    bool receive(Uplink& uplink);
    void handle_events(Uplink& uplink, std::uint32_t events);
    void want_room(Uplink& uplink, bool on);
    void set_state(Uplink& uplink, bool is_up);
    void hear_changes();
    Result<MacAddress> await(Uplink& uplink, const Gid& next_hop);
    void look_again();
    void keep_looking(bool on);

    Netlink netlink_;
    UniqueFd changes_, timer_;
    std::vector<std::unique_ptr<Uplink>> uplinks_;
    std::map<std::pair<int, Gid>, Instant> asked_;  // interface, neighbour: since when
    std::function<void()> on_neighbours_;
    Instant last_frame_{0};
    Card* card_ = nullptr;
    Poller* poller_ = nullptr;
    Poller::Token changes_watch_ = Poller::kNone, timer_watch_ = Poller::kNone;
};

}  // namespace rdmalab::card::host

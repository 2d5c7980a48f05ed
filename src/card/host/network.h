// What `--netns` adds to a card: the network namespaces of its topology, and in them a network
// interface (TAP) for each function that has one. What the kernel sends there enters the card's
// e-switch at the function, and what reaches the function and is not RoCE is received by the
// kernel: both kinds of traffic share switch, cable and pipes.
//
// A program sees the devices of its own network namespace; in that of the card these are the
// functions that the topology puts into none.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "card/card.h"
#include "card/config.h"
#include "card/host/namespaces.h"
#include "card/host/poller.h"
#include "card/host/tap.h"

namespace rdmalab::card::host {

class Network {
public:
    struct Counters {
        std::uint64_t tx_frames = 0, tx_bytes = 0;  // sent by the kernel
        std::uint64_t rx_frames = 0, rx_bytes = 0;  // received by it
        std::uint64_t rx_dropped = 0;               // what it did not take
        std::uint64_t malformed = 0;                // sent by it, not what their headers claim
    };

    // Makes namespaces and interfaces, and removes first what a dead card of this name left.
    // `folder`: the runtime folder. Programs that ip-netns(8) starts in the namespaces find
    // `libraries` before those of the system, unless it is empty.
    static Result<std::unique_ptr<Network>> create(const CardConfig& config,
                                                   const std::string& folder,
                                                   const std::string& libraries);
    ~Network();

    // From here on frames flow. `card`, `poller` and `memory` outlive the interfaces.
    Status start(Card& card, Poller& poller, transport::MemoryPort& memory);
    void stop();
    // Hands on what the kernel has sent: a look at every interface without a wait for events.
    // True when there was something.
    bool poll();
    // A frame went through an interface not long ago: more are likely to follow.
    bool is_busy(Instant now) const;

    // Where the card listens within each namespace (abi::kAbstractSocket).
    const std::vector<UniqueFd>& listeners() const { return listeners_; }

    // HostPort::deliver_to_netdev.
    bool deliver(std::uint32_t function, const wire::Frame& frame);

    bool has_netdev(std::uint32_t function) const { return netdevs_[function] != nullptr; }
    const Counters& counters(std::uint32_t function) const { return netdevs_[function]->counters; }

    // Bit i: a process sees device i.
    std::uint64_t visible_to(pid_t pid) const;
    // "network namespace ns0", for texts.
    std::string place_of(pid_t pid) const;
    static std::string place_of(const FunctionConfig& function);

private:
    struct Netdev {
        std::uint32_t function;
        Tap tap;
        Counters counters;
        Poller::Token watch = Poller::kNone;
    };
    explicit Network(const CardConfig& config);
    Status furnish(const std::string& netns);
    Status listen();
    void show_libraries(const std::set<std::string>& namespaces, const std::string& folder,
                        const std::string& libraries);
    bool receive(Netdev& netdev);
    void forget(Netdev& netdev);
    std::uint64_t devices_in(const std::string& netns) const;

    const CardConfig config_;
    NamespaceId home_;
    std::unique_ptr<Namespaces> namespaces_;
    std::vector<std::unique_ptr<Netdev>> netdevs_;  // by function; null: it has none
    std::vector<UniqueFd> listeners_;
    std::vector<std::byte> buffer_;
    Instant last_frame_{0};
    Card* card_ = nullptr;
    Poller* poller_ = nullptr;
    transport::MemoryPort* memory_ = nullptr;
};

}  // namespace rdmalab::card::host

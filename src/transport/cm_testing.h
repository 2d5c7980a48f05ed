// Two communication managers joined by a link that loses, repeats and delays, under a virtual
// clock.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "transport/cm.h"

namespace rdmalab::transport::testing {

inline constexpr std::uint64_t kService = wire::ip_service_id(0x0106, 7471);
inline constexpr std::uint64_t kUdService = wire::ip_service_id(0x0111, 7471);

struct CmLink {
    double loss = 0, duplicate = 0;
    Duration delay = microseconds(5), jitter{};
};

class CmPair {
public:
    explicit CmPair(std::uint64_t seed = 1, CmLink link = {});

    Cm& client() { return nodes_[0].cm; }
    Cm& server() { return nodes_[1].cm; }
    Instant now() const { return now_; }
    CmLink& link() { return link_; }

    CmConnect connect_request(Qpn qpn = Qpn{0x11}) const;
    CmServiceQuery service_query() const;
    void listen();  // the server, on kService and kUdService, wildcard

    // Delivers what is due and fires timers until `end`, or until nothing is left to happen.
    void run_for(Duration time);
    void settle() { run_for(seconds(3'600)); }

    // Events in order, taken out; by name: "Request", "Rejected(8)", ...
    std::vector<CmEvent> client_events() { return take(0); }
    std::vector<CmEvent> server_events() { return take(1); }
    static std::vector<std::string> names(const std::vector<CmEvent>& events);

    // Messages that went over the link, "c REQ", "s REP", in order.
    std::vector<std::string> trace;
    // Called for every message; true: it is lost.
    std::function<bool(bool from_client, const wire::CmMessage&)> drop;

    // Connects and accepts: both ids are established and their events taken.
    struct Connected {
        CmConnId client, server;
    };
    Connected establish(Qpn client_qpn = Qpn{0x11}, Qpn server_qpn = Qpn{0x22});

private:
    struct Node {
        Cm cm;
        std::vector<CmEvent> events;
    };
    struct InFlight {
        std::size_t to;
        std::vector<std::byte> bytes;
    };
    static CmConfig config(std::size_t index, std::uint64_t seed);
    void collect(std::size_t from);
    void put(std::size_t from, const std::vector<std::byte>& bytes);
    void deliver(const InFlight& frame);
    std::vector<CmEvent> take(std::size_t index);

    CmLink link_;
    Prng prng_;
    std::array<Node, 2> nodes_;
    std::multimap<Instant, InFlight> in_flight_;
    Instant now_{seconds(1).ns};
};

Gid client_gid();
Gid server_gid();
// A frame as bytes that came over a link.
std::vector<std::byte> bytes_of(const wire::Frame& frame);
wire::MadBytes mad_of(const wire::Frame& frame);
// A frame to QP 1 around these bytes; `mad` has to live as long.
wire::Frame gsi_frame(const Gid& source, const Gid& destination, const wire::MadBytes& mad);

}  // namespace rdmalab::transport::testing

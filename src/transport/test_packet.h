// Frames that a test makes by hand, and what it sees of the frames that an engine makes.
#pragma once

#include <string>
#include <vector>

#include "transport/test_pair.h"

namespace rdmalab::transport {

// A frame as a peer of `to` would send it.
class Packet {
public:
    Packet(const Bench& bench, const Host& to, Qpn destination, wire::Service service,
           wire::PacketKind kind, wire::Position position = wire::Position::kOnly,
           bool immediate = false, bool invalidate = false);
    Packet& psn(std::uint32_t value);
    Packet& asking_ack();
    Packet& reth(std::uint64_t address, Rkey rkey, std::uint32_t length);
    Packet& atomic(std::uint64_t address, Rkey rkey, std::uint64_t swap_or_add,
                   std::uint64_t compare = 0);
    Packet& aeth(std::uint8_t syndrome);
    Packet& deth(std::uint32_t qkey, Qpn source);
    Packet& xrceth(SrqId srq);  // the other extensions follow it
    Packet& invalidating(Rkey rkey);
    Packet& payload(const Host::Region& region, std::size_t offset, std::uint32_t length);
    Packet& pkey(std::uint16_t value);
    Packet& marked();
    wire::Frame frame() const;

private:
    template <class Header>
    Header* extension(std::size_t offset = 0) {
        return wire::header_at<Header>(
            frame_, frame_.bth_offset + sizeof(wire::Bth) + xrceth_length_ + offset);
    }
    wire::Frame frame_;
    std::size_t xrceth_length_ = 0;
};

// The parts of an emitted frame that tests look at.
struct Seen {
    std::string name;  // "RC Acknowledge"
    std::uint32_t psn = 0;
    Qpn destination;
    bool asks_ack = false;
    bool is_solicited = false;
    std::uint8_t syndrome = 0;
    std::uint32_t msn = 0;
    std::uint32_t payload = 0;
    std::uint32_t read_length = 0;
    std::uint8_t traffic_class = 0;
    std::uint16_t source_port = 0;
    Instant at;
};
Seen look_at(const wire::Frame& frame, Instant now);

// Records every frame on the link of a bench, and lets it pass if `passes` says so.
class Wiretap {
public:
    explicit Wiretap(Bench& bench, bool passes = true);
    std::vector<Seen> take() { return std::exchange(seen_, {}); }
    const std::vector<Seen>& seen() const { return seen_; }
    std::vector<std::string> names() const;
    std::size_t count(std::string_view name) const;

private:
    std::vector<Seen> seen_;
};

}  // namespace rdmalab::transport

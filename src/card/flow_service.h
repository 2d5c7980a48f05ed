// Which program owns the switch domain of which PF, and its commands to the pipes there.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "card/card.h"
#include "card/switchboard.h"

namespace rdmalab::card {

class FlowService {
public:
    FlowService(const CardConfig& config, Switchboard& switchboard)
        : config_(config), switchboard_(switchboard) {}

    // `program` is how others are told about the owner ("process 4711 (flow_steer)").
    ControlReply handle_request(FlowSessionId session, const std::string& program, ByteView body);
    // The session's pipes vanish and the default forwarding returns.
    void close_session(FlowSessionId session);
    bool owns(FlowSessionId session) const;

    std::vector<FlowDomainFacts> domains() const;
    // By device or PCI address; ENOENT names those that there are.
    Result<std::uint32_t> find_domain(const std::string& pf) const;

private:
    struct Owner {
        FlowSessionId session;
        std::string program;
    };

    ControlReply attach(FlowSessionId session, const std::string& program, ByteView arguments);
    std::vector<flow::PortInfo> ports_of(std::uint32_t domain) const;
    std::uint64_t seed_of(const std::string& pf) const;

    const CardConfig& config_;
    Switchboard& switchboard_;
    std::unordered_map<std::uint32_t, Owner> owners_;  // by domain
};

}  // namespace rdmalab::card

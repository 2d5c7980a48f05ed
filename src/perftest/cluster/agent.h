// The agent of one host in a scenario: has the worker processes of its host, speaks for them to the
// front-end and to the agents of other hosts, and lives as long as its uplink.
//
// It knows one socket, the uplink. What is at the other end of it (the front-end itself, or a relay
// over MPI) is not its business: frames carry an address, kFrontEnd or the number of an agent, as
// the destination when they are sent and as the source when they arrive.
#pragma once

#include "perftest/channel.h"

namespace rdmalab::perftest {

inline constexpr std::uint32_t kFrontEnd = 0;
inline std::uint32_t address_of_agent(std::uint32_t agent) { return agent + 1; }

// What both sides must have in common, more than a version: the very same program.
std::string build_id();

// The exit code of the process.
int run_agent(Channel uplink);

}  // namespace rdmalab::perftest

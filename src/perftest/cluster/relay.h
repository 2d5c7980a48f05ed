// The process that mpirun starts on each host: passes messages between the agent (its child, over a
// socket pair), the relays of other hosts (over MPI), and, on the first host, the front-end (over
// standard input and output). The agent is forked before MPI is there and never knows of it.
//
// MPI knows only polling, and polling takes cores from the traffic. So a relay sleeps on its
// descriptors and looks at MPI between: often while there is something going on, seldom otherwise.
#pragma once

namespace rdmalab::perftest {

inline constexpr char kRelayFlag[] = "--agent";

// The exit code of the process.
int run_relay();

}  // namespace rdmalab::perftest

// One worker process of a scenario: all links of one process of one endpoint.
//
//   worker                           agent
//     resources: sources describe  ->   to the agents of the destinations
//     resources                    <-   what the other ends have said, as it comes in
//       destinations connect and answer, sources connect
//     connected: what has failed   ->
//     (sleeps at the gate)         <-   the board: phase and start
//     drained, once per phase      ->
//                                  <-   the board: stop
//     results, one per link        ->
//
// A link that fails does so alone.
#pragma once

#include "perftest/cluster/job.h"
#include "perftest/cluster/link_counters.h"
#include "perftest/crew.h"

namespace rdmalab::perftest {

// What one worker of a job is. `core`: run there. `first_link`: where its links begin among the
// counters.
struct LinkWork {
    const AgentJob& job;
    std::uint32_t index = 0;
    std::optional<int> core;
    LinkCounters& counters;
    std::size_t first_link = 0;
};

// Its body.
void work_on_links(const LinkWork& work, Channel& agent, Board& board);

}  // namespace rdmalab::perftest

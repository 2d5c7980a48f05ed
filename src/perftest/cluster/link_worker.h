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
#include "perftest/crew.h"

namespace rdmalab::perftest {

// The body of worker number `index` of the job's. `core`: run there.
void work_on_links(const AgentJob& job, std::uint32_t index, std::optional<int> core,
                   Channel& agent, Board& board);

}  // namespace rdmalab::perftest

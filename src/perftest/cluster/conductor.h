// Leads a scenario from the front-end: launches the agents, tells each what to do, starts all at
// one time, and gathers what they measured. Each step ends in bounded time; what fails is named
// with its host, and what was measured until then is kept.
#pragma once

#include "perftest/cluster/backend.h"
#include "perftest/cluster/outcome.h"
#include "perftest/progress.h"
#include "perftest/session.h"

namespace rdmalab::perftest {

// Throws Failure when there was no traffic at all.
ScenarioOutcome conduct(const Scenario& scenario, Backend& backend, Signals& signals,
                        Progress& progress);

}  // namespace rdmalab::perftest

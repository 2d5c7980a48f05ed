// Live bandwidth while a test runs (-R): what was completed between two looks, from the board for
// our own direction and from the peer's signs of life for the other.
#pragma once

#include "perftest/metrics.h"
#include "perftest/session.h"

namespace rdmalab::perftest {

class Live {
public:
    Live(const Plan& plan, Crew& crew, const Session& session, bool json_on_stdout);

    void tick();
    const IntervalSummary& summary(bool from_client) const { return from_client ? own_ : peer_; }

private:
    bool is_measuring();
    Interval interval_of(double at_s, double iterations_per_second) const;

    const Plan& plan_;
    Crew& crew_;
    const Session& session_;
    bool json_on_stdout_;
    std::int64_t begun_ns_ = 0, last_ns_ = 0;
    std::uint64_t last_iterations_ = 0;
    IntervalSummary own_, peer_;
};

}  // namespace rdmalab::perftest

#include "perftest/live.h"

#include <fmt/format.h>

#include <cstdio>

#include "perftest/channel.h"
#include "perftest/report_text.h"

namespace rdmalab::perftest {

Live::Live(const Plan& plan, Crew& crew, const Session& session, bool json_on_stdout)
    : plan_(plan), crew_(crew), session_(session), json_on_stdout_(json_on_stdout) {}

bool Live::is_measuring() {
    for (std::uint32_t i = 0; i < crew_.size(); ++i) {
        if (crew_.board().line(i).phase.load() != Phase::kMeasuring) return false;
    }
    return true;
}

Interval Live::interval_of(double at_s, double iterations_per_second) const {
    double bits = static_cast<double>(plan_.bytes_per_iteration()) * 8;
    return {at_s, iterations_per_second * bits * 1e-9,
            iterations_per_second * static_cast<double>(plan_.operations.size()) * 1e-6};
}

void Live::tick() {
    if (plan_.report_interval_s <= 0 || plan_.metric != Metric::kBandwidth) return;
    if (!is_measuring()) {
        last_ns_ = 0;
        return;
    }
    std::int64_t now = monotonic_ns();
    std::uint64_t iterations = crew_.iterations();
    if (last_ns_ == 0) {
        begun_ns_ = last_ns_ = now;
        last_iterations_ = iterations;
        return;
    }
    double elapsed = static_cast<double>(now - last_ns_) * 1e-9;
    if (elapsed < plan_.report_interval_s) return;
    double at = static_cast<double>(now - begun_ns_) * 1e-9;
    Interval own = interval_of(at, static_cast<double>(iterations - last_iterations_) / elapsed);
    own_.add(own);
    FILE* out = json_on_stdout_ ? stderr : stdout;
    fmt::print(out, "{}", text_interval(plan_.bidirectional ? "->" : "", own));
    if (plan_.bidirectional) {
        Interval peer = interval_of(at, session_.peer_iterations_per_second());
        peer_.add(peer);
        fmt::print(out, "{}", text_interval("<-", peer));
    }
    fflush(out);
    last_ns_ = now;
    last_iterations_ = iterations;
}

}  // namespace rdmalab::perftest

#include "steer/flow_rates.h"

#include <algorithm>

namespace rdmalab::steer {

FlowRate& FlowRates::find_or_add(Qpn qpn) {
    auto found = std::ranges::find(flows_, qpn, &FlowRate::qpn);
    if (found != flows_.end()) return *found;
    if (flows_.size() < kRateFlowMax) return flows_.emplace_back(FlowRate{.qpn = qpn});
    FlowRate& oldest = *std::ranges::min_element(flows_, {}, &FlowRate::last_interval);
    oldest = FlowRate{.qpn = qpn};
    return oldest;
}

void FlowRates::report(Qpn qpn, std::uint32_t rate) {
    FlowRate& flow = find_or_add(qpn);
    flow.last = std::min(rate, kFullRate);
    flow.sum += flow.last;
    ++flow.count;
    ++flow.updates;
    flow.last_interval = interval_;
    ++received_;
}

void FlowRates::forget(Qpn qpn) {
    std::erase_if(flows_, [qpn](const FlowRate& flow) { return flow.qpn == qpn; });
}

void FlowRates::close_interval() {
    for (FlowRate& flow : flows_) {
        const auto mean =
            flow.count == 0 ? flow.last
                            : static_cast<std::uint32_t>((flow.sum + flow.count / 2) / flow.count);
        flow.average = flow.average ? smooth(*flow.average, mean) : mean;
        flow.sum = 0;
        flow.count = 0;
    }
    std::erase_if(flows_, [this](const FlowRate& flow) {
        return flow.last != kFullRate && interval_ - flow.last_interval >= kSilentIntervalMax;
    });
    ++interval_;
}

Signals FlowRates::signals(const std::function<std::optional<std::uint32_t>(Qpn)>& path_of) const {
    Signals signals;
    for (const FlowRate& flow : flows_) {
        if (!flow.average) continue;
        if (const std::optional<std::uint32_t> path = path_of(flow.qpn)) {
            signals.paths[*path].add(*flow.average);
        } else {
            ++signals.pending_map;
        }
    }
    return signals;
}

}  // namespace rdmalab::steer

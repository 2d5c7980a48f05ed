// The rates that congestion control reports, flow by flow, smoothed: the mean of an interval's
// reports, then an integer EWMA in which the new sample weighs one eighth.
//
// A flow that sent no report in an interval contributes its latest rate again: a report is sent
// only when the rate has changed. The average approaches kFullRate from below without reaching it
// (halves round up, the rest is lost), so a flow that was ever reduced is not "full" again; with
// rates near the full one both cases of the controller ask for the same shares.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "steer/share_controller.h"

namespace rdmalab::steer {

inline constexpr std::size_t kRateFlowMax = 256;
// A reduced flow that sends is sped up again and again, and reports it. One that has been silent
// for so many intervals has died without a farewell.
inline constexpr std::uint64_t kSilentIntervalMax = 60;

// The next average after `sample`; the first sample is the average.
constexpr std::uint32_t smooth(std::uint32_t average, std::uint32_t sample) {
    return static_cast<std::uint32_t>((std::uint64_t{7} * average + sample + 4) / 8);
}

struct FlowRate {
    Qpn qpn;
    std::uint32_t last = 0;                  // as reported
    std::optional<std::uint32_t> average{};  // once an interval has closed
    std::uint64_t updates = 0;               // reports so far
    // Of the open interval.
    std::uint64_t sum = 0;
    std::uint32_t count = 0;
    std::uint64_t last_interval = 0;  // the interval of the latest report
};

class FlowRates {
public:
    // A report. When the table is full, the flow that has been silent longest makes room.
    void report(Qpn qpn, std::uint32_t rate);
    // The connection is gone; its QPN may come back as another flow.
    void forget(Qpn qpn);
    // Ends the interval: every flow's average takes its sample; dead flows go.
    void close_interval();

    const std::vector<FlowRate>& flows() const { return flows_; }
    std::uint64_t received() const { return received_; }
    // Of the flows that have an average; `path_of` says whose probe a flow is.
    Signals signals(const std::function<std::optional<std::uint32_t>(Qpn)>& path_of) const;

private:
    FlowRate& find_or_add(Qpn qpn);

    std::vector<FlowRate> flows_;
    std::uint64_t received_ = 0, interval_ = 0;
};

}  // namespace rdmalab::steer

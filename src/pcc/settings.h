// What can be set of a card's congestion control, at the start (topology) and while it runs.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "pcc/dcqcn_law.h"

namespace rdmalab::pcc {

// Which flows an algorithm that is loaded gets. On an adapter both ends must have negotiated it,
// which programs do by RDMA CM; all others stay with the internal algorithm (slot 15).
enum class FlowPolicy : std::uint8_t { kCm, kAll };

struct Settings {
    // Notification point: CNPs of one QP are at least this far apart.
    Duration cnp_interval = microseconds(4);

    // Events. So many things become one event; a TX event also ends when its first packet is
    // `tx_delay` old.
    std::uint32_t tx_packets_per_event = 32;
    Duration tx_delay = microseconds(100);
    std::uint32_t cnps_per_event = 1;
    std::uint32_t acks_per_event = 1;
    double event_loss = 0;  // of events on their way to the algorithm, injected

    // RTT probes of one flow are at least this far apart; an answer that is later is lost.
    Duration probe_interval = microseconds(100);
    Duration probe_timeout = milliseconds(10);

    // Rate 1.0 of a port whose cable is not limited.
    std::uint64_t line_rate_bps = 100'000'000'000;
    bool is_pacing = true;          // false: rates are computed and not enforced
    bool allows_algorithms = true;  // false: processes that attach are Deactivated
    FlowPolicy flows = FlowPolicy::kCm;
    // A process whose oldest event waits for longer is given up.
    Duration patience = seconds(2);
    dcqcn_parameters dcqcn = DCQCN_DEFAULTS;
};

}  // namespace rdmalab::pcc

// Runs an algorithm: turns events of the card into calls of `doca_pcc_dev_user_algo`, keeps the
// 48 bytes of state of each flow, the parameters and counters, and collects what the algorithm
// prints, traces and answers. No threads, no clock of its own: production runs one worker of it per
// thread (host/process.h), a test or a simulation calls `handle` with events of a virtual clock.
//
//   auto algorithm = host::Algorithm::load("build/lib/pcc/pure_ecn.so");
//   pcc::Runtime runtime((*algorithm)->entry(), {});
//   runtime.start();
//   pcc::Event event{.type = pcc::EventType::kTx, .flow = 1, .qpn = 0x123, .timestamp_ns = now};
//   event.tx = {.first_timestamp_ns = now, .sent_bytes = 32 * 4096, .sent_packets = 32};
//   pcc::RateAnswer answer = runtime.handle(0, event);
//   runtime.poll_trace(records);                          // what the algorithm has reported
//
// Two workers may be used by two threads at once; everything else is for one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "pcc/pcc_abi.h"
#include "pcc/trace.h"

namespace rdmalab::pcc {

// The functions of an algorithm (pcc/device/include says what they do). host::Algorithm fills it
// from a .so; a test may fill it from functions that are linked in.
struct AlgorithmEntry;

struct RuntimeOptions {
    std::uint32_t workers = 1;
    TraceLayout trace_layout = TraceLayout::k3_4;
    std::uint32_t port_speed_gbps = 100;
    std::size_t trace_capacity = 65'536;  // records; more are lost and counted
    // Nanoseconds for timers of the algorithm (ticks of a microsecond) and trace records. Absent:
    // the time of the event that is being handled.
    std::function<std::uint64_t()> clock_ns;
    std::function<void(const std::string& text)> print;  // of doca_pcc_dev_printf; absent: dropped
};

struct RateAnswer {
    std::uint32_t rate = kRateMax;  // as the algorithm gave it; may be nonsense
    bool wants_probe = false;
    bool is_changed = false;  // it differs from the flow's last answer
    bool is_valid() const { return rate >= 1 && rate <= kRateMax; }
};

struct ParameterInfo {
    std::uint32_t id = 0;
    std::string text;  // the algorithm's description of it
    std::uint32_t value = 0, initial = 0, min = 0, max = 0;
    std::uint32_t permissions = 0;
    bool is_writable() const { return (permissions & 1) != 0; }
};
struct CounterInfo {
    std::uint32_t id = 0;
    std::string text;
    std::uint32_t value = 0;
    std::uint32_t max = 0;
};
struct AlgorithmInfo {
    std::uint32_t index = 0;  // the algorithm's own, below 8
    std::uint32_t id = 0, version_major = 0, version_minor = 0;
    std::string text;
    std::vector<ParameterInfo> parameters;
    std::vector<CounterInfo> counters;
};

struct RuntimeStatistics {
    std::uint64_t events = 0;  // calls of the algorithm
    std::uint64_t events_by_type[kEventTypeCount] = {};
    std::uint64_t events_suppressed = 0;  // of types that the algorithm has disabled
    std::uint64_t internal_events = 0;    // handed to the internal algorithm
    std::uint64_t bad_rates = 0;
    std::uint64_t probes_wanted = 0;
    std::uint64_t trace_records = 0, trace_lost = 0;
    std::uint32_t flows = 0;
};

class Runtime {
public:
    Runtime(const AlgorithmEntry& algorithm, RuntimeOptions options);
    ~Runtime();
    Runtime(const Runtime&) = delete;
    Runtime& operator=(const Runtime&) = delete;

    // Calls doca_pcc_dev_user_init. An error when the algorithm did not initialise itself properly
    // (no algorithm in any slot, a parameter whose default is out of its range).
    Status start();

    // One event. The worker of a flow must always be the same (worker_of).
    RateAnswer handle(std::uint32_t worker, const Event& event);
    static std::uint32_t worker_of(std::uint32_t flow, std::uint32_t workers) {
        return flow % workers;
    }

    // Records that the algorithm has flushed, oldest first. Returns how many were written.
    std::size_t poll_trace(std::span<TraceRecord> records);
    // Makes visible what the algorithm has not flushed yet.
    void flush_trace();

    // The mailbox. EOPNOTSUPP: the algorithm has none. EPROTO: it refused the request.
    Result<std::vector<std::byte>> mailbox(ByteView request, std::size_t response_max);

    std::vector<AlgorithmInfo> algorithms() const;
    // ENOENT: no such parameter. ERANGE: outside of min and max. EACCES: not writable. EINVAL: the
    // algorithm refused it.
    Status set_parameter(std::uint32_t algorithm, std::uint32_t id, std::uint32_t value);
    Status reset_counters(std::uint32_t algorithm);
    void port_changed(std::uint32_t port, std::uint32_t speed_gbps);

    RuntimeStatistics statistics() const;
    // The state of flows, parameters and counters as text, for people.
    std::string debug_dump() const;

    struct Impl;

private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace rdmalab::pcc

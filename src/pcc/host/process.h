// A congestion control process: attaches an algorithm to one PF of a running card and runs its
// worker threads. The program that links this (pcc) starts one, polls state and reports, and stops
// it; the calls below are for one thread of it.
//
//   auto process = Process::start({.device = "mlx5_1", .algorithm = std::move(*algorithm),
//                                  .report_only = true});
//   while (running) {
//       const auto n = (*process)->poll_trace(records);   // or mailbox(), for 2.9
//       ... (*process)->state() ...
//   }
//   (*process)->stop();
//
// The PF's congestion control covers all functions in its domain (mlx5_1: also mlx5_3). One process
// per PF is Active; later ones are Standby and take over when it leaves. Whatever happens to a
// process (it ends, is killed, crashes, loops, answers nonsense), the card goes on with its
// built-in DCQCN, or the next process in line.
//
// A crash of the algorithm (SIGSEGV, SIGBUS, SIGFPE, SIGILL) on a worker thread does not end the
// program: the worker is stopped, a coredump file (text: signal, address, backtrace, the event, the
// flow's state, parameters, counters) is written, the state becomes Error and error() says why,
// once. A call that does not return within `watchdog` is stopped the same way.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "pcc/host/algorithm.h"
#include "pcc/runtime.h"

namespace rdmalab::pcc::host {

struct ProcessOptions {
    std::string device;  // RDMA device name of a PF
    std::string socket;  // of the card; empty: as the drop-in finds it (RDMALAB_SOCKET, ...)
    std::unique_ptr<Algorithm> algorithm;
    std::uint32_t workers = 1;
    std::vector<std::uint32_t> cpus;  // worker i is bound to cpus[i % size]; empty: not bound
    // The card does not pace by the answers; the built-in algorithm does not pace either.
    bool report_only = false;
    TraceLayout trace_layout = TraceLayout::k3_4;
    std::size_t trace_capacity = 65'536;
    std::string coredump_file;  // empty: none is written
    Duration watchdog = seconds(1);
    std::function<void(const std::string& text)> print;  // of the algorithm; from worker threads
};

// One error each, from start(): ENOENT no card; ENODEV no such device; EOPNOTSUPP the
// device is not a PF or has congestion control switched off; EPROTO another version of the card;
// and those of Runtime::start.
class Process {
public:
    static Result<std::unique_ptr<Process>> start(ProcessOptions options);
    ~Process();  // as stop()
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    ProcessState state() const;
    // Why the state is Error; code 0 otherwise.
    Error error() const;
    // Waits until the state differs from `known`, or the time is over. Returns the state.
    ProcessState wait(ProcessState known, Duration timeout);
    // Detaches. The state is Deactivated afterwards.
    void stop();

    std::size_t poll_trace(std::span<TraceRecord> records);
    Result<std::vector<std::byte>> mailbox(ByteView request, std::size_t response_max);
    // Reports of flows from either channel, as the options chose, decoded.
    void set_mailbox_reports(bool by_mailbox);  // default: trace records
    std::vector<FlowReport> poll_reports();

    std::vector<AlgorithmInfo> algorithms() const;
    Status set_parameter(std::uint32_t algorithm, std::uint32_t id, std::uint32_t value);

    struct Statistics {
        RuntimeStatistics runtime;
        std::uint64_t answers = 0;
        std::uint64_t events_lost = 0;  // between card and process: full ring, or injected
    };
    Statistics statistics() const;
    std::string debug_dump() const;
    std::uint32_t workers() const;

private:
    Process() = default;
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

inline constexpr std::uint32_t kWorkersMin = 1, kWorkersMax = kWorkerMax;
const char* state_name(ProcessState state);  // Active, Standby, Deactivated, Error

}  // namespace rdmalab::pcc::host

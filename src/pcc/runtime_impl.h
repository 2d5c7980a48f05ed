// The inside of Runtime: what the algorithm has registered, its workers, and the service functions'
// view of both.
#pragma once

#include <array>
#include <atomic>
#include <string>
#include <unordered_map>
#include <vector>

#include "pcc/algorithm_entry.h"
#include "pcc/runtime.h"

namespace rdmalab::pcc {

inline constexpr std::uint32_t kPorts = DOCA_PCC_DEV_MAX_NUM_PORTS;
inline constexpr std::uint32_t kAlgorithms = DOCA_PCC_DEV_MAX_NUM_ALGOS;
inline constexpr std::uint32_t kSlots = 16;

struct Parameter {
    bool is_set = false;
    std::uint32_t initial = 0, min = 0, max = 0, permissions = 0;
    std::string text;
};
struct Counter {
    bool is_set = false;
    std::uint32_t max = 0, permissions = 0;
    std::string text;
};
struct RegisteredAlgorithm {
    bool is_set = false;
    std::uint32_t id = 0, version_major = 0, version_minor = 0;
    std::string text;
    std::vector<Parameter> parameters;
    std::vector<Counter> counters;
};
struct Slot {
    std::uint32_t algorithm = DOCA_PCC_DEV_ALGO_INDEX_INTERNAL;
    bool is_enabled = false;
    std::vector<std::uint32_t> parameters, counters;
};

// Trace records of one worker: it writes, the host program reads.
class TraceRing {
public:
    void reserve(std::size_t capacity);
    bool push(const TraceRecord& record);
    bool pop(TraceRecord& record);

private:
    std::vector<TraceRecord> records_;
    std::atomic<std::uint64_t> head_{0}, tail_{0};
};

struct FlowState {
    doca_pcc_dev_algo_ctxt_t context{};
    std::uint32_t rate = kRateMax;
};

struct Worker {
    static constexpr std::size_t kUnflushedMax = 64;

    Runtime::Impl* runtime = nullptr;
    std::uint32_t rank = 0;
    std::uint64_t now_ns = 0;  // of the event that is being handled
    std::unordered_map<std::uint32_t, FlowState> flows;
    std::vector<TraceRecord> unflushed;
    TraceRing trace;
    RuntimeStatistics statistics;
};

struct Runtime::Impl {
    Impl(const AlgorithmEntry& algorithm, RuntimeOptions given);

    Slot* slot(std::uint32_t port, std::uint32_t index) {
        const std::uint32_t place = index & 0xffff;
        return port < kPorts && place < kSlots ? &slots[port][place] : nullptr;
    }
    std::uint64_t now_ns(const Worker& worker) const {
        return options.clock_ns ? options.clock_ns() : worker.now_ns;
    }
    void trace(Worker& worker, std::uint32_t format, const std::uint64_t (&arguments)[5]);
    void flush(Worker& worker);
    Slot* first_slot_of(std::uint32_t algorithm);

    AlgorithmEntry entry;
    RuntimeOptions options;
    std::uint32_t disabled = 0;      // types of events
    std::string registration_error;  // the first thing that init did wrong
    std::array<RegisteredAlgorithm, kAlgorithms> algorithms;
    std::array<std::array<Slot, kSlots>, kPorts> slots;
    std::vector<Worker> workers;
    std::array<std::uint32_t, kPorts> port_speed{};
    std::array<std::atomic<std::uint32_t>, kPorts> tx_bytes{};
    std::vector<std::uint32_t> counter_ids;
    std::uint32_t* counter_values = nullptr;
    std::atomic<std::uint32_t> trace_sequence{0};
    std::size_t trace_turn = 0;
};

// Does nothing; a program that refers to it has the functions that algorithms call (services.cc).
void link_services();

// The worker that runs on this thread, for the functions that the algorithm calls.
extern thread_local Worker* current_worker;

// Makes a worker the current one for as long as it lives.
class Entered {
public:
    explicit Entered(Worker& worker) : before_(current_worker) { current_worker = &worker; }
    ~Entered() { current_worker = before_; }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

private:
    Worker* before_;
};

}  // namespace rdmalab::pcc

// What is to be done, fully resolved: no default is left open, and nothing in it contradicts
// anything else. make_plan() is the only way to get one; it collects every error of a request.
//
// A Plan is the test (the same on both sides); a Side is one end of it (device, cores, memory).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "perftest/json.h"

namespace rdmalab::perftest {

// What the user asked for, by long flag name, before it is understood. Flags and JSON meet here.
using Request = std::map<std::string, std::string>;

enum class Transport { kRc, kUc, kUd };
enum class Verb { kWrite, kRead, kSend, kWriteImm, kSendImm, kAtomicFa, kAtomicCs };
enum class Metric { kBandwidth, kLatency };
enum class LatencyMode { kFullRoundTrip, kOneWay };
enum class Memory {
    kHost,
    kNullMr,
    kDevice,
    kCudaAutoDetect,
    kCudaDataDirect,
    kCudaDmabuf,
    kCudaPeermem
};

const char* name_of(Transport transport);
const char* name_of(Verb verb);
const char* name_of(Memory memory);
inline bool is_atomic(Verb verb) { return verb == Verb::kAtomicFa || verb == Verb::kAtomicCs; }
// The responder must post receives for it.
inline bool takes_receive(Verb verb) {
    return verb == Verb::kSend || verb == Verb::kSendImm || verb == Verb::kWriteImm;
}
// The data lands in a receive buffer, not at a remote address.
inline bool is_send(Verb verb) { return verb == Verb::kSend || verb == Verb::kSendImm; }
inline bool is_read_like(Verb verb) { return verb == Verb::kRead || is_atomic(verb); }
inline bool is_cuda(Memory memory) { return memory >= Memory::kCudaAutoDetect; }

struct Operation {
    Verb verb = Verb::kWrite;
    std::uint64_t size = 0;
};

struct Plan {
    Transport transport = Transport::kRc;
    // An iteration is one of each.
    std::vector<Operation> operations;
    bool is_mix = false;  // given by --operations
    Metric metric = Metric::kBandwidth;
    LatencyMode latency_mode = LatencyMode::kFullRoundTrip;
    bool bidirectional = false;
    bool validate = false;
    bool lockstep = false;  // iterations in step with all others of a scenario

    // The measured window: a time, a number of iterations per queue pair, or until told to stop.
    double duration_s = 10;
    std::uint64_t iterations = 0;
    bool infinite = false;
    double warmup_s = 2;
    std::uint64_t warmup_iterations = 0;
    double end_margin_s = 0;
    double bw_threshold_gbps = 0;
    double lat_threshold_us = 0;
    double report_interval_s = 0;
    bool qp_histogram = false;

    std::uint32_t qps = 1;
    std::uint32_t processes = 1;
    std::uint32_t tx_depth = 128;              // work requests
    std::uint32_t rx_depth = 512;              // receives
    std::uint32_t post_list = 1;               // iterations per call
    std::uint32_t block = 1;                   // iterations per completion, a multiple of post_list
    std::optional<std::uint32_t> inline_size;  // absent: as fits
    double rate_limit_gbps = 0;

    std::uint32_t mtu = 0;          // 0: what both ports have
    std::optional<int> gid_family;  // 4 or 6
    std::uint8_t service_level = 0, traffic_class = 0, qp_timeout = 14, retry_count = 7;
    std::optional<std::uint32_t> start_psn;
    bool use_ece = false;

    std::uint64_t bytes_per_iteration() const;
    bool sends_receives() const;  // some operation takes a receive
    std::uint64_t receives_per_iteration() const;
    std::uint64_t largest_receive() const;
    // Ping-pong, rather than timing the completion on this side.
    bool is_ping_pong() const;
    const char* latency_definition() const;
    // Window, warm-up and margin together; 0 when the end is not known.
    double total_seconds() const;
};

struct Side {
    std::string device;  // "" = the first with an active port
    std::optional<std::uint8_t> ib_port;
    std::optional<std::uint8_t> gid_index;
    std::vector<int> cores;  // empty: choose
    std::vector<int> excluded_cores;
    Memory memory = Memory::kHost;
    std::optional<int> cuda_device;
    std::string cuda_lib_path;
    std::optional<int> ph, tph_core;
    std::string tph_mem;
};

struct Planned {
    Plan plan;
    Side side;
};

struct Refusal {
    std::vector<std::string> errors;  // each a full sentence with flag, value and rule
};

// Refuses with all errors of the request at once.
std::variant<Planned, Refusal> make_plan(const Request& request);

// The test as fields of a scenario: what the report shows and what the server is told.
Json scenario_json(const Plan& plan);
// The request that leads to that plan again. Unknown fields and wrong types are errors.
Result<Request> request_of(const Json& scenario);

// Parses one memory type word; used for --server_mem_type, too.
std::optional<Memory> memory_named(const std::string& word);

}  // namespace rdmalab::perftest

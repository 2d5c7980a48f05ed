#include "perftest/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "perftest/quantity.h"

namespace rdmalab::perftest {

namespace {

struct Facts {
    const Request& request;
    const Plan& plan;
    const Side& side;

    bool has(const char* name) const { return request.contains(name); }
    std::string text(const char* name) const { return has(name) ? request.at(name) : ""; }
    bool lat() const { return plan.metric == Metric::kLatency; }
    bool one_way() const { return plan.latency_mode == LatencyMode::kOneWay; }
    bool dv() const { return text("rdma_driver") == "dv"; }
    bool gpu_engine() const { return text("engine") == "gpunetio"; }
    template <class Predicate>
    bool any(Predicate predicate) const {
        return std::any_of(plan.operations.begin(), plan.operations.end(),
                           [&](const Operation& operation) { return predicate(operation); });
    }
    bool in_scenario() const { return has("traffic_pattern"); }
    bool all_to_all() const { return text("traffic_pattern") == "ALL_TO_ALL"; }
    bool lockstep() const { return has("iteration_sync"); }
    bool reads() const {
        return any([](const Operation& each) { return each.verb == Verb::kRead; });
    }
    bool atomics() const {
        return any([](const Operation& each) { return is_atomic(each.verb); });
    }
    bool plain_write_ping_pong() const {
        return plan.is_ping_pong() && plan.operations.front().verb == Verb::kWrite;
    }
};

struct Rule {
    bool (*applies)(const Facts&);
    const char* text;
};

constexpr Rule kExclusions[] = {
    {[](const Facts& f) { return f.has("msg_size") && f.has("operations"); },
     "--msg_size with --operations: each operation carries its own size"},
    {[](const Facts& f) { return f.has("verb") && f.has("operations"); },
     "--verb with --operations: each operation carries its own verb"},
    {[](const Facts& f) { return f.has("duration") && f.has("iterations"); },
     "--duration with --iterations: the window is a time or a count"},
    {[](const Facts& f) { return f.has("run_infinitely") && f.has("duration"); },
     "--run_infinitely with --duration: an infinite run has no end"},
    {[](const Facts& f) { return f.has("run_infinitely") && f.has("iterations"); },
     "--run_infinitely with --iterations: an infinite run has no end"},
    {[](const Facts& f) { return f.has("warmup_time") && f.has("warmup_iterations"); },
     "--warmup_time with --warmup_iterations: choose one kind of warm-up"},
    {[](const Facts& f) { return f.has("gid_index") && f.has("gid_family"); },
     "--gid_index with --gid_family: an index already has a family"},
    {[](const Facts& f) { return f.has("cuda") && f.has("mem_type"); },
     "--cuda with --mem_type: --cuda is the old spelling of -M cuda_auto_detect -G"},
    {[](const Facts& f) { return f.has("cuda") && f.has("cuda_device_id"); },
     "--cuda with --cuda_device_id: --cuda already names the GPU"},
    {[](const Facts& f) {
         return (f.has("cuda_device_id") || f.has("cuda_lib_path")) && !is_cuda(f.side.memory) &&
                f.text("server_mem_type").rfind("cuda", 0) != 0;
     },
     "--cuda_device_id and --cuda_lib_path need a cuda memory type (-M cuda)"},
};

constexpr Rule kDirection[] = {
    {[](const Facts& f) { return f.plan.bidirectional && f.reads(); },
     "--bidirectional with read: both directions of a read are in use already (write, send and "
     "atomics can be bidirectional)"},
    {[](const Facts& f) { return f.plan.bidirectional && f.lat() && !f.one_way(); },
     "--bidirectional with -m lat: a ping-pong already goes both ways"},
    {[](const Facts& f) { return f.lat() && f.one_way() && f.plan.bidirectional; },
     "--lat_mode one_way with --bidirectional: only the requester measures"},
    {[](const Facts& f) { return f.one_way() && (f.reads() || f.atomics()); },
     "--lat_mode one_way with read or atomics: they are timed on the requester anyway; use "
     "full_round_trip"},
    {[](const Facts& f) { return f.one_way() && f.gpu_engine(); },
     "--lat_mode one_way with --engine gpunetio: not offered"},
    {[](const Facts& f) { return f.has("lat_mode") && !f.lat(); },
     "--lat_mode without -m lat: it is a mode of latency tests"},
};

constexpr Rule kLatency[] = {
    {[](const Facts& f) { return f.lat() && f.plan.warmup_iterations > 0; },
     "--warmup_iterations with -m lat: latency tests warm up by time (-w)"},
    {[](const Facts& f) { return f.lat() && f.plan.validate; },
     "--validate with -m lat: validation is for bandwidth tests"},
    {[](const Facts& f) { return f.lat() && f.has("end_margin") && f.plan.end_margin_s > 0; },
     "--end_margin with -m lat: an end margin is for bandwidth tests"},
    {[](const Facts& f) { return f.lat() && f.plan.report_interval_s > 0; },
     "--report_interval with -m lat: live reports are of bandwidth"},
    {[](const Facts& f) { return f.lat() && f.plan.qps > 1; },
     "--qps above 1 with -m lat: one queue pair per process; use -N for more"},
    {[](const Facts& f) { return f.lat() && f.plan.bw_threshold_gbps > 0; },
     "--bw_threshold with -m lat: use --lat_threshold"},
    {[](const Facts& f) { return !f.lat() && f.plan.lat_threshold_us > 0; },
     "--lat_threshold with -m bw: use --bw_threshold"},
    {[](const Facts& f) { return f.lat() && f.plan.rate_limit_gbps > 0; },
     "--rate_limit with -m lat: a latency test has one message in flight"},
    {[](const Facts& f) { return f.lat() && f.plan.qp_histogram; },
     "--qp_histogram with -m lat: it shows shares of bandwidth"},
    {[](const Facts& f) { return f.plain_write_ping_pong() && f.plan.operations[0].size == 0; },
     "--msg_size 0 with write and -m lat: the arrival of nothing cannot be seen; use write_imm"},
    {[](const Facts& f) { return f.plain_write_ping_pong() && f.side.memory != Memory::kHost; },
     "--mem_type other than host with write and -m lat: the processor watches the buffer for the "
     "arrival; use write_imm"},
};

constexpr Rule kValidation[] = {
    {[](const Facts& f) {
         return f.plan.validate && (f.plan.warmup_s > 0 || f.plan.warmup_iterations > 0);
     },
     "--validate with warm-up: every message is checked and counted; give -w 0"},
    {[](const Facts& f) { return f.plan.validate && f.plan.rx_depth < f.plan.tx_depth; },
     "--validate with --rx_depth below --tx_depth: a message could find no receive"},
    {[](const Facts& f) {
         return f.plan.validate && !f.lockstep() &&
                (f.plan.is_mix || !is_send(f.plan.operations[0].verb));
     },
     "--validate with a verb other than send and send_imm: only they tell the responder which "
     "message has come"},
    {[](const Facts& f) { return f.plan.validate && f.plan.transport != Transport::kRc; },
     "--validate with UC or UD: they may lose messages, and a lost one would look corrupt"},
    {[](const Facts& f) { return f.plan.validate && f.side.memory != Memory::kHost; },
     "--validate with --mem_type other than host: the processor writes and reads every byte"},
};

constexpr Rule kScenarioOnly[] = {
    {[](const Facts& f) { return f.has("dual_unidir") && !f.in_scenario(); },
     "--dual_unidir without --traffic_pattern: between two processes use -b, or two runs"},
    {[](const Facts& f) { return f.has("traffic_partition") && !f.in_scenario(); },
     "--traffic_partition without --traffic_pattern: it chooses among a pattern's connections"},
    {[](const Facts& f) { return f.has("iteration_sync") && !f.in_scenario(); },
     "--iteration_sync without --traffic_pattern a2a"},
    {[](const Facts& f) { return f.has("peer_shifting") && !f.in_scenario(); },
     "--peer_shifting without --traffic_pattern a2a"},
    {[](const Facts& f) { return f.has("ptini_file") && !f.in_scenario(); },
     "--ptini_file without --traffic_pattern a2a"},
    {[](const Facts& f) { return f.has("ptini_datatype") && !f.has("ptini_file"); },
     "--ptini_datatype without --ptini_file: there is nothing to scale"},
    {[](const Facts& f) { return f.has("dry_run") && !f.in_scenario(); },
     "--dry_run without --traffic_pattern or -f: there is no plan to show"},
    {[](const Facts& f) { return f.has("disable_connection_matrix") && !f.in_scenario(); },
     "--disable_connection_matrix without --traffic_pattern: there is no matrix"},
    {[](const Facts& f) { return f.has("bidirectional") && f.has("dual_unidir"); },
     "--bidirectional with --dual_unidir: choose one"},
    {[](const Facts& f) { return f.in_scenario() && f.has("run_infinitely"); },
     "--run_infinitely in a scenario: tests that start together end together"},
    {[](const Facts& f) { return f.in_scenario() && f.plan.report_interval_s > 0; },
     "--report_interval in a scenario: progress is shown for all tests together"},
    {[](const Facts& f) { return f.one_way() && f.has("dual_unidir"); },
     "--lat_mode one_way with --dual_unidir: only the requester measures"},
};

constexpr Rule kLockstep[] = {
    {[](const Facts& f) { return f.lockstep() && f.in_scenario() && !f.all_to_all(); },
     "--iteration_sync with a --traffic_pattern other than ALL_TO_ALL: everybody waits for "
     "everybody"},
    {[](const Facts& f) { return f.lockstep() && f.plan.iterations == 0; },
     "--iteration_sync without --iterations: lock-step is counted, not timed"},
    {[](const Facts& f) { return f.lockstep() && f.has("duration"); },
     "--iteration_sync with --duration: lock-step is counted, not timed"},
    {[](const Facts& f) { return f.lockstep() && f.plan.warmup_s > 0; },
     "--iteration_sync with --warmup_time: warm up by --warmup_iterations"},
    {[](const Facts& f) { return f.lockstep() && f.has("dual_unidir"); },
     "--iteration_sync with --dual_unidir: an all-to-all goes both ways already"},
    {[](const Facts& f) { return f.lockstep() && f.lat(); },
     "--iteration_sync with -m lat: it measures bandwidth"},
    {[](const Facts& f) {
         return f.lockstep() && (f.plan.is_mix || f.plan.operations[0].verb != Verb::kWrite);
     },
     "--iteration_sync with a verb other than write"},
    {[](const Facts& f) { return f.lockstep() && f.plan.transport != Transport::kRc; },
     "--iteration_sync with --connection_type other than RC: a lost message would stop everybody"},
};

constexpr Rule kShifting[] = {
    {[](const Facts& f) { return f.has("peer_shifting") && f.in_scenario() && !f.all_to_all(); },
     "--peer_shifting with a --traffic_pattern other than ALL_TO_ALL"},
    {[](const Facts& f) {
         return f.has("peer_shifting") && (f.has("bidirectional") || f.has("dual_unidir"));
     },
     "--peer_shifting with --bidirectional or --dual_unidir: its rounds go both ways already"},
    {[](const Facts& f) { return f.has("peer_shifting") && f.lockstep(); },
     "--peer_shifting with --iteration_sync: rounds of pairs know no lock-step"},
    {[](const Facts& f) { return f.has("peer_shifting") && f.has("ptini_file"); },
     "--peer_shifting with --ptini_file"},
};

constexpr Rule kVariable[] = {
    {[](const Facts& f) { return f.has("ptini_file") && f.in_scenario() && !f.all_to_all(); },
     "--ptini_file with a --traffic_pattern other than ALL_TO_ALL: it has a size for each pair"},
    {[](const Facts& f) { return f.has("ptini_file") && f.has("bidirectional"); },
     "--ptini_file with --bidirectional: the two directions of a pair have sizes of their own"},
    {[](const Facts& f) { return f.has("ptini_file") && f.has("dual_unidir"); },
     "--ptini_file with --dual_unidir: its matrix has both directions already"},
    {[](const Facts& f) { return f.has("ptini_file") && f.has("msg_size"); },
     "--ptini_file with --msg_size: the file has the sizes"},
    {[](const Facts& f) { return f.has("ptini_file") && f.has("operations"); },
     "--ptini_file with --operations: the file has the sizes"},
    {[](const Facts& f) {
         return f.has("ptini_file") && f.lockstep() && f.plan.bw_threshold_gbps > 0;
     },
     "--bw_threshold with --ptini_file and --iteration_sync: there is no bandwidth of the whole"},
    {[](const Facts& f) { return f.has("ptini_file") && f.atomics(); },
     "--ptini_file with atomics: an atomic works on 8 bytes"},
};

constexpr Rule kTransports[] = {
    {[](const Facts& f) { return f.plan.transport != Transport::kRc && f.atomics(); },
     "--connection_type other than RC with atomics: only RC has them"},
    {[](const Facts& f) { return f.plan.transport != Transport::kRc && f.reads(); },
     "--connection_type other than RC with read: only RC has it"},
    {[](const Facts& f) {
         return f.plan.transport == Transport::kUd &&
                f.any([](const Operation& each) { return !is_send(each.verb); });
     },
     "--connection_type UD: only send and send_imm"},
    {[](const Facts& f) {
         return f.plan.transport == Transport::kUd && f.any([&](const Operation& each) {
             return each.size > (f.plan.mtu > 0 ? f.plan.mtu : 4096);
         });
     },
     "--msg_size above the MTU with UD: a datagram is one packet"},
    {[](const Facts& f) {
         return f.any([](const Operation& each) { return is_atomic(each.verb) && each.size != 8; });
     },
     "--msg_size other than 8 with atomics: an atomic works on 8 bytes"},
    {[](const Facts& f) { return f.atomics() && f.dv(); },
     "--rdma_driver dv with atomics: only ibv has them"},
    {[](const Facts& f) { return f.plan.use_ece && f.dv(); },
     "--use_ece with --rdma_driver dv: only ibv negotiates it"},
    {[](const Facts& f) { return f.plan.use_ece && f.plan.transport != Transport::kRc; },
     "--use_ece with --connection_type other than RC: ECE is of connections"},
    {[](const Facts& f) { return f.has("cc_group_hints") && !f.dv(); },
     "--cc_group_hints with --rdma_driver ibv: the hints travel through the dv driver"},
};

constexpr Rule kMemoryRules[] = {
    {[](const Facts& f) {
         return f.side.memory == Memory::kNullMr && f.any([](const Operation& each) {
             return each.verb != Verb::kWrite && each.verb != Verb::kRead;
         });
     },
     "--mem_type nullmr: only write and read"},
    {[](const Facts& f) { return f.side.tph_core.has_value() != !f.side.tph_mem.empty(); },
     "--tph_core_id and --tph_mem: give both or neither"},
    {[](const Facts& f) { return f.side.tph_core.has_value() && !f.side.ph.has_value(); },
     "--tph_core_id and --tph_mem need --ph"},
    {[](const Facts& f) {
         return f.side.ph.has_value() && f.side.memory == Memory::kCudaDataDirect;
     },
     "--ph with -M cuda_data_direct: TPH and Data Direct exclude each other"},
    {[](const Facts& f) { return f.gpu_engine() && !f.dv(); },
     "--engine gpunetio needs --rdma_driver dv"},
    {[](const Facts& f) { return f.gpu_engine() && !is_cuda(f.side.memory); },
     "--engine gpunetio needs GPU memory (-M cuda)"},
    {[](const Facts& f) {
         return f.gpu_engine() &&
                f.any([](const Operation& each) { return each.verb != Verb::kWrite; });
     },
     "--engine gpunetio: only write"},
    {[](const Facts& f) { return f.gpu_engine() && f.plan.bidirectional; },
     "--engine gpunetio with --bidirectional: one direction only"},
    {[](const Facts& f) {
         return f.gpu_engine() && f.has("end_margin") && f.plan.end_margin_s > 0;
     },
     "--engine gpunetio with --end_margin: not offered"},
};

constexpr Rule kQueueRules[] = {
    {[](const Facts& f) { return f.plan.operations.size() > f.plan.tx_depth; },
     "--operations with more entries than --tx_depth: an iteration must fit into the queue"},
    {[](const Facts& f) { return f.plan.post_list * f.plan.operations.size() > f.plan.tx_depth; },
     "--post_list above --tx_depth: a list must fit into the queue"},
    {[](const Facts& f) { return f.lat() && f.plan.post_list > 1; },
     "--post_list above 1 with -m lat: a latency test has one message in flight"},
    {[](const Facts& f) { return f.lat() && !f.plan.is_ping_pong() && f.plan.block > 1; },
     "--cq_mod above 1 with -m lat: each message is timed by its own completion"},
    {[](const Facts& f) {
         return f.plan.sends_receives() && f.plan.receives_per_iteration() > f.plan.rx_depth;
     },
     "--rx_depth below the receives of one iteration of --operations"},
};

// The flags that a rule names, with the values that they were given.
std::string values_of(std::string_view rule, const Request& request) {
    std::string values;
    std::string_view seen = rule.substr(0, rule.find(':'));
    for (const auto& [name, text] : request) {
        std::string flag = "--" + name;
        std::size_t at = seen.find(flag);
        std::size_t end = at + flag.size();
        bool whole = at != std::string_view::npos &&
                     (end == seen.size() || seen.find_first_of(" ,;", end) == end);
        if (!whole) continue;
        values += fmt::format("{}{}{}", values.empty() ? "" : " ", flag,
                              text == "true" ? "" : " " + text);
    }
    return values.empty() ? "" : " (given: " + values + ")";
}

template <std::size_t N>
void apply(const Rule (&rules)[N], const Facts& facts, std::vector<std::string>& errors) {
    for (const Rule& rule : rules) {
        if (rule.applies(facts)) errors.push_back(rule.text + values_of(rule.text, facts.request));
    }
}

void check_cores(const Facts& facts, std::vector<std::string>& errors) {
    const std::vector<int>& cores = facts.side.cores;
    if (!cores.empty() && cores.size() != facts.plan.processes) {
        errors.push_back(fmt::format("--cores {}: {} cores for {} processes; one core for each",
                                     facts.text("cores"), cores.size(), facts.plan.processes));
    }
    for (int core : facts.side.excluded_cores) {
        if (std::find(cores.begin(), cores.end(), core) != cores.end()) {
            errors.push_back(fmt::format("--exclude_cores {}: core {} is in --cores {}, too",
                                         facts.text("exclude_cores"), core, facts.text("cores")));
        }
    }
}

void check_hints(const Facts& facts, std::vector<std::string>& errors) {
    if (!facts.has("cc_group_hints")) return;
    const std::string text = facts.text("cc_group_hints");
    std::vector<std::string> parts;
    for (std::size_t start = 0; start <= text.size();) {
        std::size_t comma = std::min(text.find(',', start), text.size());
        parts.push_back(text.substr(start, comma - start));
        start = comma + 1;
    }
    bool right = parts.size() == 4 && !parts[0].empty() && parse_count(parts[1], 1, 1 << 20).ok() &&
                 parse_count(parts[2], 0, UINT32_MAX).ok() &&
                 parse_count(parts[3], 0, UINT32_MAX).ok();
    if (!right) {
        errors.push_back(fmt::format(
            "--cc_group_hints: expected FILE,SIZE,VENDOR,FORMAT with numbers for the last three, "
            "found '{}'",
            text));
    }
}

void check_server_flags(const Facts& facts, std::vector<std::string>& errors) {
    for (const char* name : {"launch_server", "server_exe", "server_username", "server_device",
                             "server_mem_type", "server_cores"}) {
        if (facts.has(name) && !facts.has("server")) {
            errors.push_back(fmt::format("--{} without -n: this is the server itself", name));
        }
    }
    if (facts.has("lease") && facts.has("server")) {
        errors.emplace_back("--lease with -n: a lease is for servers");
    }
}

}  // namespace

void check_rules(const Request& request, const Planned& planned, std::vector<std::string>& errors) {
    Facts facts{request, planned.plan, planned.side};
    apply(kExclusions, facts, errors);
    apply(kDirection, facts, errors);
    apply(kLatency, facts, errors);
    apply(kValidation, facts, errors);
    apply(kTransports, facts, errors);
    apply(kMemoryRules, facts, errors);
    apply(kQueueRules, facts, errors);
    apply(kScenarioOnly, facts, errors);
    apply(kLockstep, facts, errors);
    apply(kShifting, facts, errors);
    apply(kVariable, facts, errors);
    check_cores(facts, errors);
    check_hints(facts, errors);
    check_server_flags(facts, errors);
}

}  // namespace rdmalab::perftest

#include "rdmalab/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>

#include "rdmalab/experiment_view.h"
#include "rdmalab/failure.h"
#include "rdmalab/runtime_folder.h"
#include "rdmalab/signals.h"
#include "rdmalab/table.h"

namespace rdmalab::launcher {

namespace {

constexpr double kLookSeconds = 0.05, kViewSeconds = 1;
constexpr double kStartSeconds = 60;   // until a program says that it is ready
constexpr double kSteadySeconds = 15;  // at the end, that shares are averaged over
constexpr double kSettleSeconds = 25;  // after a change, before that
// A card in software sends a tenth of an adapter's packets. With as many less packets to an event
// the rates rise as often, and the shares settle within the time of the experiment.
constexpr std::uint64_t kTxPackets = 4;
constexpr double kEarlySeconds = 12;  // before a change

double unix_time() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

std::vector<Receiver> receivers_of(std::uint32_t paths) {
    std::vector<Receiver> receivers = {{"mlx5_2", "10.0.0.1", "pf0sf0"},
                                       {"mlx5_4", "10.0.0.11", "pf0sf4"},
                                       {"mlx5_5", "10.0.0.21", "pf0sf5"},
                                       {"mlx5_6", "10.0.0.31", "pf0sf6"}};
    receivers.resize(paths);
    return receivers;
}

std::uint64_t received_bytes(const Json& counters, const std::string& device) {
    return number(member(member(counters, "functions"), device), "rx_bytes");
}

// Counters that tell of lost packets and failed work.
std::map<std::string, std::uint64_t> losses_of(const Json& counters) {
    std::map<std::string, std::uint64_t> losses;
    const auto note = [&](const char* group, std::initializer_list<const char*> keys) {
        for (const auto& [name, values] : member(counters, group).items()) {
            for (const char* key : keys) losses[name + "." + key] += number(values, key);
        }
    };
    note("functions", {"out_of_sequence", "packet_seq_err", "rx_icrc_errors", "req_cqe_error",
                       "resp_cqe_error"});
    note("ports", {"dropped"});
    return losses;
}

class Experiment {
public:
    Experiment(const ExperimentOptions& options, const EmbeddedCard& card, StopSignals& signals)
        : options_(options),
          signals_(signals),
          client_(CardClient::connect_or_fail(card.name())),
          plan_{.receivers = receivers_of(options.paths),
                .percents = options.percents,
                .compat = options.compat},
          programs_(plan_, card.name()) {}

    void run() {
        fmt::print("  rdmalab cc --name {} --tx-packets {}\n", client_.name(), kTxPackets);
        client_.admin({{"op", "cc_set"}, {"tx_packets_per_event", kTxPackets}});
        if (!options_.loss.empty()) {
            fmt::print("  rdmalab link cable0 --name {} --loss {}\n", client_.name(),
                       options_.loss);
            client_.admin({{"op", "link"}, {"cable", "cable0"}, {"loss", options_.loss}});
        }
        start_programs();
        start_traffic();
        run_traffic();
        finish();
    }
    const ExperimentFacts& facts() const { return facts_; }
    ExperimentExpectation expectation() const {
        ExperimentExpectation expected;
        expected.percents = plan_.percents;
        expected.compat = options_.compat;
        expected.losses_allowed =
            !options_.loss.empty() || options_.restart_pcc || options_.restart_ingress;
        expected.sees_requests = !options_.restart_pcc;
        return expected;
    }

private:
    using Condition = std::function<bool()>;
    void pause() {
        if (std::optional<StopSignal> signal = signals_.wait(kLookSeconds)) {
            throw Failure(128 + signal->number, "interrupted; the card and the programs are gone");
        }
    }
    void wait_for(const Condition& condition, CollectedProcess& process, const char* what) {
        const double deadline = unix_time() + kStartSeconds;
        while (!condition()) {
            const bool ended = process.exit_status().has_value();
            if (ended || unix_time() > deadline) {
                throw Failure(kExitFailed,
                              fmt::format("{}: {} '{}'\n{}", what,
                                          ended ? "it ended early:" : "it does not say so:",
                                          process.command_line(), process.output()));
            }
            pause();
        }
    }
    void start_programs() {
        programs_.start_ingress();
        wait_for([this] { return programs_.ingress_says("steer started (role=ingress"); },
                 programs_.ingress(), "flow_steer is not ready");
        start_pcc_until_active([this] { programs_.start_pcc(); });
    }
    void start_pcc_until_active(const std::function<void()>& start) {
        start();
        wait_for([this] { return programs_.pcc_says("steer started (role=egress"); },
                 programs_.pcc(), "pcc's pipes are not ready");
        wait_for([this] { return programs_.pcc_says("Info: PCC host status Active"); },
                 programs_.pcc(), "pcc is not active");
    }
    void start_traffic() {
        programs_.start_receivers();
        const double deadline = unix_time() + kStartSeconds;
        // The ports of RDMA CM are the card's; each receiver holds one.
        while (number(member(client_.admin({{"op", "status"}}), "cm"), "ports") <
               plan_.receivers.size()) {
            check_troubles();
            if (unix_time() > deadline) throw Failure(kExitFailed, "the receivers do not listen");
            pause();
        }
        programs_.start_senders();
        facts_.traffic_begin_s = unix_time();
        take_counters();
        begin_losses_ = losses_of(counters_);
    }
    void check_troubles() {
        const std::vector<std::string> troubles = programs_.troubles();
        if (!troubles.empty()) throw Failure(kExitFailed, troubles.front());
    }

    void run_traffic() {
        double length = options_.seconds;
        if (options_.change_percents || options_.restart_pcc || options_.restart_ingress) {
            length = std::max(length, kEarlySeconds + kSettleSeconds + kSteadySeconds);
        }
        const double begin = facts_.traffic_begin_s, end = begin + length;
        double next_view = begin + kViewSeconds;
        ExperimentView view;
        fmt::print("\n");
        while (unix_time() < end) {
            pause();
            read_records();
            const double elapsed = unix_time() - begin;
            if (!acted_ && elapsed >= kEarlySeconds) act();
            if (!is_steady_ && elapsed >= length - kSteadySeconds) begin_steady_time();
            if (unix_time() < next_view) continue;
            next_view += kViewSeconds;
            take_counters();
            view.show({elapsed, length, phase_, flow_rates_}, facts_);
            if (!programs_.troubles().empty()) break;
        }
        take_counters();
        facts_.traffic_end_s = unix_time();
        note_steady_rates();
    }
    // What a variant does in the middle of the traffic.
    void act() {
        acted_ = true;
        if (options_.change_percents) {
            std::vector<double> percents(plan_.percents.rbegin(), plan_.percents.rend());
            programs_.change_percents(percents);
            plan_.percents = percents;
            phase_ = "percentages changed";
        }
        if (options_.restart_ingress) {
            programs_.restart_ingress();
            wait_for([this] { return programs_.ingress_says("steer started (role=ingress"); },
                     programs_.ingress(), "flow_steer is not ready again");
            phase_ = "flow_steer killed and restarted";
        }
        if (options_.restart_pcc) {
            start_pcc_until_active([this] { programs_.restart_pcc(); });
            facts_.egress.clear();
            facts_.traffic_begin_s = unix_time();  // of the program that is judged
            phase_ = "pcc killed and restarted";
        }
    }
    void read_records() {
        for (const Json& record : programs_.ingress_records().read_new()) {
            if (auto sample = read_ingress(record)) facts_.ingress.push_back(std::move(*sample));
        }
        for (const Json& record : programs_.pcc_records().read_new()) {
            if (auto sample = read_egress(record)) facts_.egress.push_back(std::move(*sample));
        }
    }
    void take_counters() {
        const double now = unix_time();
        const Json before = std::move(counters_);
        counters_ = client_.admin({{"op", "counters"}});
        flow_rates_ = rates_between(before, counters_, now - counted_s_);
        counted_s_ = now;
    }
    std::vector<double> rates_between(const Json& before, const Json& after, double seconds) const {
        std::vector<double> rates;
        for (const Receiver& receiver : plan_.receivers) {
            const auto bytes = static_cast<double>(received_bytes(after, receiver.device) -
                                                   received_bytes(before, receiver.device));
            rates.push_back(before.is_object() ? bytes * 8 / 1e9 / seconds : 0);
        }
        return rates;
    }
    void begin_steady_time() {
        is_steady_ = true;
        take_counters();
        steady_counters_ = counters_;
        facts_.steady_begin_s = counted_s_;
    }
    void note_steady_rates() {
        if (!is_steady_) return;
        facts_.flow_gigabits_per_second = rates_between(
            steady_counters_, counters_, facts_.traffic_end_s - facts_.steady_begin_s);
    }

    void finish() {
        facts_.sender_troubles = programs_.troubles();
        for (auto& [name, count] : losses_of(counters_)) {
            if (count > begin_losses_[name]) facts_.losses[name] = count - begin_losses_[name];
        }
        const bool ended_well = programs_.stop();
        read_records();
        facts_.ingress_lines = split_lines(programs_.ingress().output());
        facts_.pcc_lines = split_lines(programs_.pcc().output());
        if (!ended_well && facts_.sender_troubles.empty()) {
            facts_.sender_troubles.push_back(
                fmt::format("flow_steer or pcc did not end in order after SIGINT:\n{}\n{}",
                            programs_.ingress().output(), programs_.pcc().output()));
        }
        save_logs();
    }
    void save_logs() {
        if (options_.log_folder.empty()) return;
        std::filesystem::create_directories(options_.log_folder);
        const auto save = [&](const char* name, const std::vector<std::string>& lines) {
            std::ofstream file(std::filesystem::path(options_.log_folder) / name);
            for (const std::string& line : lines) file << line << '\n';
        };
        save("flow_steer.log", facts_.ingress_lines);
        save("pcc.log", facts_.pcc_lines);
    }

    const ExperimentOptions& options_;
    StopSignals& signals_;
    CardClient client_;
    ExperimentPlan plan_;
    ExperimentPrograms programs_;
    ExperimentFacts facts_;
    Json counters_, steady_counters_;
    std::map<std::string, std::uint64_t> begin_losses_;
    double counted_s_ = 0;
    std::vector<double> flow_rates_;
    bool acted_ = false, is_steady_ = false;
    std::string phase_;
};

Json record_of(const ExperimentOptions& options, const ExperimentFacts& facts,
               const std::vector<Criterion>& criteria) {
    Json list = Json::array(), shares = Json::array();
    for (const Criterion& one : criteria) {
        list.push_back({{"name", one.name},
                        {"expected", one.expected},
                        {"found", one.found},
                        {"passed", one.passed}});
    }
    for (const EgressSample& sample : facts.egress) {
        shares.push_back({{"time", sample.time_s - facts.traffic_begin_s},
                          {"applied", sample.applied},
                          {"packets", sample.packets},
                          {"cnps", sample.cnps},
                          {"pending_map", sample.pending_map}});
    }
    Json paths = Json::array();
    for (const IngressSample& sample : facts.ingress) {
        paths.push_back({{"time", sample.time_s - facts.traffic_begin_s},
                         {"gbps", sample.gigabits_per_second},
                         {"marked", sample.marked},
                         {"percents", sample.percents}});
    }
    return {{"experiment", "path steering"},
            {"passed", all_passed(criteria)},
            {"seconds", facts.traffic_end_s - facts.traffic_begin_s},
            {"compat", options.compat},
            {"flow_gbps", facts.flow_gigabits_per_second},
            {"criteria", list},
            {"egress", shares},
            {"ingress", paths}};
}

void write_record(const std::string& path, const Json& record) {
    std::ofstream file(path);
    file << record.dump(1) << '\n';
    if (!file) throw Failure(kExitFailed, fmt::format("--json: cannot write '{}'", path));
}

std::string print_verdict(const std::vector<Criterion>& criteria) {
    Table table({"", "criterion", "expected", "found"});
    for (const Criterion& one : criteria) {
        table.add_row({one.passed ? "ok" : "FAIL", one.name, one.expected, one.found});
    }
    return table.print();
}

}  // namespace

void run_experiment(const ExperimentOptions& options) {
    StopSignals signals;
    CardOptions card_options;
    card_options.name = fmt::format("demo-{}", getpid());
    if (options.paths > 2) card_options.topology = "four-paths";
    EmbeddedCard card(card_options);
    fmt::print("card '{}' (pid {}); two virtual paths over one cable, {} flows:\n", card.name(),
               card.pid(), options.paths);
    Experiment experiment(options, card, signals);
    experiment.run();
    const std::vector<Criterion> criteria = judge(experiment.facts(), experiment.expectation());
    fmt::print("\nverdict\n{}\n", print_verdict(criteria));
    if (!options.json_file.empty()) {
        write_record(options.json_file, record_of(options, experiment.facts(), criteria));
    }
    const auto failed = std::ranges::count(criteria, false, &Criterion::passed);
    if (failed > 0) {
        throw Failure(kExitFailed,
                      fmt::format("{} of {} criteria do not hold", failed, criteria.size()));
    }
    fmt::print("verdict: PASS (all {} criteria hold)\n", criteria.size());
}

std::optional<ExperimentOptions> experiment_variant(const std::string& name) {
    ExperimentOptions options;
    if (name == "tutorial") return options;
    if (name == "swapped") {
        options.percents = {0.05, 0.025};
    } else if (name == "equal") {
        options.percents = {0.05, 0.05};
    } else if (name == "clean") {
        options.percents = {0, 0.05};
    } else if (name == "changed") {
        options.change_percents = true;
    } else if (name == "compat-2.9") {
        options.compat = "2.9";
    } else if (name == "four-paths") {
        options.paths = 4;
        options.percents = {0.025, 0.05, 0.05, 0.1};
    } else if (name == "loss") {
        options.loss = "1%";
    } else if (name == "restart-pcc") {
        options.restart_pcc = true;
    } else if (name == "restart-flow-steer") {
        options.restart_ingress = true;
    } else {
        return std::nullopt;
    }
    return options;
}

std::vector<std::string> experiment_variants() {
    return {"tutorial",   "swapped",    "equal", "clean",       "changed",
            "compat-2.9", "four-paths", "loss",  "restart-pcc", "restart-flow-steer"};
}

}  // namespace rdmalab::launcher

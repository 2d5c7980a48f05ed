// `rdmalab demo --card`: the shortest proof that a program made for RDMA adapters runs here. Two
// unmodified ib_write_bw pairs share the cable of a private card; the verdict compares what they
// say they sent with what the card says it carried.

#include "rdmalab/demo_card.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <memory>

#include "rdmalab/card_client.h"
#include "rdmalab/card_process.h"
#include "rdmalab/counters_report.h"
#include "rdmalab/demo_run.h"
#include "rdmalab/failure.h"
#include "rdmalab/perftest_output.h"
#include "rdmalab/runtime_folder.h"
#include "rdmalab/table.h"

namespace rdmalab::launcher {

namespace {

constexpr char kSource[] = "mlx5_3";
constexpr std::array<const char*, 2> kTargets = {"mlx5_2", "mlx5_4"};
constexpr double kLookSeconds = 0.02;
constexpr double kListenSeconds = 10;
constexpr double kSlackSeconds = 30;  // beyond the requested time, for a loaded machine

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Pair {
    std::string target;
    std::uint16_t port = 0;
    std::unique_ptr<CollectedProcess> server, client;
    std::optional<BandwidthResult> result;
};

class Demo {
public:
    Demo(const EmbeddedCard& card, std::string seconds, StopSignals& signals)
        : seconds_(std::move(seconds)), signals_(signals) {
        environment_ = {{"LD_LIBRARY_PATH", library_folder()},
                        {"RDMALAB_SOCKET", card_files(card.name()).socket},
                        {"RDMALAB_CARD", card.name()}};
    }

    // Throws Failure when a program cannot do its part.
    void run() {
        for (std::size_t i = 0; i < kTargets.size(); ++i) start_server(pairs_[i], kTargets[i]);
        for (Pair& pair : pairs_) wait_until_listening(pair);
        for (Pair& pair : pairs_) start_client(pair);
        Clock::time_point begin = Clock::now();
        double limit = std::stod(seconds_) + kSlackSeconds;
        while (!all_ended()) {
            pause();
            if (seconds_since(begin) > limit) fail("ib_write_bw did not finish", pairs_[0]);
        }
        for (Pair& pair : pairs_) collect(pair);
    }
    const std::array<Pair, 2>& pairs() const { return pairs_; }

private:
    std::unique_ptr<CollectedProcess> start(const std::string& device, const Pair& pair,
                                            bool client) {
        std::vector<std::string> command = {"ib_write_bw",
                                            "-d",
                                            device,
                                            "-F",
                                            "-D",
                                            seconds_,
                                            "--report_gbits",
                                            "-p",
                                            std::to_string(pair.port)};
        if (client) command.push_back("127.0.0.1");
        auto process = std::make_unique<CollectedProcess>(std::move(command), environment_);
        fmt::print("  {}\n", process->command_line());
        std::fflush(stdout);
        return process;
    }
    void start_server(Pair& pair, const char* target) {
        pair.target = target;
        pair.port = free_tcp_port();
        pair.server = start(target, pair, false);
    }
    void start_client(Pair& pair) { pair.client = start(kSource, pair, true); }

    void pause() {
        if (std::optional<StopSignal> signal = signals_.wait(kLookSeconds)) {
            throw Failure(128 + signal->number, "interrupted; the card and the programs are gone");
        }
    }
    void wait_until_listening(Pair& pair) {
        Clock::time_point begin = Clock::now();
        while (!is_tcp_port_listening(pair.port)) {
            if (pair.server->exit_status()) fail("the server ended early", pair);
            if (seconds_since(begin) > kListenSeconds) fail("the server does not listen", pair);
            pause();
        }
    }
    bool all_ended() {
        bool ended = true;
        for (Pair& pair : pairs_) {
            if (!pair.server->exit_status()) ended = false;
            if (!pair.client->exit_status()) ended = false;
        }
        return ended;
    }
    void collect(Pair& pair) {
        if (*pair.server->exit_status() != 0) fail("the server failed", pair);
        if (*pair.client->exit_status() != 0) fail("the client failed", pair);
        pair.result = parse_bandwidth(pair.client->output());
        if (!pair.result) fail("the client printed no result", pair);
    }
    [[noreturn]] void fail(const std::string& reason, const Pair& pair) const {
        std::string text = fmt::format("{} ({} -> {})", reason, kSource, pair.target);
        for (const CollectedProcess* process : {pair.server.get(), pair.client.get()}) {
            if (process == nullptr) continue;
            text += fmt::format("\n--- {}\n{}", process->command_line(), process->output());
        }
        throw Failure(kExitFailed, text);
    }

    std::string seconds_;
    StopSignals& signals_;
    std::map<std::string, std::string> environment_;
    std::array<Pair, 2> pairs_;
};

std::string print_results(const std::array<Pair, 2>& pairs) {
    Table table({"from", "to", "messages", "bytes", "Gb/s"});
    for (const Pair& pair : pairs) {
        table.add_row({kSource, pair.target, print_count(pair.result->messages),
                       print_count(pair.result->bytes()),
                       fmt::format("{:.2f}", pair.result->gigabits_per_second)});
    }
    return table.print();
}

// What must stay 0 for a clean run.
std::string find_errors(const Json& counters) {
    const std::pair<const char*, std::vector<const char*>> kMustBeZero[] = {
        {"ports", {"dropped"}},
        {"functions", {"rx_icrc_errors", "rx_dropped", "req_cqe_error", "resp_cqe_error"}},
    };
    std::string text;
    for (const auto& [group, keys] : kMustBeZero) {
        for (const auto& [name, values] : member(counters, group).items()) {
            for (const char* key : keys) {
                std::uint64_t count = number(values, key);
                if (count > 0) text += fmt::format(" {} {}={}", name, key, count);
            }
        }
    }
    return text;
}

// Empty when all is well.
std::string judge(const std::array<Pair, 2>& pairs, const Json& counters) {
    std::uint64_t payload = 0;
    for (const Pair& pair : pairs) payload += pair.result->bytes();
    std::uint64_t carried = 0;
    for (const auto& [name, port] : member(counters, "ports").items()) {
        carried = std::max(carried, number(port, "tx_bytes"));
    }
    if (payload == 0) return "the programs sent nothing";
    if (carried < payload) {
        return fmt::format("the programs report {} bytes, the cable carried only {}",
                           print_count(payload), print_count(carried));
    }
    std::string errors = find_errors(counters);
    return errors.empty() ? "" : "the card counted errors:" + errors;
}

}  // namespace

void run_card_demo(const std::string& seconds) {
    StopSignals signals;
    CardOptions options;
    options.name = fmt::format("demo-{}", getpid());
    EmbeddedCard card(options);
    fmt::print("card '{}' (pid {}), topology loopback; two programs share its cable:\n",
               card.name(), card.pid());
    Demo demo(card, seconds, signals);
    demo.run();
    Json counters = CardClient::connect_or_fail(card.name()).admin({{"op", "counters"}});
    fmt::print("\nresults\n{}\n{}\n", print_results(demo.pairs()), print_port_counters(counters));
    std::string reason = judge(demo.pairs(), counters);
    if (!reason.empty()) throw Failure(kExitFailed, reason);
    fmt::print("verdict: PASS (both finished, every byte is on the cable's counters, no errors)\n");
}

}  // namespace rdmalab::launcher

// A congestion control process for tests: runs an algorithm on a PF and prints what happens, a line
// each.
//
//   congestion_process --device mlx5_1 --algo pure_ecn [--report-only] [--workers N] [--mailbox]
//                      [--layout 3.1|3.4] [--watchdog-ms N] [--coredump FILE] [--text]
//
//   state Active                       whenever it changes
//   report 0x000123 943712             reports of flows, each flow's newest once in 100 ms
//   error 14 TEXT                      once
//   end {"events":..,"answers":..}     at SIGTERM or SIGINT
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "pcc/host/process.h"

namespace {

using namespace rdmalab;
using pcc::ProcessState;

std::atomic<bool> is_over{false};

void end(int) { is_over = true; }

struct Arguments {
    pcc::host::ProcessOptions options;
    std::string algorithm = "dcqcn";
    bool by_mailbox = false, prints_text = false;
};

std::uint32_t number(const char* text) {
    std::uint32_t value = 0;
    std::from_chars(text, text + std::strlen(text), value);
    return value;
}

bool take_value(Arguments& arguments, const std::string& name, const char* value) {
    if (name == "--device") {
        arguments.options.device = value;
    } else if (name == "--algo") {
        arguments.algorithm = value;
    } else if (name == "--workers") {
        arguments.options.workers = number(value);
    } else if (name == "--watchdog-ms") {
        arguments.options.watchdog = milliseconds(number(value));
    } else if (name == "--coredump") {
        arguments.options.coredump_file = value;
    } else if (name == "--layout") {
        arguments.options.trace_layout =
            std::string(value) == "3.1" ? pcc::TraceLayout::k3_1 : pcc::TraceLayout::k3_4;
    } else {
        return false;
    }
    return true;
}

Arguments parse(int count, char** values) {
    Arguments arguments;
    arguments.options.device = "mlx5_1";
    for (int i = 1; i < count; ++i) {
        const std::string name = values[i];
        if (name == "--report-only") {
            arguments.options.report_only = true;
        } else if (name == "--mailbox") {
            arguments.by_mailbox = true;
        } else if (name == "--text") {
            arguments.prints_text = true;
        } else if (i + 1 == count || !take_value(arguments, name, values[++i])) {
            std::fprintf(stderr, "unknown argument %s\n", name.c_str());
            std::exit(2);
        }
    }
    return arguments;
}

int complain(const Error& error) {
    std::printf("error %d %s\n", error.code, error.text.c_str());
    return 1;
}

void print_reports(pcc::host::Process& process) {
    std::map<std::uint32_t, std::uint32_t> newest;
    for (const pcc::FlowReport& report : process.poll_reports()) newest[report.qpn] = report.rate;
    for (const auto& [qpn, rate] : newest) std::printf("report 0x%06x %u\n", qpn, rate);
}

int watch(pcc::host::Process& process) {
    ProcessState state = ProcessState::kDeactivated;
    bool is_first = true;
    while (!is_over) {
        const ProcessState now = process.wait(state, milliseconds(100));
        if (now != state || is_first) std::printf("state %s\n", pcc::host::state_name(now));
        state = now;
        is_first = false;
        if (state == ProcessState::kError) {
            complain(process.error());
            break;
        }
        print_reports(process);
        std::fflush(stdout);
    }
    const auto statistics = process.statistics();
    process.stop();
    std::printf(
        "end {\"events\":%llu,\"answers\":%llu,\"lost\":%llu,\"cnp\":%llu,\"rtt\":%llu,"
        "\"tx\":%llu,\"ack\":%llu}\n",
        static_cast<unsigned long long>(statistics.runtime.events),
        static_cast<unsigned long long>(statistics.answers),
        static_cast<unsigned long long>(statistics.events_lost),
        static_cast<unsigned long long>(statistics.runtime.events_by_type[2]),
        static_cast<unsigned long long>(statistics.runtime.events_by_type[6]),
        static_cast<unsigned long long>(statistics.runtime.events_by_type[3]),
        static_cast<unsigned long long>(statistics.runtime.events_by_type[4]));
    return state == ProcessState::kError ? 1 : 0;
}

}  // namespace

int main(int count, char** values) {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::signal(SIGTERM, end);
    std::signal(SIGINT, end);
    Arguments arguments = parse(count, values);
    auto algorithm = pcc::host::Algorithm::load(arguments.algorithm);
    if (!algorithm.ok()) return complain(algorithm.error());
    arguments.options.algorithm = std::move(*algorithm);
    if (arguments.prints_text) {
        arguments.options.print = [](const std::string& text) {
            std::printf("text %s", text.c_str());
        };
    }
    auto process = pcc::host::Process::start(std::move(arguments.options));
    if (!process.ok()) return complain(process.error());
    (*process)->set_mailbox_reports(arguments.by_mailbox);
    return watch(**process);
}

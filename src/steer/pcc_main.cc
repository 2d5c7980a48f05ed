// pcc: hosts a congestion control algorithm on a card and, with the sender's representor, steers
// packets between paths by what it reports. See docs/steering.md and pcc(1).

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "pcc/host/algorithm.h"
#include "pcc/host/process.h"
#include "steer/commands.h"
#include "steer/control_socket.h"
#include "steer/messages.h"
#include "steer/metrics.h"
#include "steer/pcc_commands.h"
#include "steer/program.h"
#include "steer/program_loop.h"

namespace rdmalab::steer {
namespace {

using pcc::ProcessState;
using pcc::host::Process;

SwitchOptions switch_options(const PccOptions& options) {
    SwitchOptions result;
    result.common = options;
    result.functions = {options.steer_representor->name};
    result.steers = true;
    return result;
}

std::string coredump_file(const PccOptions& options) {
    if (!options.coredump_file.empty()) return options.coredump_file;
    std::error_code ignored;
    return std::filesystem::temp_directory_path(ignored) / "doca_pcc_coredump.txt";
}

std::unique_ptr<Process> start_process(const PccOptions& options, Console& console) {
    pcc::host::ProcessOptions process;
    process.device = options.device;
    process.algorithm = take(pcc::host::Algorithm::load(options.algorithm));
    process.workers = options.workers;
    process.report_only = options.steer_representor.has_value() || options.report_only;
    process.trace_layout =
        options.compat == Compat::k3_4 ? pcc::TraceLayout::k3_4 : pcc::TraceLayout::k3_1;
    process.coredump_file = coredump_file(options);
    process.print = [&console](const std::string& text) { console.debug(text); };
    std::unique_ptr<Process> started = take(Process::start(std::move(process)));
    // 2.9 has no trace records; its program asks by mailbox, once an interval.
    started->set_mailbox_reports(options.compat == Compat::k2_9);
    for (const std::string& setting : options.parameters) {
        check(set_parameter(*started, setting));
    }
    return started;
}

class PccProgram {
public:
    PccProgram(const PccOptions& options, ProcessConsole& console)
        : options_(options), console_(console) {
        if (!options.metrics.empty()) metrics_ = take(Metrics::serve(options.metrics));
        // The pipes first: connections are seen from the first one on.
        if (options.steer_representor) {
            domain_ = attach(options);
            program_ =
                std::make_unique<SwitchProgram>(domain_->pipes(), switch_options(options), console);
            check(program_->start());
            console.info(messages::steering_active());
        }
        process_ = start_process(options, console);
        if (options.remote_sw_handler) {
            console.info(
                "Info: probes are answered by the card; --remote-sw-handler changes "
                "nothing on it");
        }
        check(watch_state());
    }

    int run(ProgramSignals& signals, ControlSocket& control) {
        LoopHooks hooks;
        hooks.poll = [this] { return poll(); };
        hooks.end_interval = [this](const Interval& interval) { return end_interval(interval); };
        hooks.show_insides = [this] { show_insides(); };
        hooks.command = [this](const auto& words) { return command(words); };
        const Status status = run_loop({.interval_s = options_.interval_s,
                                        .end_after_s = options_.wait_s,
                                        .hang_up = domain_ ? domain_->descriptor() : -1},
                                       signals, control, hooks);
        if (program_) {
            for (const std::string& line : program_->summary()) console_.info(line);
        }
        process_->stop();
        console_.info(messages::process_state(pcc::host::state_name(ProcessState::kDeactivated)));
        check(status);
        if (program_) {
            program_->stop();
            console_.info("steer stopped: pipes removed");
        }
        return 0;
    }

private:
    Status poll() {
        if (Status status = watch_state(); !status.ok()) return status;
        if (!program_) return {};
        if (options_.compat != Compat::k2_9) take_reports();
        return program_->poll();
    }
    Status end_interval(const Interval& interval) {
        if (program_) {
            take_reports();
            if (Status status = program_->end_interval(interval); !status.ok()) return status;
        }
        if (!metrics_) return {};
        if (program_) metrics_->update(*program_);
        const Process::Statistics statistics = process_->statistics();
        metrics_->update_process(process_->state() == ProcessState::kActive,
                                 statistics.runtime.events, statistics.events_lost,
                                 statistics.runtime.trace_lost);
        return {};
    }
    void take_reports() {
        for (const pcc::FlowReport& report : process_->poll_reports()) {
            program_->egress()->report(Qpn{report.qpn}, report.rate);
        }
    }
    Status watch_state() {
        const ProcessState state = process_->state();
        if (said_ != state) console_.info(messages::process_state(pcc::host::state_name(state)));
        said_ = state;
        if (state != ProcessState::kError) return {};
        const Error error = process_->error();
        return Error{error.code != 0 ? error.code : EIO, error.text};
    }
    // The reference program: debugging on, and at the next signal the dump.
    void show_insides() {
        if (console_.level() < LogLevel::kDebug) {
            level_before_ = console_.level();
            console_.set_level(LogLevel::kDebug);
            console_.info("Info: PCC debug enabled; the next SIGUSR1 dumps and disables it");
            return;
        }
        console_.info(process_->debug_dump());
        console_.set_level(level_before_);
    }
    Result<std::string> command(const std::vector<std::string>& words) {
        if (const auto own = handle_pcc_command(words, *process_)) return *own;
        Result<std::string> result = handle_command(words, program_.get(), console_);
        if (result.ok() && words == std::vector<std::string>{"help"}) {
            return std::string(kPccCommandHelp) + "\n" + *result;
        }
        return result;
    }

    const PccOptions& options_;
    ProcessConsole& console_;
    std::unique_ptr<Metrics> metrics_;
    std::unique_ptr<flow::client::Domain> domain_;
    std::unique_ptr<SwitchProgram> program_;
    std::unique_ptr<Process> process_;
    std::optional<ProcessState> said_;
    LogLevel level_before_ = LogLevel::kInfo;
};

int run(const PccOptions& options) {
    if (options.tell.pid) return tell_program(options.tell);
    ProgramSignals signals;
    ProcessConsole console(options.log_level);
    open_console(options, console);
    select_card(options);
    const std::unique_ptr<ControlSocket> control = take(ControlSocket::open());
    return PccProgram(options, console).run(signals, *control);
}

}  // namespace
}  // namespace rdmalab::steer

int main(int argument_count, char** arguments) {
    return rdmalab::steer::run_program<rdmalab::steer::PccCommandLine>(argument_count, arguments,
                                                                       rdmalab::steer::run);
}

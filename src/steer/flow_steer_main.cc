// flow_steer: the receiver's side of path steering (paths emulated in a switch domain), or the
// sender's side with shares that a person sets. See docs/steering.md and flow_steer(1).

#include "steer/commands.h"
#include "steer/control_socket.h"
#include "steer/metrics.h"
#include "steer/program.h"
#include "steer/program_loop.h"

namespace rdmalab::steer {
namespace {

SwitchOptions switch_options(const FlowSteerOptions& options) {
    SwitchOptions result;
    result.common = options;
    result.role = options.role;
    result.role_text = options.role_text;
    for (const PathOptions& path : options.paths) {
        if (path.representor) result.functions.push_back(path.representor->name);
    }
    return result;
}

int run(const FlowSteerOptions& options) {
    if (options.tell.pid) return tell_program(options.tell);
    ProgramSignals signals;
    ProcessConsole console(options.log_level);
    open_console(options, console);
    select_card(options);
    const std::unique_ptr<ControlSocket> control = take(ControlSocket::open());
    std::unique_ptr<Metrics> metrics;
    if (!options.metrics.empty()) metrics = take(Metrics::serve(options.metrics));

    const std::unique_ptr<flow::client::Domain> domain = attach(options);
    SwitchProgram program(domain->pipes(), switch_options(options), console);
    check(program.start());

    LoopHooks hooks;
    hooks.poll = [&] { return program.poll(); };
    hooks.end_interval = [&](const Interval& interval) {
        Status status = program.end_interval(interval);
        if (status.ok() && metrics) metrics->update(program);
        return status;
    };
    hooks.show_insides = [&] { console.info(*handle_command({"status"}, &program, console)); };
    hooks.command = [&](const auto& words) { return handle_command(words, &program, console); };
    const Status status =
        run_loop({.interval_s = options.interval_s, .hang_up = domain->descriptor()}, signals,
                 *control, hooks);
    for (const std::string& line : program.summary()) console.info(line);
    check(status);
    program.stop();
    console.info("steer stopped: pipes removed");
    return 0;
}

}  // namespace
}  // namespace rdmalab::steer

int main(int argument_count, char** arguments) {
    return rdmalab::steer::run_program<rdmalab::steer::FlowSteerCommandLine>(
        argument_count, arguments, rdmalab::steer::run);
}

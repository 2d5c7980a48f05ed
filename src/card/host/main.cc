// rdmalab-card: the card as a daemon. It stays in the foreground; `rdmalab up` puts it in the
// background and waits for the line on --ready-fd.
//
// Exit codes: 0 ended in order, 1 the system refused something, 2 wrong input.

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <optional>

#include "card/host/daemon.h"
#include "card/host/scheduling.h"
#include "card/host/topology.h"

namespace rdmalab::card::host {
namespace {

constexpr int kExitSystem = 1, kExitInput = 2;

struct CommandLine {
    std::string topology = "loopback";
    std::string name = "default";
    std::optional<std::uint64_t> seed;
    int ready_fd = -1;
    std::string log, libraries;
    std::vector<std::string> uplinks;
    bool realtime = false, computed_icrc = false, netns = false, clean_up = false;
};

void define(CLI::App& app, CommandLine& out) {
    app.set_version_flag("--version", std::string("rdmalab-card ") + RDMALAB_VERSION);
    app.add_option("--topology", out.topology,
                   fmt::format("Built-in topology ({}) or a TOML file",
                               fmt::join(builtin_topologies(), ", ")))
        ->capture_default_str();
    app.add_option("--uplink", out.uplinks,
                   "Instead of a topology: a card of one PF per network interface named, which is "
                   "its way to other hosts (needs CAP_NET_RAW); may be repeated")
        ->excludes("--topology");
    app.add_option("--name", out.name, "Name of this card")->capture_default_str();
    app.add_option("--seed", out.seed,
                   "Seed of all random choices (default: the topology's, or 1)");
    app.add_option("--ready-fd", out.ready_fd,
                   "Descriptor that gets the line \"ready\" when clients can connect");
    app.add_option("--log", out.log, "Append log lines to this file (default: standard error)");
    app.add_flag("--realtime", out.realtime, "Run under SCHED_FIFO (needs rights)");
    app.add_flag("--netns", out.netns,
                 "Make the topology's network namespaces, with an interface for each function that "
                 "has one (needs root)");
    app.add_option("--libraries", out.libraries,
                   "Folder of libraries that programs in these namespaces find before others");
    app.add_flag("--clean-up", out.clean_up,
                 "Remove what a killed card of this name left behind, and end");
    app.add_flag("--computed-icrc", out.computed_icrc,
                 "Carry every frame as bytes with a computed ICRC (slow)");
}

int complain(int exit_code, const std::string& text) {
    fmt::print(stderr, "rdmalab-card: {}\n", text);
    return exit_code;
}

int exit_code_of(const Error& error) {
    return error.code == EINVAL || error.code == EADDRINUSE ? kExitInput : kExitSystem;
}

Status set_up_log(const std::string& file) {
    if (file.empty()) {
        spdlog::set_default_logger(spdlog::stderr_color_st("card"));
    } else {
        try {
            spdlog::set_default_logger(spdlog::basic_logger_st("card", file));
        } catch (const spdlog::spdlog_ex& error) {
            return Error{EIO, fmt::format("cannot open the log: {}", error.what())};
        }
    }
    spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%f %^%l%$ %v");
    spdlog::flush_on(spdlog::level::info);
    return {};
}

// Writes to a client that has gone, or past a file size limit, are errors to handle, not to die of.
void ignore_write_signals() {
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
}

Status announce_ready(int fd) {
    if (fd < 0) return {};
    constexpr std::string_view kLine = "ready\n";
    if (::write(fd, kLine.data(), kLine.size()) != static_cast<ssize_t>(kLine.size())) {
        return system_error("cannot write to --ready-fd");
    }
    ::close(fd);
    return {};
}

int serve(const CommandLine& options, CardConfig config) {
    ignore_write_signals();
    if (Status log = set_up_log(options.log); !log) return complain(kExitSystem, log.error().text);
    raise_descriptor_limit();
    if (options.realtime) {
        if (Status status = become_realtime(); !status) {
            return complain(kExitSystem, status.error().text);
        }
    } else {
        prefer_short_slices();
    }
    auto daemon = Daemon::start({std::move(config), options.topology, runtime_folder(),
                                 !options.realtime, options.netns, options.libraries});
    if (!daemon.ok()) return complain(exit_code_of(daemon.error()), daemon.error().text);
    if (Status signals = (*daemon)->handle_signals(); !signals) {
        return complain(kExitSystem, signals.error().text);
    }
    if (Status ready = announce_ready(options.ready_fd); !ready) {
        return complain(kExitSystem, ready.error().text);
    }
    spdlog::info("card \"{}\" ({}) listens on {}", options.name, options.topology,
                 (*daemon)->socket_path());
    (*daemon)->run();
    daemon->reset();
    spdlog::info("card \"{}\" has ended", options.name);
    return 0;
}

// The lock of the name is held meanwhile: what a card that is up has made is not in reach.
int clean_up(const std::string& name) {
    auto socket = CardSocket::claim(runtime_folder(), name);
    if (!socket.ok()) return complain(exit_code_of(socket.error()), socket.error().text);
    Status done = Namespaces::remove_recorded(Namespaces::record_of(runtime_folder(), name));
    return done ? 0 : complain(kExitSystem, done.error().text);
}

int run(int argc, char** argv) {
    CLI::App app("The software card: serves RDMA devices to programs on this machine.",
                 "rdmalab-card");
    CommandLine options;
    define(app, options);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : kExitInput;
    }
    if (options.clean_up) return clean_up(options.name);
    if (options.ready_fd >= 0 && ::fcntl(options.ready_fd, F_SETFD, FD_CLOEXEC) != 0) {
        return complain(kExitInput, fmt::format("--ready-fd: expected an open descriptor, found {}",
                                                options.ready_fd));
    }
    Topology topology = options.uplinks.empty() ? load_topology(options.topology)
                                                : uplink_topology(options.uplinks);
    for (const TopologyError& error : topology.errors) complain(kExitInput, error.to_string());
    if (!topology.ok()) return kExitInput;
    topology.config.name = options.name;
    if (!options.uplinks.empty())
        options.topology = fmt::format("uplinks {}", fmt::join(options.uplinks, ", "));
    if (options.seed) topology.config.seed = *options.seed;
    topology.config.force_computed_icrc |= options.computed_icrc;
    return serve(options, std::move(topology.config));
}

}  // namespace
}  // namespace rdmalab::card::host

int main(int argc, char** argv) { return rdmalab::card::host::run(argc, argv); }

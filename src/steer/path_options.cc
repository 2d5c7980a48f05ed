#include "steer/path_options.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>

#include "base/address.h"
#include "steer/option_completion.h"

namespace rdmalab::steer {

namespace {

std::string path_option(std::uint32_t path, const char* what) {
    return fmt::format("--path{}-{}", path, what);
}

std::uint32_t read_ip(std::uint32_t path, const RawPath& raw) {
    const std::string option = path_option(path, "ip");
    if (raw.ip.empty()) refuse(fmt::format("{} is missing: the receiver of path {}", option, path));
    const std::optional<Gid> address = Gid::parse(raw.ip);
    if (!address || !address->is_ipv4()) {
        refuse(fmt::format("{}: '{}' is no IPv4 address", option, raw.ip));
    }
    return address->ipv4();
}

void check_different_ips(const std::vector<PathOptions>& paths) {
    for (std::size_t a = 0; a < paths.size(); ++a) {
        for (std::size_t b = a + 1; b < paths.size(); ++b) {
            if (paths[a].ip != paths[b].ip) continue;
            refuse(
                fmt::format("--path{}-ip and --path{}-ip are both {}; a path is known by the "
                            "address of its own receiver",
                            a, b, Gid::from_ipv4(paths[a].ip).to_string()));
        }
    }
}

void check_ports(const std::vector<PathOptions>& paths) {
    for (std::size_t path = 0; path < paths.size(); ++path) {
        if (paths[path].port.empty() != paths[0].port.empty()) {
            refuse(
                fmt::format("--path{}-port is missing: either every path has its own port, or "
                            "none has and all share one cable",
                            paths[path].port.empty() ? path : 0));
        }
        for (std::size_t other = 0; other < path; ++other) {
            if (paths[path].port.empty() || paths[path].port != paths[other].port) continue;
            refuse(fmt::format("--path{}-port and --path{}-port are both '{}'", other, path,
                               paths[path].port));
        }
    }
}

Compat read_compat(const std::string& text) {
    if (text == "2.9") return Compat::k2_9;
    if (text == "3.1") return Compat::k3_1;
    if (text == "3.4") return Compat::k3_4;
    refuse(fmt::format("--compat: '{}' is not supported; expected 2.9, 3.1 or 3.4", text));
}

void check_sizes(const RawCommon& raw) {
    if (raw.path_count < kPathMin || raw.path_count > kPathMax) {
        refuse(
            fmt::format("--paths: {} is not within {} and {}", raw.path_count, kPathMin, kPathMax));
    }
    if (!std::has_single_bit(raw.buckets) || raw.buckets > kBucketMax) {
        refuse(fmt::format("--buckets: {} is no power of two up to {}", raw.buckets, kBucketMax));
    }
    if (raw.buckets < raw.path_count) {
        refuse(fmt::format("--buckets: {} buckets are fewer than the {} paths", raw.buckets,
                           raw.path_count));
    }
    if (!(raw.interval_s >= 0.01 && raw.interval_s <= 3600)) {
        refuse(fmt::format("--interval: {} is not within 0.01 and 3600 seconds", raw.interval_s));
    }
    if (raw.log_level < 10 || raw.log_level > 70 || raw.log_level % 10 != 0) {
        refuse(fmt::format("--log-level: {} is none of 10, 20, 30, 40, 50, 60, 70", raw.log_level));
    }
}

PathOptions read_path(std::uint32_t path, const RawPath& raw, bool need_ip) {
    PathOptions options;
    if (!raw.representor.empty()) {
        const Result<Representor> representor = parse_representor(raw.representor);
        if (!representor.ok()) refuse(path_option(path, "rep") + ": " + representor.error().text);
        options.representor = *representor;
    }
    if (need_ip || !raw.ip.empty()) options.ip = read_ip(path, raw);
    if (!(raw.percent >= 0 && raw.percent <= 100)) {
        refuse(fmt::format("{}: {} is not within 0 and 100 percent", path_option(path, "percent"),
                           raw.percent));
    }
    options.percent = raw.percent;
    options.port = raw.port;
    return options;
}

void refuse_surplus_paths(const RawCommon& raw) {
    for (std::uint32_t path = raw.path_count; path < kPathMax; ++path) {
        const RawPath& surplus = raw.paths[path];
        const bool has_percent =
            surplus.percent_option != nullptr && surplus.percent_option->count() > 0;
        if (surplus.representor.empty() && surplus.ip.empty() && surplus.port.empty() &&
            !has_percent) {
            continue;
        }
        refuse(
            fmt::format("options of path {} were given, but there are only {} paths; "
                        "expected --paths {} or more",
                        path, raw.path_count, path + 1));
    }
}

}  // namespace

[[noreturn]] void refuse(const std::string& text) { throw CLI::ValidationError(text); }

void add_path_options(CLI::App& app, RawCommon& raw, bool with_representors_and_percents) {
    for (std::uint32_t path = 0; path < kPathMax; ++path) {
        RawPath& options = raw.paths[path];
        // Sixteen times the same would bury the help; the footer says how it goes on.
        const std::string group = path < kPathMin ? "Paths" : "";
        if (with_representors_and_percents) {
            const char* letter = path == 0 ? "-r," : (path == 1 ? "-R," : "");
            app.add_option(
                   letter + path_option(path, "rep"), options.representor,
                   fmt::format("Representor of path {}'s receiver (or of the sender)", path))
                ->type_name("pci/BDF,pfNsfN")
                ->group(group);
            options.percent_option =
                app.add_option(path_option(path, "percent"), options.percent,
                               "How much of all traffic the path marks, in percent: 0.025 is "
                               "0.025 %")
                    ->type_name("PERCENT")
                    ->capture_default_str()
                    ->group(group);
        }
        app.add_option(path_option(path, "ip"), options.ip,
                       fmt::format("Address of path {}'s probe receiver", path))
            ->type_name("IPV4")
            ->group(group);
        app.add_option(path_option(path, "port"), options.port,
                       fmt::format("Port of the card that is path {}'s next hop, instead of a "
                                   "private bit on one cable",
                                   path))
            ->type_name("PORT")
            ->group(group);
    }
    app.add_option("--paths", raw.path_count,
                   "Number of paths, 2 to 16; further paths have "
                   "--path2-ip and so on")
        ->type_name("N")
        ->capture_default_str()
        ->group("Paths");
    app.add_option("--buckets", raw.buckets,
                   "Buckets of the dispatch table, a power of two up to "
                   "1024")
        ->type_name("B")
        ->capture_default_str()
        ->group("Paths");
    app.add_option("--force-path", raw.force_path, "Send everything by this path; no classifier")
        ->type_name("K")
        ->group("Paths");
}

void add_common_options(CLI::App& app, RawCommon& raw) {
    app.add_option("--compat", raw.compat, "Behave as on this release: 2.9, 3.1 or 3.4")
        ->type_name("RELEASE")
        ->capture_default_str();
    app.add_option("--card", raw.card, "Name of the card (default: $RDMALAB_CARD, or 'default')")
        ->type_name("NAME");
    app.add_option("--socket", raw.socket, "Socket of the card, instead of its name")
        ->type_name("PATH");
    app.add_option("--interval", raw.interval_s, "Seconds between reports and control decisions")
        ->type_name("SECONDS")
        ->capture_default_str();
    app.add_option("--json", raw.json_file,
                   "Write a JSON object per report to this file; '-': to standard output, instead "
                   "of the text")
        ->type_name("FILE");
    app.add_option("--metrics", raw.metrics, "Serve Prometheus metrics at this address")
        ->type_name("HOST:PORT");
    app.add_option("-l,--log-level", raw.log_level,
                   "10 nothing, 20 critical, 30 errors, 40 warnings, 50 information, 60 debug, "
                   "70 trace")
        ->type_name("LEVEL")
        ->capture_default_str();
    app.add_option("--tell", raw.tell_pid,
                   "Talk to the running program with this process id; the command follows")
        ->type_name("PID");
    app.add_option("--completion", raw.completion,
                   "Print a completion script for bash, zsh or fish, and exit")
        ->type_name("SHELL");
    app.add_option("command", raw.tell_words, "With --tell: 'help' lists what can be said")
        ->type_name("COMMAND");
}

void print_completion(const RawCommon& raw, const CLI::App& app) {
    if (raw.completion.empty()) return;
    const Result<std::string> script =
        completion_script(app, {app.get_name(), "doca_" + app.get_name()}, raw.completion);
    if (!script.ok()) refuse(script.error().text);
    throw CLI::CallForVersion(*script, 0);  // printed as it is, exit status 0
}

void read_common(const RawCommon& raw, bool need_ips, CommonOptions& options) {
    check_sizes(raw);
    refuse_surplus_paths(raw);
    options.compat = read_compat(raw.compat);
    options.compat_text = raw.compat;
    for (std::uint32_t path = 0; path < raw.path_count; ++path) {
        options.paths.push_back(read_path(path, raw.paths[path], need_ips));
    }
    if (need_ips) check_different_ips(options.paths);
    check_ports(options.paths);
    options.buckets = raw.buckets;
    if (!raw.force_path.empty()) {
        const std::vector<std::uint32_t> path = parse_number_list("--force-path", raw.force_path);
        if (path.size() != 1 || path[0] >= raw.path_count) {
            refuse(fmt::format("--force-path: '{}' is no path; expected 0 to {}", raw.force_path,
                               raw.path_count - 1));
        }
        options.force_path = path[0];
        if (options.compat == Compat::k2_9) refuse("--force-path needs --compat 3.1 or 3.4");
    }
    if (!raw.tell_words.empty()) {
        refuse(fmt::format("unexpected argument '{}'; commands need --tell PID",
                           raw.tell_words.front()));
    }
    if (!raw.card.empty() && !raw.socket.empty()) {
        refuse("--card and --socket exclude each other");
    }
    options.card = raw.card;
    options.socket = raw.socket;
    options.json_file = raw.json_file;
    options.metrics = raw.metrics;
    options.log_level = static_cast<LogLevel>(raw.log_level);
    options.interval_s = raw.interval_s;
}

bool read_tell(const RawCommon& raw, TellOptions& tell) {
    if (raw.tell_pid.empty()) return false;
    int pid = 0;
    const char* end = raw.tell_pid.data() + raw.tell_pid.size();
    const auto result = std::from_chars(raw.tell_pid.data(), end, pid);
    if (result.ec != std::errc() || result.ptr != end || pid <= 0) {
        refuse(fmt::format("--tell: '{}' is no process id", raw.tell_pid));
    }
    if (raw.tell_words.empty()) refuse("--tell: the command is missing; 'help' lists them");
    tell.pid = pid;
    tell.words = raw.tell_words;
    return true;
}

std::vector<std::uint32_t> parse_number_list(const std::string& option, const std::string& text) {
    constexpr std::size_t kNumberMax = 1024;
    std::vector<std::uint32_t> numbers;
    const char* at = text.data();
    const char* const end = at + text.size();
    const auto number = [&] {
        std::uint32_t value = 0;
        const auto result = std::from_chars(at, end, value);
        if (result.ec != std::errc() || value > 0xffff) {
            refuse(fmt::format("{}: '{}' is no list of numbers like \"0 2-5 8\"", option, text));
        }
        at = result.ptr;
        return value;
    };
    const auto skip = [&] {
        while (at != end && (*at == ' ' || *at == ',')) ++at;
    };
    for (skip(); at != end; skip()) {
        const std::uint32_t first = number();
        std::uint32_t last = first;
        if (at != end && *at == '-') {
            ++at;
            last = number();
        }
        for (std::uint32_t value = first; value <= last; ++value) numbers.push_back(value);
        if (last < first || numbers.size() > kNumberMax) {
            refuse(fmt::format("{}: '{}' holds a range that cannot be", option, text));
        }
    }
    if (numbers.empty()) refuse(fmt::format("{}: the list is empty", option));
    return numbers;
}

std::vector<std::uint32_t> CommonOptions::receiver_ips() const {
    std::vector<std::uint32_t> ips;
    for (const PathOptions& path : paths) ips.push_back(path.ip);
    return ips;
}

}  // namespace rdmalab::steer

#include "steer/steer_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "steer/path_options.h"

namespace rdmalab::steer {

namespace {

constexpr std::uint32_t kWorkerMax = 64;

constexpr char kFlowSteerFooter[] =
    "Roles: 'ingress' (or 'receiver') emulates the paths in front of the receivers, 'egress' (or\n"
    "'sender') spreads what a sender sends, 'both' does both in one switch domain.\n"
    "Example:\n"
    "  flow_steer -r pci/0000:03:00.0,pf0sf0 -R pci/0000:03:00.0,pf0sf4 \\\n"
    "    --path0-ip 10.0.0.1 --path1-ip 10.0.0.11 --role ingress \\\n"
    "    --path0-percent 0.025 --path1-percent 0.05\n"
    "While it runs:  flow_steer --tell PID path1-percent 0.1\n"
    "flow_steer(1) explains everything.";

constexpr char kPccFooter[] =
    "Example:\n"
    "  pcc --device mlx5_1 -r pci/0000:03:00.1,pf1sf0 \\\n"
    "    --path0-ip 10.0.0.1 --path1-ip 10.0.0.11\n"
    "Without -r it only runs the algorithm. While it runs:  pcc --tell PID help\n"
    "pcc(1) explains everything.";

Role read_role(const std::string& text) {
    if (text == "ingress" || text == "receiver") return Role::kIngress;
    if (text == "egress" || text == "sender") return Role::kEgress;
    if (text == "both") return Role::kBoth;
    refuse(fmt::format(
        "--role: '{}' is no role; expected ingress, receiver, egress, sender or both", text));
}

void check_representors(const FlowSteerOptions& options) {
    const bool needs_all = options.role != Role::kEgress;
    for (std::size_t path = 0; path < options.paths.size(); ++path) {
        const std::optional<Representor>& own = options.paths[path].representor;
        if (!own) {
            if (!needs_all && path > 0) continue;
            refuse(fmt::format(
                "--path{}-rep is missing: role {} needs the representor of {}", path,
                options.role_text,
                needs_all ? fmt::format("path {}'s receiver", path) : std::string("the sender")));
        }
        if (own->pci != options.paths[0].representor->pci) {
            refuse(
                fmt::format("--path0-rep and --path{}-rep are of two switches ({} and {}); a "
                            "program owns one",
                            path, options.paths[0].representor->pci, own->pci));
        }
        for (std::size_t other = 0; other < path; ++other) {
            if (options.paths[other].representor != own) continue;
            refuse(
                fmt::format("--path{}-rep and --path{}-rep are both {}", other, path, own->name));
        }
    }
}

void read_device_pci(const std::string& option, const std::string& text,
                     const Representor& representor, CommonOptions& options) {
    options.pci = representor.pci;
    if (text.empty()) return;
    const Result<std::string> pci = parse_pci_address(text);
    if (!pci.ok()) refuse(option + ": " + pci.error().text);
    if (*pci != representor.pci) {
        refuse(fmt::format("{} is {}, but the representor {} belongs to {}", option, *pci,
                           representor.name, representor.pci));
    }
}

// "KEY: 176-180 190": one application a line; '#' begins a remark.
std::vector<std::uint32_t> read_resources(const std::string& file, const std::string& key) {
    std::ifstream in(file);
    if (!in) refuse(fmt::format("--dpa-resources: cannot read '{}'", file));
    std::string line, keys;
    while (std::getline(in, line)) {
        line = line.substr(0, line.find('#'));
        const std::size_t colon = line.find(':');
        if (colon == std::string::npos) continue;
        std::string name = line.substr(0, colon);
        name.erase(0, name.find_first_not_of(" \t"));
        if (name == key) {
            std::string list = line.substr(colon + 1);
            std::erase_if(list, [](char c) { return c == '[' || c == ']'; });
            return parse_number_list("--dpa-resources", list);
        }
        keys += (keys.empty() ? "" : ", ") + name;
    }
    refuse(fmt::format("--dpa-app-key: '{}' has no application '{}'; it has: {}", file, key, keys));
}

std::vector<std::string> reversed(std::vector<std::string> words) {
    std::ranges::reverse(words);  // as CLI11 wants them
    return words;
}

}  // namespace

struct FlowSteerCommandLine::Raw : RawCommon {
    std::string device, role = "both";
};

FlowSteerCommandLine::FlowSteerCommandLine()
    : app_("Path steering in the switch of a card: marks, spreads and counts.", "flow_steer"),
      raw_(std::make_shared<Raw>()) {
    app_.footer(kFlowSteerFooter);
    app_.set_help_flag("-h,--help", "Print this help and exit");
    app_.set_version_flag("--version", std::string("flow_steer ") + RDMALAB_VERSION,
                          "Print the version and exit");
    app_.add_option("-a,--device", raw_->device, "PCI address of the PF that owns the switch")
        ->type_name("BDF");
    app_.add_option("--role", raw_->role, "ingress (receiver), egress (sender) or both")
        ->type_name("ROLE")
        ->capture_default_str();
    add_path_options(app_, *raw_, true);
    add_common_options(app_, *raw_);
}

FlowSteerOptions FlowSteerCommandLine::parse(std::vector<std::string> words) {
    app_.parse(reversed(std::move(words)));
    print_completion(*raw_, app_);
    FlowSteerOptions options;
    if (read_tell(*raw_, options.tell)) return options;
    options.role = read_role(raw_->role);
    options.role_text = raw_->role;
    read_common(*raw_, true, options);
    check_representors(options);
    read_device_pci("--device", raw_->device, *options.paths[0].representor, options);
    return options;
}

struct PccCommandLine::Raw : RawCommon {
    std::string device, steer_representor, steer_device, threads, resources, app_key;
    std::string algorithm = "pure_ecn", coredump_file;
    double wait_s = -1;
    bool report_only = false, remote_sw_handler = false;
    std::vector<std::string> parameters;
};

PccCommandLine::PccCommandLine()
    : app_("Runs a congestion control algorithm on a card, and steers by what it reports.", "pcc"),
      raw_(std::make_shared<Raw>()) {
    app_.footer(kPccFooter);
    app_.set_help_flag("-h,--help", "Print this help and exit");
    app_.set_version_flag("--version", std::string("pcc ") + RDMALAB_VERSION,
                          "Print the version and exit");
    app_.add_option("-d,--device", raw_->device, "RDMA device of the PF (mlx5_1)")
        ->type_name("DEVICE");
    app_.add_option("-r,--steer-rep", raw_->steer_representor,
                    "Representor of the sender: embed the egress steering pipeline")
        ->type_name("pci/BDF,pfNsfN");
    app_.add_option("-a,--steer-device", raw_->steer_device,
                    "PCI address of the PF that owns the switch")
        ->type_name("BDF");
    app_.add_option("--algo", raw_->algorithm, "Algorithm: a name, or a file FILE.so")
        ->type_name("NAME|FILE")
        ->capture_default_str();
    app_.add_option("--param", raw_->parameters, "Set a parameter of the algorithm: ID=VALUE")
        ->type_name("ID=VALUE");
    app_.add_flag("--report-only", raw_->report_only,
                  "The card does not pace by the rates (always so with -r)");
    app_.add_option("-t,--threads", raw_->threads,
                    "Threads to run on, as a list like \"176-178 180\": one worker each")
        ->type_name("LIST");
    app_.add_option("--dpa-resources", raw_->resources,
                    "File with the threads of each application, a line \"KEY: LIST\" each")
        ->type_name("FILE");
    app_.add_option("--dpa-app-key", raw_->app_key, "Which application of --dpa-resources")
        ->type_name("KEY");
    app_.add_option("-w,--wait-time", raw_->wait_s, "End after so many seconds; negative: never")
        ->type_name("SECONDS")
        ->capture_default_str();
    app_.add_flag("--remote-sw-handler", raw_->remote_sw_handler,
                  "RTT probes are answered by software at the receiver (also: -r-handler)");
    app_.add_option("-f,--coredump-file", raw_->coredump_file,
                    "Where a crash of the algorithm is written down (default: "
                    "doca_pcc_coredump.txt in the folder for temporary files)")
        ->type_name("FILE");
    add_path_options(app_, *raw_, false);
    add_common_options(app_, *raw_);
}

PccOptions PccCommandLine::parse(std::vector<std::string> words) {
    // A long option with one dash, which would be read as -r with a value.
    std::ranges::replace(words, std::string("-r-handler"), std::string("--remote-sw-handler"));
    app_.parse(reversed(std::move(words)));
    print_completion(*raw_, app_);
    PccOptions options;
    if (read_tell(*raw_, options.tell)) return options;
    if (raw_->device.empty()) refuse("--device is missing: the RDMA device of the PF, like mlx5_1");
    options.device = raw_->device;
    const bool steers = !raw_->steer_representor.empty();
    read_common(*raw_, steers, options);
    if (steers) {
        const Result<Representor> representor = parse_representor(raw_->steer_representor);
        if (!representor.ok()) refuse("--steer-rep: " + representor.error().text);
        options.steer_representor = *representor;
        read_device_pci("--steer-device", raw_->steer_device, *representor, options);
    } else if (!raw_->steer_device.empty() || options.force_path || options.paths[0].ip != 0) {
        refuse("--steer-rep is missing: without the sender's representor there is no steering");
    }
    if (raw_->resources.empty() != raw_->app_key.empty()) {
        refuse(raw_->resources.empty() ? "--dpa-app-key needs --dpa-resources"
                                       : "--dpa-resources needs --dpa-app-key");
    }
    if (!raw_->threads.empty()) options.threads = parse_number_list("--threads", raw_->threads);
    if (!raw_->resources.empty()) {
        if (!options.threads.empty()) refuse("--threads and --dpa-resources exclude each other");
        options.threads = read_resources(raw_->resources, raw_->app_key);
    }
    if (!options.threads.empty()) {
        options.workers = static_cast<std::uint32_t>(options.threads.size());
    }
    if (options.workers > kWorkerMax) {
        refuse(fmt::format("--threads: {} threads are more than {}", options.workers, kWorkerMax));
    }
    options.algorithm = raw_->algorithm;
    options.parameters = raw_->parameters;
    options.wait_s = raw_->wait_s;
    options.coredump_file = raw_->coredump_file;
    options.report_only = raw_->report_only;
    options.remote_sw_handler = raw_->remote_sw_handler;
    return options;
}

}  // namespace rdmalab::steer

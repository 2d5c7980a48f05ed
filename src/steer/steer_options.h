// The command lines of flow_steer and pcc, read and checked as far as that needs no card. What is
// wrong is thrown as CLI::ParseError with a text that says what was expected and what was found.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "steer/bucket_split.h"
#include "steer/representor.h"

namespace rdmalab::steer {

// Which release's programming interface the program follows.
enum class Compat : std::uint8_t { k2_9, k3_1, k3_4 };
// 2.9 hashes a random field and knows no BTH match; 3.x has RANDOM hash pipes.
constexpr bool has_native_random(Compat compat) { return compat != Compat::k2_9; }

enum class Role : std::uint8_t { kIngress, kEgress, kBoth };

// DOCA's numbers of log levels.
enum class LogLevel : std::uint32_t {
    kDisable = 10,
    kCritical = 20,
    kError = 30,
    kWarning = 40,
    kInfo = 50,
    kDebug = 60,
    kTrace = 70,
};

struct PathOptions {
    std::optional<Representor> representor;
    std::uint32_t ip = 0;  // of the path's probe receiver, host byte order
    double percent = 100;  // literal: 0.025 is 0.025 % of all traffic
    std::string port;      // the card's port that is the path's next hop; empty: one cable
};

// What both programs have.
struct CommonOptions {
    std::vector<PathOptions> paths;
    std::uint32_t buckets = kDefaultBuckets;
    Compat compat = Compat::k3_4;
    std::string compat_text = "3.4";
    std::optional<std::uint32_t> force_path;
    std::string pci;        // of the PF to own; empty: none (pcc without steering)
    std::string card;       // its name; empty: by the environment
    std::string socket;     // of the card, instead of its name
    std::string json_file;  // "-": instead of the text
    std::string metrics;    // address to listen on; empty: none
    LogLevel log_level = LogLevel::kInfo;
    double interval_s = 1;

    bool has_ports() const { return !paths.empty() && !paths[0].port.empty(); }
    std::vector<std::uint32_t> receiver_ips() const;
};

// What only talks to a running program, instead of being one.
struct TellOptions {
    std::optional<int> pid;
    std::vector<std::string> words;
};

struct FlowSteerOptions : CommonOptions {
    Role role = Role::kBoth;
    std::string role_text;
    TellOptions tell;
};

struct PccOptions : CommonOptions {
    std::string device;
    std::optional<Representor> steer_representor;
    std::string algorithm = "pure_ecn";
    std::uint32_t workers = 1;
    std::vector<std::uint32_t> threads;  // as -t named them
    double wait_s = -1;                  // negative: for ever
    std::string coredump_file;
    bool report_only = false;  // rates are not enforced; always so while it steers
    bool remote_sw_handler = false;
    std::vector<std::string> parameters;  // "NAME=VALUE" or "ID=VALUE"
    TellOptions tell;
};

class FlowSteerCommandLine {
public:
    FlowSteerCommandLine();
    // `words` without the program's name.
    FlowSteerOptions parse(std::vector<std::string> words);
    CLI::App& app() { return app_; }

private:
    CLI::App app_;
    FlowSteerOptions options_;
    struct Raw;
    std::shared_ptr<Raw> raw_;
};

class PccCommandLine {
public:
    PccCommandLine();
    PccOptions parse(std::vector<std::string> words);
    CLI::App& app() { return app_; }

private:
    CLI::App app_;
    PccOptions options_;
    struct Raw;
    std::shared_ptr<Raw> raw_;
};

}  // namespace rdmalab::steer

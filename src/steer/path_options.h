// The options that flow_steer and pcc share: paths, buckets, versions, outputs.
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <string>

#include "steer/steer_options.h"

namespace rdmalab::steer {

// As they stand on the command line.
struct RawPath {
    std::string representor, ip, port;
    double percent = 100;
    CLI::Option* percent_option = nullptr;
};
struct RawCommon {
    std::array<RawPath, kPathMax> paths;
    std::uint32_t path_count = kPathMin, buckets = kDefaultBuckets, log_level = 50;
    std::string compat = "3.4", card, socket, json_file, metrics, force_path;
    double interval_s = 1;
    std::string tell_pid, completion;
    std::vector<std::string> tell_words;
};

void add_path_options(CLI::App& app, RawCommon& raw, bool with_representors_and_percents);
void add_common_options(CLI::App& app, RawCommon& raw);

[[noreturn]] void refuse(const std::string& text);

// Reads `raw` into `options`; `need_ips` is false where no pipes will be made.
void read_common(const RawCommon& raw, bool need_ips, CommonOptions& options);
// True when the words are for a running program, and nothing else needs to be there.
bool read_tell(const RawCommon& raw, TellOptions& tell);

// --completion: the script is printed by throwing it, as the help is.
void print_completion(const RawCommon& raw, const CLI::App& app);

// "0, 2-5 8" as numbers; DOCA separates by blanks.
std::vector<std::uint32_t> parse_number_list(const std::string& option, const std::string& text);

}  // namespace rdmalab::steer

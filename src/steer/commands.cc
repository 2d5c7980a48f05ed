#include "steer/commands.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>

namespace rdmalab::steer {

namespace {

template <class Number>
std::optional<Number> read_number(const std::string& text) {
    Number value{};
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
    return value;
}

Error wrong(const std::string& text) { return {EINVAL, text}; }

// "path1-percent": 1.
std::optional<std::uint32_t> path_of_percent(const std::string& word) {
    constexpr std::string_view kBefore = "path", kBehind = "-percent";
    if (!word.starts_with(kBefore) || !word.ends_with(kBehind) ||
        word.size() <= kBefore.size() + kBehind.size()) {
        return std::nullopt;
    }
    return read_number<std::uint32_t>(
        word.substr(kBefore.size(), word.size() - kBefore.size() - kBehind.size()));
}

Result<std::string> set_percents(const std::vector<std::string>& words, SwitchProgram& program) {
    // All are read before the first is set.
    std::vector<std::pair<std::uint32_t, double>> settings;
    for (std::size_t i = 0; i < words.size(); i += 2) {
        const std::optional<std::uint32_t> path = path_of_percent(words[i]);
        if (!path) return wrong(fmt::format("'{}' is not of the form pathK-percent", words[i]));
        if (i + 1 == words.size()) return wrong(words[i] + ": the percentage is missing");
        const std::optional<double> percent = read_number<double>(words[i + 1]);
        if (!percent) return wrong(fmt::format("'{}' is no percentage", words[i + 1]));
        settings.emplace_back(*path, *percent);
    }
    for (const auto& [path, percent] : settings) {
        if (Status status = program.set_percent(path, percent); !status.ok()) {
            return status.error();
        }
    }
    return std::string();
}

Result<std::string> set_shares(const std::vector<std::string>& words, SwitchProgram& program) {
    if (words.size() == 2 && words[1] == "auto") {
        if (program.egress() == nullptr) return wrong("this program spreads no packets over paths");
        program.egress()->release_split();
        return std::string();
    }
    std::vector<std::uint32_t> shares;
    for (std::size_t i = 1; i < words.size(); ++i) {
        const std::optional<std::uint32_t> share = read_number<std::uint32_t>(words[i]);
        if (!share) return wrong(fmt::format("'{}' is no number of buckets", words[i]));
        shares.push_back(*share);
    }
    if (shares.empty()) return wrong("share: the number of buckets is missing");
    if (Status status = program.set_shares(shares); !status.ok()) return status.error();
    return std::string();
}

Result<std::string> set_log_level(const std::vector<std::string>& words, ProcessConsole& console) {
    const auto level = words.size() == 2 ? read_number<std::uint32_t>(words[1]) : std::nullopt;
    if (!level || *level < 10 || *level > 70 || *level % 10 != 0) {
        return wrong("log-level: expected one of 10, 20, 30, 40, 50, 60, 70");
    }
    console.set_level(static_cast<LogLevel>(*level));
    return std::string();
}

std::string status_of(const SwitchProgram* program, const ProcessConsole& console) {
    nlohmann::json status = {{"log_level", static_cast<std::uint32_t>(console.level())}};
    if (program != nullptr && program->ingress() != nullptr) {
        status["ingress"] = to_record(program->ingress()->snapshot(), {});
    }
    if (program != nullptr && program->egress() != nullptr) {
        status["egress"] = to_record(program->egress()->snapshot(), {});
    }
    return status.dump();
}

}  // namespace

Result<std::string> handle_command(const std::vector<std::string>& words, SwitchProgram* program,
                                   ProcessConsole& console) {
    if (words.empty()) return wrong("an empty command");
    const std::string& verb = words.front();
    if (verb == "help") return std::string(kCommandHelp);
    if (verb == "log-level") return set_log_level(words, console);
    if (verb == "status") return status_of(program, console);
    const bool is_percent = path_of_percent(verb).has_value();
    if (is_percent || verb == "share") {
        if (program == nullptr) return wrong("this program steers nothing");
        return is_percent ? set_percents(words, *program) : set_shares(words, *program);
    }
    return Error{ENOSYS, fmt::format("'{}' is no command; 'help' lists them", verb)};
}

}  // namespace rdmalab::steer

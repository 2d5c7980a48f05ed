#include "steer/pcc_commands.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>

namespace rdmalab::steer {

namespace {

std::optional<std::uint32_t> read_number(const std::string& text) {
    std::uint32_t value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
    return value;
}

// Of the first algorithm that has such a parameter.
Status set_parameter(pcc::host::Process& process, const std::string& id_text,
                     const std::string& value_text) {
    const std::optional<std::uint32_t> id = read_number(id_text), value = read_number(value_text);
    if (!id || !value) {
        return Error{EINVAL, fmt::format("'{}' and '{}' are not the number and the value of a "
                                         "parameter",
                                         id_text, value_text)};
    }
    for (const pcc::AlgorithmInfo& algorithm : process.algorithms()) {
        for (const pcc::ParameterInfo& parameter : algorithm.parameters) {
            if (parameter.id != *id) continue;
            return process.set_parameter(algorithm.index, *id, *value);
        }
    }
    return Error{ENOENT, fmt::format("the algorithm has no parameter {}", *id)};
}

std::string print_algorithms(const pcc::host::Process& process) {
    std::string text;
    const auto out = std::back_inserter(text);
    for (const pcc::AlgorithmInfo& algorithm : process.algorithms()) {
        fmt::format_to(out, "algorithm {} id=0x{:x} version {}.{}: {}\n", algorithm.index,
                       algorithm.id, algorithm.version_major, algorithm.version_minor,
                       algorithm.text);
        for (const pcc::ParameterInfo& parameter : algorithm.parameters) {
            fmt::format_to(out, "  param {} = {} ({} to {}, at first {}): {}\n", parameter.id,
                           parameter.value, parameter.min, parameter.max, parameter.initial,
                           parameter.text);
        }
        for (const pcc::CounterInfo& counter : algorithm.counters) {
            fmt::format_to(out, "  counter {} = {}: {}\n", counter.id, counter.value, counter.text);
        }
    }
    if (!text.empty()) text.pop_back();
    return text;
}

std::string print_statistics(const pcc::host::Process& process) {
    const pcc::host::Process::Statistics statistics = process.statistics();
    const pcc::RuntimeStatistics& runtime = statistics.runtime;
    return nlohmann::json{{"events", runtime.events},
                          {"cnp", runtime.events_by_type[2]},
                          {"tx", runtime.events_by_type[3]},
                          {"ack", runtime.events_by_type[4]},
                          {"nack", runtime.events_by_type[5]},
                          {"rtt", runtime.events_by_type[6]},
                          {"suppressed", runtime.events_suppressed},
                          {"events_lost", statistics.events_lost},
                          {"answers", statistics.answers},
                          {"bad_rates", runtime.bad_rates},
                          {"trace_records", runtime.trace_records},
                          {"trace_lost", runtime.trace_lost},
                          {"flows", runtime.flows}}
        .dump();
}

}  // namespace

std::optional<Result<std::string>> handle_pcc_command(const std::vector<std::string>& words,
                                                      pcc::host::Process& process) {
    if (words.size() == 3 && words[0] == "param") {
        const Status status = set_parameter(process, words[1], words[2]);
        return status.ok() ? Result<std::string>(std::string())
                           : Result<std::string>(status.error());
    }
    if (words.size() != 1) return std::nullopt;
    if (words[0] == "params") return Result<std::string>(print_algorithms(process));
    if (words[0] == "dump") return Result<std::string>(process.debug_dump());
    if (words[0] == "statistics") return Result<std::string>(print_statistics(process));
    return std::nullopt;
}

Status set_parameter(pcc::host::Process& process, const std::string& setting) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos) {
        return Error{EINVAL, fmt::format("--param: '{}' is not of the form ID=VALUE", setting)};
    }
    return set_parameter(process, setting.substr(0, equals), setting.substr(equals + 1));
}

}  // namespace rdmalab::steer

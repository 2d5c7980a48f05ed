#include "steer/console.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

namespace rdmalab::steer {

ProcessConsole::~ProcessConsole() {
    if (records_ != nullptr && records_ != stdout) std::fclose(records_);
}

Status ProcessConsole::open_records(const std::string& file) {
    if (file.empty()) return {};
    records_ = file == "-" ? stdout : std::fopen(file.c_str(), "we");
    if (records_ != nullptr) return {};
    const int code = errno;
    return Error{code, fmt::format("--json: cannot write '{}': {}", file, std::strerror(code))};
}

void ProcessConsole::line(LogLevel level, const std::string& text) {
    if (level > level_ || level_ == LogLevel::kDisable) return;
    const bool is_trouble = level <= LogLevel::kWarning;
    if (!is_trouble && records_ == stdout) return;
    std::FILE* const out = is_trouble ? stderr : stdout;
    fmt::print(out, "{}\n", text);
    std::fflush(out);
}

void ProcessConsole::record(const nlohmann::json& object) {
    if (records_ == nullptr) return;
    fmt::print(records_, "{}\n", object.dump());
    std::fflush(records_);
}

}  // namespace rdmalab::steer

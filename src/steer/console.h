// Where the programs say what happens: lines of text that scripts parse, and records for machines.
//
// Lines go to standard output and leave at once, also into a pipe or a file: a script that waits
// for a line must not wait for a buffer. (The reference program leaves standard output to stdio, so
// its users run it under `stdbuf -oL`; that does no harm here.)
#pragma once

#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "steer/steer_options.h"

namespace rdmalab::steer {

class Console {
public:
    virtual ~Console() = default;
    virtual void line(LogLevel level, const std::string& text) = 0;
    virtual void record(const nlohmann::json& object) = 0;

    void info(const std::string& text) { line(LogLevel::kInfo, text); }
    void warn(const std::string& text) { line(LogLevel::kWarning, text); }
    void error(const std::string& text) { line(LogLevel::kError, text); }
    void debug(const std::string& text) { line(LogLevel::kDebug, text); }
};

class ProcessConsole : public Console {
public:
    // Errors and warnings go to standard error, all else to standard output.
    explicit ProcessConsole(LogLevel level) : level_(level) {}
    ~ProcessConsole() override;
    ProcessConsole(const ProcessConsole&) = delete;
    ProcessConsole& operator=(const ProcessConsole&) = delete;
    // "-": records take the place of lines on standard output.
    Status open_records(const std::string& file);
    void set_level(LogLevel level) { level_ = level; }
    LogLevel level() const { return level_; }

    void line(LogLevel level, const std::string& text) override;
    void record(const nlohmann::json& object) override;

private:
    LogLevel level_;
    std::FILE* records_ = nullptr;
};

}  // namespace rdmalab::steer

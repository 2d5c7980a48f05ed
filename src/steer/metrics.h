// The programs' figures for Prometheus (--metrics HOST:PORT): set once per interval, served by a
// thread of prometheus-cpp. docs/steering.md lists the names.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "steer/switch_program.h"

namespace rdmalab::steer {

class Metrics {
public:
    // EADDRINUSE and the like, with the address in the text.
    static Result<std::unique_ptr<Metrics>> serve(const std::string& address);
    ~Metrics();
    Metrics(const Metrics&) = delete;
    Metrics& operator=(const Metrics&) = delete;

    void update(const SwitchProgram& program);
    // Of a congestion control process.
    void update_process(bool is_active, std::uint64_t events, std::uint64_t events_lost,
                        std::uint64_t reports_lost);

private:
    Metrics();
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace rdmalab::steer

// Every line that the programs print about steering, in one place: scripts parse them, so the texts
// are a contract (docs/steering.md). With two paths they are those of the reference program; with
// more, each "path1=..." goes on with "path2=..." and so forth.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "steer/cm_table.h"
#include "steer/flow_rates.h"
#include "steer/share_controller.h"

namespace rdmalab::steer::messages {

std::string dispatch_ready();
std::string classifier_ready();
std::string legacy_classifier_ready(std::uint32_t buckets);

std::string started(const std::string& role, std::span<const double> percents);
std::string sampling(std::uint32_t path, double intended_percent, double selected_percent);

std::string request_grouping(const CmConnection& connection);
std::string feedback_grouping(const CmConnection& connection);
std::string mapping(const CmConnection& connection);
std::string connection_ended(const CmConnection& connection);
std::string cnp_counter_installed(const CmConnection& connection);
std::string path_class(Qpn sender, std::uint32_t rate, std::uint32_t path);

// `target` is absent while the controller decides nothing; the applied split stands for it.
std::string diagnostic(const Signals& signals, const std::optional<BucketSplit>& target,
                       const BucketSplit& applied);
std::string share_applied(const BucketSplit& before, const BucketSplit& after);
std::string update_failed(std::uint32_t bucket, const std::string& reason);
std::string assigned_counters(std::span<const std::uint64_t> packets, const BucketSplit& split);

std::string throughput(std::span<const double> gigabits_per_second);
struct CountRate {
    std::uint64_t total = 0, delta = 0;
    double per_second = 0;
};
std::string newly_marked(std::span<const CountRate> paths);
std::string received_cnps(std::span<const CountRate> paths);

// The program that hosts congestion control.
std::string process_state(const char* state);
std::string steering_active();
std::vector<std::string> rate_averages(const FlowRates& rates, std::uint64_t received_now);

}  // namespace rdmalab::steer::messages

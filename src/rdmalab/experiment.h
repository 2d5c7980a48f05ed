// `rdmalab demo`: the closed loop of path steering, in real time, with unmodified programs, and its
// verdict. docs/steering.md describes it.
#pragma once

#include <string>
#include <vector>

#include "rdmalab/experiment_programs.h"
#include "rdmalab/experiment_verdict.h"

namespace rdmalab::launcher {

struct ExperimentOptions {
    double seconds = 45;  // of traffic
    std::vector<double> percents = {0.025, 0.05};
    std::string compat = "3.4";
    std::string loss;  // of the cable, like "1%"; empty: none
    std::uint32_t paths = 2;
    bool change_percents = false;  // swapped in the middle
    bool restart_pcc = false, restart_ingress = false;
    std::string json_file;   // the record of the run; empty: none
    std::string log_folder;  // output of all programs; empty: none
};

// Throws Failure with the reason when not all criteria hold.
void run_experiment(const ExperimentOptions& options);

// Named variants, for --variant. Nothing when there is no such name.
std::optional<ExperimentOptions> experiment_variant(const std::string& name);
std::vector<std::string> experiment_variants();

}  // namespace rdmalab::launcher

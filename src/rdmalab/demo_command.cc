// `rdmalab demo`: the path steering experiment; with --card, two programs on one cable.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "rdmalab/commands.h"
#include "rdmalab/demo_card.h"
#include "rdmalab/experiment.h"
#include "rdmalab/failure.h"
#include "rdmalab/quantity.h"

namespace rdmalab::launcher {

namespace {

constexpr std::uint64_t kExperimentSecondsMin = 45;  // shares need so long to settle

struct DemoOptions {
    bool card = false;
    std::string seconds, variant = "tutorial", json_file, log_folder;
};

void run_demo(const DemoOptions& options) {
    if (options.card) {
        if (!options.json_file.empty() || !options.log_folder.empty()) {
            throw Failure(kExitBadInput, "--json and --logs are not for --card");
        }
        const std::string seconds = options.seconds.empty() ? "4" : options.seconds;
        return run_card_demo(std::to_string(parse_count("--seconds", seconds, 1)));
    }
    std::optional<ExperimentOptions> experiment = experiment_variant(options.variant);
    if (!experiment) {
        throw Failure(kExitBadInput, fmt::format("--variant: '{}' is none of {}", options.variant,
                                                 fmt::join(experiment_variants(), ", ")));
    }
    if (!options.seconds.empty()) {
        experiment->seconds =
            static_cast<double>(parse_count("--seconds", options.seconds, kExperimentSecondsMin));
    }
    experiment->json_file = options.json_file;
    experiment->log_folder = options.log_folder;
    run_experiment(*experiment);
}

}  // namespace

void add_demo_command(CLI::App& app, Session&) {
    CLI::App* command = app.add_subcommand(
        "demo", "Steer two RDMA flows over two paths by congestion control, and judge the result");
    auto options = std::make_shared<DemoOptions>();
    command->add_flag("--card", options->card,
                      "Instead, run two unmodified ib_write_bw over a private card");
    command
        ->add_option("--seconds", options->seconds,
                     "How long the programs send (default: 45; with --card 4)")
        ->type_name("SECONDS");
    command
        ->add_option("--variant", options->variant,
                     fmt::format("One of {}", fmt::join(experiment_variants(), ", ")))
        ->type_name("NAME")
        ->capture_default_str();
    command->add_option("--json", options->json_file, "Write the record of the run to this file")
        ->type_name("FILE");
    command->add_option("--logs", options->log_folder, "Keep what flow_steer and pcc print there")
        ->type_name("FOLDER");
    command->footer("Needs the package perftest. Leaves nothing running.");
    command->callback([options] {
        try {
            run_demo(*options);
        } catch (const Failure& failure) {
            std::fflush(stdout);
            if (failure.exit_status() == kExitBadInput) throw;
            throw Failure(failure.exit_status(), fmt::format("verdict: FAIL: {}", failure.what()));
        }
    });
}

}  // namespace rdmalab::launcher

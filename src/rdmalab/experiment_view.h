// What the experiment shows while it runs: on a terminal a picture that is drawn over itself, else
// one line per second.
#pragma once

#include <string>
#include <vector>

#include "rdmalab/experiment_facts.h"

namespace rdmalab::launcher {

struct ExperimentMoment {
    double seconds = 0, seconds_total = 0;  // of traffic
    std::string phase;
    std::vector<double> flow_gigabits_per_second;  // as the card counts them
};

// One line without its end.
std::string print_moment_line(const ExperimentMoment& moment, const ExperimentFacts& facts);
// Lines of the picture, none wider than `width`.
std::vector<std::string> print_moment_picture(const ExperimentMoment& moment,
                                              const ExperimentFacts& facts, std::size_t width);

class ExperimentView {
public:
    ExperimentView();
    ~ExperimentView();
    ExperimentView(const ExperimentView&) = delete;
    ExperimentView& operator=(const ExperimentView&) = delete;
    void show(const ExperimentMoment& moment, const ExperimentFacts& facts);

private:
    bool is_terminal_;
    std::size_t lines_drawn_ = 0;
};

}  // namespace rdmalab::launcher

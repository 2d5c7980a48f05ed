#include "rdmalab/experiment_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace rdmalab::launcher {

namespace {

constexpr std::size_t kWidthMin = 60, kWidthMax = 100, kHistoryMax = 60;
constexpr double kFullRate = 1 << 20;

std::size_t terminal_width() {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    return std::clamp<std::size_t>(size.ws_col, kWidthMin, kWidthMax);
}

std::string bar(double part, std::size_t width) {
    const auto full = static_cast<std::size_t>(
        std::lround(std::clamp(part, 0.0, 1.0) * static_cast<double>(width)));
    return std::string(full, '#') + std::string(width - full, '.');
}

// The history of path 0's share: one character per second, '0' to '9' of all buckets.
std::string history(const ExperimentFacts& facts) {
    std::string text;
    const std::size_t count = facts.egress.size();
    for (std::size_t i = count > kHistoryMax ? count - kHistoryMax : 0; i < count; ++i) {
        const EgressSample& sample = facts.egress[i];
        if (sample.applied.empty()) continue;
        const double part = sample.applied[0] / sample.buckets;
        text += static_cast<char>('0' + std::clamp(static_cast<int>(part * 10), 0, 9));
    }
    return text;
}

double marks_per_second(const IngressSample& sample, std::size_t path) {
    return path < sample.marked.size() ? sample.marked[path] / sample.seconds : 0;
}

std::string shares_of(const EgressSample& sample) {
    return fmt::format("{}", fmt::join(sample.applied, ":"));
}

}  // namespace

std::string print_moment_line(const ExperimentMoment& moment, const ExperimentFacts& facts) {
    std::string text = fmt::format("{:5.1f} s", moment.seconds);
    if (!facts.egress.empty()) {
        const EgressSample& sample = facts.egress.back();
        text += fmt::format("  share {}  pending {:.0f}", shares_of(sample), sample.pending_map);
    }
    if (!facts.ingress.empty()) {
        const IngressSample& sample = facts.ingress.back();
        std::vector<std::string> rates, marks;
        for (std::size_t path = 0; path < sample.gigabits_per_second.size(); ++path) {
            rates.push_back(fmt::format("{:.2f}", sample.gigabits_per_second[path]));
            marks.push_back(fmt::format("{:.0f}", marks_per_second(sample, path)));
        }
        text +=
            fmt::format("  paths {} Gb/s  CE {}/s", fmt::join(rates, " "), fmt::join(marks, " "));
    }
    std::vector<std::string> flows;
    for (double rate : moment.flow_gigabits_per_second)
        flows.push_back(fmt::format("{:.2f}", rate));
    text += fmt::format("  flows {} Gb/s", fmt::join(flows, " "));
    if (!moment.phase.empty()) text += "  " + moment.phase;
    return text;
}

std::vector<std::string> print_moment_picture(const ExperimentMoment& moment,
                                              const ExperimentFacts& facts, std::size_t width) {
    std::vector<std::string> lines;
    lines.push_back(fmt::format("path steering  {:.0f} of {:.0f} s  {}", moment.seconds,
                                moment.seconds_total, moment.phase));
    if (!facts.egress.empty() && !facts.ingress.empty()) {
        const EgressSample& egress = facts.egress.back();
        const IngressSample& ingress = facts.ingress.back();
        const std::size_t room = width - 54;
        for (std::size_t path = 0; path < egress.applied.size(); ++path) {
            const double rate =
                path < ingress.gigabits_per_second.size() ? ingress.gigabits_per_second[path] : 0;
            lines.push_back(fmt::format("path{} {} {:4.0f}/{:.0f}  {:8.3f} Gb/s  {:7.1f} CE/s",
                                        path, bar(egress.applied[path] / egress.buckets, room),
                                        egress.applied[path], egress.buckets, rate,
                                        marks_per_second(ingress, path)));
        }
        for (const FlowSample& flow : egress.flows) {
            lines.push_back(
                fmt::format("flow 0x{:06x} -> {}  signal {:8.4f} of line rate", flow.qpn,
                            flow.path ? fmt::format("path{}", *flow.path) : std::string("pending"),
                            flow.average / kFullRate));
        }
        lines.push_back("path 0's share, tenths: " + history(facts));
    }
    std::vector<std::string> flows;
    for (double rate : moment.flow_gigabits_per_second)
        flows.push_back(fmt::format("{:.2f}", rate));
    lines.push_back(fmt::format("received: {} Gb/s per flow", fmt::join(flows, ", ")));
    for (std::string& line : lines) line.resize(std::min(line.size(), width));
    return lines;
}

ExperimentView::ExperimentView() : is_terminal_(isatty(STDOUT_FILENO) != 0) {}

ExperimentView::~ExperimentView() {
    if (lines_drawn_ > 0) fmt::print("\n");
}

void ExperimentView::show(const ExperimentMoment& moment, const ExperimentFacts& facts) {
    if (!is_terminal_) {
        fmt::print("{}\n", print_moment_line(moment, facts));
    } else {
        if (lines_drawn_ > 0) fmt::print("\x1b[{}A", lines_drawn_);
        const auto lines = print_moment_picture(moment, facts, terminal_width());
        for (const std::string& line : lines) fmt::print("\x1b[2K{}\n", line);
        for (std::size_t i = lines.size(); i < lines_drawn_; ++i) fmt::print("\x1b[2K\n");
        lines_drawn_ = std::max(lines_drawn_, lines.size());
    }
    std::fflush(stdout);
}

}  // namespace rdmalab::launcher

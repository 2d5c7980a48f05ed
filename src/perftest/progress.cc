#include "perftest/progress.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "perftest/channel.h"

namespace rdmalab::perftest {

namespace {

constexpr int kBarCells = 40;
constexpr std::int64_t kRedrawNs = 90'000'000;
constexpr char kSpinner[] = "|/-\\";

}  // namespace

ProgressStyle progress_style(bool non_interactive, bool json_on_stdout) {
    if (json_on_stdout) return ProgressStyle::kSilent;
    const char* terminal = getenv("TERM");
    bool dumb = terminal != nullptr && std::string(terminal) == "dumb";
    bool plain = non_interactive || dumb || isatty(STDOUT_FILENO) == 0;
    return plain ? ProgressStyle::kPlain : ProgressStyle::kRedrawn;
}

double Progress::elapsed_s() const {
    return static_cast<double>(monotonic_ns() - begun_ns_) * 1e-9;
}

void Progress::begin(const std::string& what, double total_s, bool is_bar) {
    finish();
    what_ = what;
    note_.clear();
    total_s_ = total_s;
    is_bar_ = is_bar;
    open_ = true;
    begun_ns_ = monotonic_ns();
    drawn_ns_ = 0;
    if (style_ == ProgressStyle::kPlain) {
        std::string length = total_s > 0 ? fmt::format(" ({:g} seconds)", total_s) : "";
        fmt::print("{}{}\n", what, length);
        fflush(stdout);
    }
    tick();
}

void Progress::spin(const std::string& what) { begin(what, 0, false); }
void Progress::bar(const std::string& what, double total_s) { begin(what, total_s, true); }

std::string Progress::line() const {
    double elapsed = elapsed_s();
    if (!is_bar_ || total_s_ <= 0) {
        return fmt::format("{} {} ({:.0f}s)", what_, done_ ? '|' : kSpinner[frame_ % 4],
                           std::floor(elapsed));
    }
    double share = done_ ? 1 : std::min(elapsed / total_s_, 1.0);
    int cells = static_cast<int>(share * kBarCells);
    std::string bar(static_cast<std::size_t>(cells), '=');
    if (cells < kBarCells)
        bar += '>' + std::string(static_cast<std::size_t>(kBarCells - cells - 1), ' ');
    if (done_) return fmt::format("{} [{}] 100% ({:g} seconds)", what_, bar, total_s_);
    return fmt::format("{} [{}] {:.0f}% ({:.0f}/{:.0f}s, ~{:.0f}s remaining)", what_, bar,
                       std::floor(share * 100), std::floor(elapsed), total_s_,
                       std::ceil(std::max(total_s_ - elapsed, 0.0)));
}

void Progress::tick() {
    std::int64_t now = monotonic_ns();
    if (style_ != ProgressStyle::kRedrawn || !open_ || now - drawn_ns_ < kRedrawNs) return;
    drawn_ns_ = now;
    ++frame_;
    fmt::print("\r\033[K{}{}", line(), note_.empty() ? "" : "  " + note_);
    fflush(stdout);
}

void Progress::finish() {
    if (!open_) return;
    open_ = false;
    if (style_ != ProgressStyle::kRedrawn) return;
    done_ = true;
    fmt::print("\r\033[K{}\n", line());
    fflush(stdout);
    done_ = false;
}

}  // namespace rdmalab::perftest

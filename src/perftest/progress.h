// What a user sees while it runs: a spinner while preparing and finishing, a bar during traffic. On
// anything that is not a terminal, or when told so, one plain line per phase.
#pragma once

#include <cstdint>
#include <string>

namespace rdmalab::perftest {

enum class ProgressStyle { kSilent, kPlain, kRedrawn };

class Progress {
public:
    explicit Progress(ProgressStyle style) : style_(style) {}
    ~Progress() { finish(); }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    // "Preparing RDMA resources", "Finalizing": time that passes.
    void spin(const std::string& what);
    // Traffic of `total_s` seconds; 0 when the end is not known.
    void bar(const std::string& what, double total_s);
    // What is shown behind the bar: how it goes.
    void set_note(const std::string& note) { note_ = note; }
    // Redraws; call it often.
    void tick();
    // Ends the line of the phase.
    void finish();

private:
    void begin(const std::string& what, double total_s, bool is_bar);
    std::string line() const;
    double elapsed_s() const;

    ProgressStyle style_;
    std::string what_, note_;
    double total_s_ = 0;
    bool is_bar_ = false, open_ = false, done_ = false;
    std::int64_t begun_ns_ = 0, drawn_ns_ = 0;
    unsigned frame_ = 0;
};

// How stdout can be used, by what it is and by the environment.
ProgressStyle progress_style(bool non_interactive, bool json_on_stdout);

}  // namespace rdmalab::perftest

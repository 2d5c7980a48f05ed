// Runs a libFuzzer target without libFuzzer: seeded random inputs, so that g++ builds smoke-test
// every fuzzer. Each input depends on the seed and its number only; when the target crashes, the
// command that replays that one input is left on stderr. --replay FILE runs an input of libFuzzer.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/prng.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// Sanitizers end the process without a signal; they are there in sanitized builds only.
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace {

struct Options {
    std::uint64_t runs = 20'000;
    std::uint64_t seed = 1;
    std::uint64_t only = UINT64_MAX;
    std::string replay;
};

const char* program_name = "";
std::uint64_t current_seed = 0;
std::uint64_t current_run = 0;

void print_replay_command() {
    std::fprintf(stderr, "\nreplay: %s --seed %llu --only %llu\n", program_name,
                 static_cast<unsigned long long>(current_seed),
                 static_cast<unsigned long long>(current_run));
}

void on_crash(int signal) {
    print_replay_command();
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

void report_crashes() {
    for (const int signal : {SIGABRT, SIGFPE, SIGILL}) std::signal(signal, on_crash);
    if (__sanitizer_set_death_callback != nullptr) {
        __sanitizer_set_death_callback(print_replay_command);
    } else {
        std::signal(SIGSEGV, on_crash);
    }
}

bool parse_options(int argc, char** argv, Options& options) {
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) return false;
        const std::string flag = argv[i];
        const char* const value = argv[i + 1];
        if (flag == "--runs") {
            options.runs = std::strtoull(value, nullptr, 0);
        } else if (flag == "--seed") {
            options.seed = std::strtoull(value, nullptr, 0);
        } else if (flag == "--only") {
            options.only = std::strtoull(value, nullptr, 0);
        } else if (flag == "--replay") {
            options.replay = value;
        } else {
            return false;
        }
    }
    return true;
}

int replay_file(const std::string& name) {
    std::ifstream file(name, std::ios::binary);
    if (!file) {
        std::fprintf(stderr, "cannot read %s\n", name.c_str());
        return 2;
    }
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    return LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                  bytes.size());
}

void run_one(std::uint64_t seed, std::uint64_t run) {
    current_run = run;
    rdmalab::Prng prng(seed * 1'000'003 + run);
    std::vector<std::uint8_t> input(prng.below(prng.chance(0.1) ? 4096 : 256));
    for (auto& byte : input) byte = static_cast<std::uint8_t>(prng.next());
    LLVMFuzzerTestOneInput(input.data(), input.size());
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    if (!parse_options(argc, argv, options)) {
        std::fprintf(stderr, "usage: %s [--runs N] [--seed S] [--only RUN] | --replay FILE\n",
                     argv[0]);
        return 2;
    }
    if (!options.replay.empty()) return replay_file(options.replay);
    program_name = argv[0];
    current_seed = options.seed;
    report_crashes();
    std::fprintf(stderr, "fuzzing with seed %llu\n", static_cast<unsigned long long>(options.seed));
    if (options.only != UINT64_MAX) {
        run_one(options.seed, options.only);
        return 0;
    }
    for (std::uint64_t run = 0; run < options.runs; ++run) run_one(options.seed, run);
    return 0;
}

// Runs a libFuzzer target without libFuzzer: seeded random inputs, so that g++ builds smoke-test every fuzzer.
// --replay FILE runs one input; a crash leaves the input's seed and number on stderr.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/prng.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {
int usage(const char* name) {
    std::fprintf(stderr, "usage: %s [--runs N] [--seed S] [--only RUN] | --replay FILE\n", name);
    return 2;
}
}  // namespace

int main(int argc, char** argv) {
    std::uint64_t runs = 20'000;
    std::uint64_t seed = 1;
    std::uint64_t only = UINT64_MAX;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string flag = argv[i];
        if (flag == "--runs") {
            runs = std::strtoull(argv[i + 1], nullptr, 0);
        } else if (flag == "--seed") {
            seed = std::strtoull(argv[i + 1], nullptr, 0);
        } else if (flag == "--only") {
            only = std::strtoull(argv[i + 1], nullptr, 0);
        } else if (flag == "--replay") {
            std::ifstream file(argv[i + 1], std::ios::binary);
            const std::string bytes{std::istreambuf_iterator<char>(file), {}};
            return LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                          bytes.size());
        } else {
            return usage(argv[0]);
        }
    }
    std::fprintf(stderr, "fuzzing with seed %llu\n", static_cast<unsigned long long>(seed));
    for (std::uint64_t run = 0; run < runs; ++run) {
        if (only != UINT64_MAX && run != only) continue;
        rdmalab::Prng prng(seed * 1'000'003 + run);
        std::vector<std::uint8_t> input(prng.below(prng.chance(0.1) ? 4096 : 256));
        for (auto& byte : input) byte = static_cast<std::uint8_t>(prng.next());
        static std::uint64_t current;
        current = run;
        LLVMFuzzerTestOneInput(input.data(), input.size());
    }
    return 0;
}

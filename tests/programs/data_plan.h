// What a run of verbs_data does: both processes hold the same plan, so both know every message
// without being told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verbs_kit.h"

namespace rdmalab::programs {

enum class Verb { kWrite, kWriteImm, kRead, kSend, kSendImm, kFetchAdd, kCompareSwap };

struct Plan {
    Verb verb = Verb::kWrite;
    ibv_qp_type transport = IBV_QPT_RC;
    std::string server_device = "mlx5_2", client_device = "mlx5_3";
    std::vector<std::uint64_t> sizes = {65536};  // message i has size sizes[i % n]
    std::uint64_t messages = 0;                  // or as many as `total` bytes need
    std::uint64_t total = 1 << 20;
    std::uint64_t seed = 1;
    std::uint32_t psn = 0;
    unsigned depth = 16, sges = 1, inline_bytes = 0;
    unsigned stall_limit_s = 60;
    bool srq = false;
    Path path;

    std::uint64_t size_of(std::uint64_t message) const { return sizes[message % sizes.size()]; }
    bool is_atomic() const { return verb == Verb::kFetchAdd || verb == Verb::kCompareSwap; }
    // The responder must have a receive posted.
    bool takes_recv() const {
        return verb == Verb::kWriteImm || verb == Verb::kSend || verb == Verb::kSendImm;
    }
    bool has_immediate() const { return verb == Verb::kWriteImm || verb == Verb::kSendImm; }
    bool lands_in_recv() const { return verb == Verb::kSend || verb == Verb::kSendImm; }
};

// Reads the command line; `messages` is set in the result. Ends the program on a mistake.
Plan parse_plan(int argc, char** argv);
const char* name_of(Verb verb);

}  // namespace rdmalab::programs

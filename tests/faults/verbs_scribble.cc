// A client gone mad: opens a device, brings a QP to RTS towards itself, finds every shared writable
// mapping that the library made, and overwrites random words in it for a while, ringing the
// doorbell in between. It may well crash itself; the card must not care.
//
//   verbs_scribble SEED SECONDS

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "verbs_kit.h"

namespace rdmalab::programs {
namespace {

struct Mapping {
    unsigned char* start;
    std::size_t length;
};

std::vector<Mapping> shared_mappings() {
    std::vector<Mapping> found;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        unsigned long start = 0, end = 0;
        char permissions[5] = {};
        if (std::sscanf(line.c_str(), "%lx-%lx %4s", &start, &end, permissions) != 3) continue;
        if (std::strcmp(permissions, "rw-s") != 0) continue;
        found.push_back({reinterpret_cast<unsigned char*>(start), end - start});
    }
    return found;
}

void scribble(const std::vector<Mapping>& mappings, std::mt19937_64& random) {
    for (int i = 0; i < 64; ++i) {
        const Mapping& mapping = mappings[random() % mappings.size()];
        // Ring heads and the first entries are where it hurts.
        const std::size_t reach =
            random() % 2 ? mapping.length : std::min<std::size_t>(mapping.length, 1024);
        const std::uint32_t value = random() % 4 == 0 ? static_cast<std::uint32_t>(random() % 64)
                                                      : static_cast<std::uint32_t>(random());
        std::memcpy(mapping.start + random() % (reach / 4) * 4, &value, sizeof value);
    }
}

void run(std::uint64_t seed, int seconds) {
    const Device device("mlx5_4");
    const Memory memory(device, 1 << 20);
    const CompletionQueue cq(device, 256);
    QueuePair qp(device, cq, IBV_QPT_RC, {64, 4, 64}, 0);
    const Path path;
    qp.connect(qp.endpoint(device, path, memory), path);
    const auto mappings = shared_mappings();
    if (mappings.empty()) fail(kSetUp, "no shared mapping was found");
    std::mt19937_64 random(seed);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (std::chrono::steady_clock::now() < deadline) {
        ibv_sge sge = memory.sge(0, 4096);
        ibv_send_wr work{}, *bad_send = nullptr;
        work.sg_list = &sge;
        work.num_sge = 1;
        work.opcode = IBV_WR_RDMA_WRITE;
        work.wr.rdma = {memory.address(), memory.rkey()};
        ibv_post_send(qp.raw(), &work, &bad_send);
        ibv_recv_wr receive{}, *bad_recv = nullptr;
        receive.sg_list = &sge;
        receive.num_sge = 1;
        ibv_post_recv(qp.raw(), &receive, &bad_recv);
        scribble(mappings, random);
    }
    std::printf("scribbled over %zu mappings\n", mappings.size());
    std::fflush(stdout);
    std::_Exit(0);
}

}  // namespace
}  // namespace rdmalab::programs

int main(int argc, char** argv) {
    using namespace rdmalab::programs;
    if (argc != 3) fail(kUsage, "usage: verbs_scribble SEED SECONDS");
    run(std::strtoull(argv[1], nullptr, 10), std::atoi(argv[2]));
}

// The limit of latency through a third process: two applications that spin and yield, and a card
// between them that spins a while and then sleeps on a futex. A round trip is A -> card -> B ->
// card -> A, each step one word of shared memory. Prints the median in nanoseconds.
//
//   wake_round_trip [ROUNDS]

#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

namespace {

constexpr int kCardSpins = 2000;  // as the card does
constexpr int kAppPolls = 50;     // empty polls before an application yields
constexpr int kWarmUp = 2000;

struct Shared {
    alignas(64) std::atomic<std::uint32_t> bell{0};  // what the card waits for: messages so far
    alignas(64) std::atomic<std::uint32_t> sleeping{0};
    alignas(64) std::atomic<std::uint32_t> from_a{0};
    alignas(64) std::atomic<std::uint32_t> to_b{0};
    alignas(64) std::atomic<std::uint32_t> from_b{0};
    alignas(64) std::atomic<std::uint32_t> to_a{0};
};

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value) {
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, nullptr, nullptr,
            0);
}

void ring(Shared& shared) {
    shared.bell.fetch_add(1);
    if (shared.sleeping.load() != 0) futex(shared.bell, FUTEX_WAKE, 1);
}

void await(const std::atomic<std::uint32_t>& word, std::uint32_t value) {
    for (int polls = 0; word.load(std::memory_order_acquire) != value; ++polls) {
        if (polls >= kAppPolls) sched_yield();
    }
}

[[noreturn]] void run_card(Shared& shared) {
    std::uint32_t served = 0;
    for (;;) {
        std::uint32_t bell = shared.bell.load();
        for (int spins = 0; bell == served && spins < kCardSpins; ++spins)
            bell = shared.bell.load();
        if (bell == served) {
            shared.sleeping.store(1);
            while ((bell = shared.bell.load()) == served) futex(shared.bell, FUTEX_WAIT, served);
            shared.sleeping.store(0);
        }
        served = bell;
        shared.to_b.store(shared.from_a.load(), std::memory_order_release);
        shared.to_a.store(shared.from_b.load(), std::memory_order_release);
    }
}

[[noreturn]] void run_b(Shared& shared) {
    for (std::uint32_t round = 1;; ++round) {
        await(shared.to_b, round);
        shared.from_b.store(round);
        ring(shared);
    }
}

std::vector<std::int64_t> run_a(Shared& shared, std::uint32_t rounds) {
    std::vector<std::int64_t> samples;
    for (std::uint32_t round = 1; round <= rounds; ++round) {
        const auto start = std::chrono::steady_clock::now();
        shared.from_a.store(round);
        ring(shared);
        await(shared.to_a, round);
        if (round > kWarmUp) samples.push_back((std::chrono::steady_clock::now() - start).count());
    }
    return samples;
}

pid_t start(void (*body)(Shared&), Shared& shared) {
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        body(shared);
    }
    return pid;
}

}  // namespace

int main(int argc, char** argv) {
    const auto rounds = static_cast<std::uint32_t>(argc > 1 ? std::atoi(argv[1]) : 20000) + kWarmUp;
    void* pages =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return 1;
    Shared& shared = *new (pages) Shared;
    const pid_t card = start(run_card, shared), b = start(run_b, shared);
    std::vector<std::int64_t> samples = run_a(shared, rounds);
    kill(card, SIGKILL);
    kill(b, SIGKILL);
    while (wait(nullptr) > 0) {
    }
    std::nth_element(samples.begin(),
                     samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2),
                     samples.end());
    std::printf("%lld\n", static_cast<long long>(samples[samples.size() / 2]));
    return 0;
}

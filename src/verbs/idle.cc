#include "verbs/idle.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "verbs/cq.h"

namespace rdmalab::verbs {

constinit thread_local Vain vain{};
std::atomic<std::int64_t> idle_since_ns{0};

namespace {

constexpr std::int64_t kYieldingNs = 300'000;  // longer than a round trip under load
constexpr long kSleepNs = 50'000;
// A poller that comes back later than this has other things to do between its polls; its core is
// not wasted, and a sleep would only delay it.
constexpr std::int64_t kBusyPollingGapNs = 100'000;

std::int64_t now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

bool is_time_to_sleep(std::int64_t now) {
    if (now - vain.last_ns > kBusyPollingGapNs) return false;
    std::int64_t since = idle_since_ns.load(std::memory_order_relaxed);
    if (since == 0) {
        idle_since_ns.store(now, std::memory_order_relaxed);
        return false;
    }
    return now - since > kYieldingNs;
}

void sleep_on_producer(abi::CqHeader& header, const abi::Cqe& next, std::uint32_t index) {
    header.waiters.fetch_add(1, std::memory_order_seq_cst);
    std::uint32_t seen = header.producer.load(std::memory_order_seq_cst);
    if (!is_valid(next, index)) {
        timespec timeout{.tv_sec = 0, .tv_nsec = kSleepNs};
        syscall(SYS_futex, &header.producer, FUTEX_WAIT, seen, &timeout, nullptr, 0);
    }
    header.waiters.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace

int wait_when_idle(Cq& cq, std::uint32_t index) {
    if (!is_time_to_sleep(now_ns())) {
        sched_yield();
        vain.last_ns = now_ns();
        return 0;
    }
    sleep_on_producer(*cq.header, cq.ring[index & cq.mask], index);
    vain.last_ns = now_ns();
    return context_of(cq.context).connection.check_dead() ? EIO : 0;
}

}  // namespace rdmalab::verbs

// A lock for the few dozen instructions of a post or a poll. A waiter yields soon: with two cores
// the owner may be waiting for the very core that the waiter burns.
#pragma once

#include <sched.h>
#include <sys/single_threaded.h>

#include <atomic>

namespace rdmalab::verbs {

class SpinLock {
public:
    void lock() {
        // No other thread can exist now, and none can appear between this test and the store.
        if (__libc_single_threaded) {
            locked_.store(true, std::memory_order_relaxed);
            return;
        }
        while (locked_.exchange(true, std::memory_order_acquire)) wait();
    }
    void unlock() { locked_.store(false, std::memory_order_release); }

private:
    void wait() const {
        constexpr int kSpinsBeforeYield = 64;
        for (int spins = 0; locked_.load(std::memory_order_relaxed); ++spins) {
            if (spins >= kSpinsBeforeYield) sched_yield();
        }
    }
    std::atomic<bool> locked_{false};
};

// Holds the lock unless the program promised to use the object from one thread only.
class OptionalGuard {
public:
    OptionalGuard(SpinLock& lock, bool needed) : lock_(needed ? &lock : nullptr) {
        if (lock_ != nullptr) lock_->lock();
    }
    ~OptionalGuard() {
        if (lock_ != nullptr) lock_->unlock();
    }
    OptionalGuard(const OptionalGuard&) = delete;
    OptionalGuard& operator=(const OptionalGuard&) = delete;

private:
    SpinLock* lock_;
};

}  // namespace rdmalab::verbs

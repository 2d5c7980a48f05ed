// Calls into an algorithm that may crash or never return. The call is left by a jump: the frames
// between are those of the algorithm (C) and of Runtime, which own nothing.
//
// A crash is a signal on the calling thread. A loop is ended from outside: `interrupt` sends the
// thread a signal. Handlers are installed once for the process and leave all threads alone that are
// in no guarded call (what was installed before gets their signals).
#pragma once

#include <pthread.h>

#include <atomic>
#include <csetjmp>
#include <cstdint>
#include <string>
#include <vector>

namespace rdmalab::pcc::host {

class Guard {
public:
    struct Fault {
        int signal = 0;  // 0: the call was interrupted
        std::uintptr_t address = 0;
        std::vector<void*> frames;
        std::string describe() const;   // one line
        std::string backtrace() const;  // a line per frame
    };

    Guard();
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

    // Runs `call`. False: it did not come back by itself, see fault().
    template <class Call>
    bool run(Call&& call) {
        enter();
        if (sigsetjmp(jump_, 1) != 0) {
            leave();
            return false;
        }
        is_inside_.store(true, std::memory_order_release);
        call_apart(call);
        is_inside_.store(false, std::memory_order_release);
        leave();
        return true;
    }
    // Of a call that makes many: the thread is alive.
    void note_progress() { progress_.fetch_add(1, std::memory_order_relaxed); }

    const Fault& fault() const { return fault_; }

    // For the watchdog, from another thread.
    bool is_inside() const { return is_inside_.load(std::memory_order_acquire); }
    std::uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
    void interrupt();

private:
    // In a frame of its own: the jump leaves it behind, and the frame that it returns to has kept
    // nothing of the call in registers.
    template <class Call>
    [[gnu::noinline]] static void call_apart(Call& call) {
        call();
    }

    friend struct GuardHandlers;
    void enter();
    void leave();

    sigjmp_buf jump_;
    Fault fault_;
    void* frames_[64];
    int frame_count_ = 0;
    int signal_ = 0;
    std::uintptr_t address_ = 0;
    pthread_t thread_{};
    std::atomic<bool> is_inside_{false};
    std::atomic<std::uint64_t> progress_{0};
    std::vector<char> stack_;  // for the handler: the own stack may have overflowed
};

}  // namespace rdmalab::pcc::host

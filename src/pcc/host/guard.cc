#include "pcc/host/guard.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <mutex>

namespace rdmalab::pcc::host {
namespace {

constexpr int kCrashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr std::size_t kStackSize = 64 * 1024;

int interrupt_signal() { return SIGRTMIN + 4; }

thread_local Guard* current_guard = nullptr;
struct sigaction previous[sizeof kCrashes / sizeof kCrashes[0]];

}  // namespace

struct GuardHandlers {
    // True when the signal was one of a guarded call; then it does not come back here.
    static void leave_call(int signal, void* address) {
        Guard* const guard = current_guard;
        if (guard == nullptr || !guard->is_inside_.load(std::memory_order_acquire)) return;
        guard->is_inside_.store(false, std::memory_order_release);
        guard->signal_ = signal == interrupt_signal() ? 0 : signal;
        guard->address_ = reinterpret_cast<std::uintptr_t>(address);
        guard->frame_count_ = ::backtrace(guard->frames_, 64);
        siglongjmp(guard->jump_, 1);
    }
    static void handle_crash(int signal, siginfo_t* info, void* context) {
        leave_call(signal, info->si_addr);
        for (std::size_t i = 0; i < std::size(kCrashes); ++i) {
            if (kCrashes[i] != signal) continue;
            const struct sigaction& before = previous[i];
            if ((before.sa_flags & SA_SIGINFO) != 0)
                return before.sa_sigaction(signal, info, context);
            if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
                return before.sa_handler(signal);
            // The instruction is tried again and ends the program as if nobody had listened.
            ::sigaction(signal, &before, nullptr);
        }
    }
    static void handle_interrupt(int signal, siginfo_t*, void*) { leave_call(signal, nullptr); }

    static void install() {
        void* frame = nullptr;
        ::backtrace(&frame, 1);  // loads what it needs, which a handler must not
        struct sigaction action {};
        sigemptyset(&action.sa_mask);
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        action.sa_sigaction = handle_crash;
        for (std::size_t i = 0; i < std::size(kCrashes); ++i)
            ::sigaction(kCrashes[i], &action, &previous[i]);
        action.sa_sigaction = handle_interrupt;
        ::sigaction(interrupt_signal(), &action, nullptr);
    }
};

Guard::Guard() : stack_(kStackSize) {
    static std::once_flag installed;
    std::call_once(installed, GuardHandlers::install);
}
Guard::~Guard() = default;

void Guard::enter() {
    thread_ = ::pthread_self();
    fault_ = {};
    current_guard = this;
    stack_t stack{};
    stack.ss_sp = stack_.data();
    stack.ss_size = stack_.size();
    ::sigaltstack(&stack, nullptr);
}

void Guard::leave() {
    current_guard = nullptr;
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    ::sigaltstack(&none, nullptr);
    fault_.signal = signal_;
    fault_.address = address_;
    fault_.frames.assign(frames_, frames_ + frame_count_);
}

void Guard::interrupt() {
    if (is_inside()) ::pthread_kill(thread_, interrupt_signal());
}

std::string Guard::Fault::describe() const {
    if (signal == 0) return "it did not return";
    char text[128];
    std::snprintf(text, sizeof text, "%s at address 0x%llx", ::strsignal(signal),
                  static_cast<unsigned long long>(address));
    return text;
}

std::string Guard::Fault::backtrace() const {
    std::string text;
    for (void* const frame : frames) {
        Dl_info info{};
        char line[512];
        if (::dladdr(frame, &info) != 0 && info.dli_sname != nullptr) {
            std::snprintf(line, sizeof line, "  %p %s+0x%tx (%s)\n", frame, info.dli_sname,
                          static_cast<char*>(frame) - static_cast<char*>(info.dli_saddr),
                          info.dli_fname);
        } else {
            std::snprintf(line, sizeof line, "  %p (%s)\n", frame,
                          info.dli_fname == nullptr ? "?" : info.dli_fname);
        }
        text += line;
    }
    return text;
}

}  // namespace rdmalab::pcc::host

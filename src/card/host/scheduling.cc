#include "card/host/scheduling.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "card/host/descriptor.h"

namespace rdmalab::card::host {
namespace {

// struct sched_attr of sched_setattr(2); glibc has no name for it.
struct SchedulingAttributes {
    std::uint32_t size = sizeof(SchedulingAttributes);
    std::uint32_t policy = 0;
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t runtime = 0, deadline = 0, period = 0;
};
static_assert(sizeof(SchedulingAttributes) == 48);

constexpr std::uint64_t kSliceNs = 100'000;
constexpr int kNice = -10;

bool set(const SchedulingAttributes& attributes) {
    return ::syscall(SYS_sched_setattr, 0, &attributes, 0) == 0;
}

// With sched_autogroup_enabled (sched(7)) the nice value only counts among the processes of one
// session, and sessions share the processor by a nice value of their own. A card that has a session
// to itself sets that too; a session it shares with a terminal is not its to change.
void prefer_own_session() {
    if (::getsid(0) != ::getpid()) return;
    const UniqueFd autogroup(::open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC));
    if (!autogroup) return;
    const std::string text = std::to_string(kNice);
    [[maybe_unused]] const ssize_t ignored = ::write(autogroup.value(), text.data(), text.size());
}

}  // namespace

void prefer_short_slices() {
    // Deadlines are to be met to the microsecond, not to the 50 us of ordinary timers.
    ::prctl(PR_SET_TIMERSLACK, 1);
    prefer_own_session();
    SchedulingAttributes attributes;
    attributes.policy = SCHED_OTHER;
    attributes.runtime = kSliceNs;
    attributes.nice = kNice;
    if (set(attributes)) return;
    errno = 0;
    attributes.nice = ::getpriority(PRIO_PROCESS, 0);
    set(attributes);
}

Status become_realtime() {
    ::prctl(PR_SET_TIMERSLACK, 1);
    SchedulingAttributes attributes;
    attributes.policy = SCHED_FIFO;
    attributes.priority = 1;
    if (set(attributes)) return {};
    Error error = system_error("cannot run in real time (SCHED_FIFO)");
    if (error.code == EPERM) error.text += " (needs root, CAP_SYS_NICE or ulimit -r)";
    return error;
}

void raise_descriptor_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace rdmalab::card::host

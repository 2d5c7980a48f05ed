// The limit of a card that copies twice: process_vm_readv of 64 KiB from one process into an arena,
// process_vm_writev of it into another process, over and over with hot buffers. Prints bytes per
// second.
//
//   two_copy [SECONDS]

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr std::size_t kBytes = 65536;
alignas(4096) char buffer[kBytes];

[[noreturn]] void fail(const char* what) {
    std::perror(what);
    std::exit(1);
}

// A process that only owns memory; the buffer has the same address in all.
pid_t start_owner() {
    const pid_t pid = fork();
    if (pid < 0) fail("fork");
    if (pid > 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::memset(buffer, 1, sizeof buffer);
    for (;;) pause();
}

void copy_once(pid_t source, pid_t target, char* arena) {
    iovec local{arena, kBytes}, remote{buffer, kBytes};
    if (process_vm_readv(source, &local, 1, &remote, 1, 0) != kBytes) fail("process_vm_readv");
    if (process_vm_writev(target, &local, 1, &remote, 1, 0) != kBytes) fail("process_vm_writev");
}

}  // namespace

int main(int argc, char** argv) {
    const std::chrono::duration<double> limit(argc > 1 ? std::atof(argv[1]) : 1.0);
    const pid_t source = start_owner(), target = start_owner();
    alignas(4096) static char arena[kBytes];
    usleep(20'000);
    for (int i = 0; i < 1000; ++i) copy_once(source, target, arena);
    const auto start = std::chrono::steady_clock::now();
    std::chrono::duration<double> elapsed{};
    std::size_t copies = 0;
    while (elapsed < limit) {
        for (int i = 0; i < 100; ++i) copy_once(source, target, arena);
        copies += 100;
        elapsed = std::chrono::steady_clock::now() - start;
    }
    std::printf("%.0f\n", static_cast<double>(copies * kBytes) / elapsed.count());
    kill(source, SIGKILL);
    kill(target, SIGKILL);
    while (wait(nullptr) > 0) {
    }
    return 0;
}

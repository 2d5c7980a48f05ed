#include "perftest/board.h"

#include <errno.h>
#include <fmt/format.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <new>

#include "perftest/failure.h"

namespace rdmalab::perftest {

namespace {

// The word itself: an atomic of 32 bits has no other content.
static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* limit) {
    return syscall(SYS_futex, &word, operation, value, limit, nullptr, 0);
}

}  // namespace

void Board::open_gate(std::uint32_t phase, std::int64_t start_ns) {
    head_->phase = phase;
    head_->start_ns = start_ns;
    head_->round.fetch_add(1);
    futex(head_->round, FUTEX_WAKE, INT_MAX, nullptr);
}

void Board::stop() {
    head_->stopped = 1;
    head_->round.fetch_add(1);
    futex(head_->round, FUTEX_WAKE, INT_MAX, nullptr);
}

void wait_at_gate(BoardHead& head, std::uint32_t seen) {
    const timespec limit{.tv_sec = 0, .tv_nsec = 100'000'000};
    if (head.round.load() != seen || head.stopped.load() != 0) return;
    futex(head.round, FUTEX_WAIT, seen, &limit);
}

Board::Board(std::uint32_t workers) : length_(sizeof(BoardHead) + workers * sizeof(BoardLine)) {
    memory_ = mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw Failure(fmt::format("mmap: {}", strerror(errno)));
    head_ = new (memory_) BoardHead();
    lines_ = reinterpret_cast<BoardLine*>(head_ + 1);
    for (std::uint32_t i = 0; i < workers; ++i) new (&lines_[i]) BoardLine();
}

Board::~Board() { munmap(memory_, length_); }

}  // namespace rdmalab::perftest

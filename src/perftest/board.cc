#include "perftest/board.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>

#include <new>

#include "perftest/failure.h"

namespace rdmalab::perftest {

Board::Board(std::uint32_t workers) : length_(sizeof(BoardHead) + workers * sizeof(BoardLine)) {
    memory_ = mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw Failure(fmt::format("mmap: {}", strerror(errno)));
    head_ = new (memory_) BoardHead();
    lines_ = reinterpret_cast<BoardLine*>(head_ + 1);
    for (std::uint32_t i = 0; i < workers; ++i) new (&lines_[i]) BoardLine();
}

Board::~Board() { munmap(memory_, length_); }

}  // namespace rdmalab::perftest

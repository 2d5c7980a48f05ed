#include "card/host/cm_pipe.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <string>

namespace rdmalab::card::host {

static_assert(sizeof(abi::CmEventRecord) <= PIPE_BUF);

void CmPipe::push(const abi::CmEventRecord& record) {
    if (!fd_ || (kept_.empty() && write_now(record))) return;
    if (!fd_ || kept_.size() >= kKeptMax) return;
    kept_.push_back(record);
    if (watch_ == Poller::kNone)
        watch_ = poller_.add(fd_.value(), EPOLLOUT, [this](std::uint32_t) { write_kept(); });
}

// True when there is nothing more to do for the record: it is in the pipe, or nobody reads.
bool CmPipe::write_now(const abi::CmEventRecord& record) {
    const ssize_t written = ::write(fd_.value(), &record, sizeof record);
    if (written == static_cast<ssize_t>(sizeof record)) return true;
    if (errno == EAGAIN || errno == EINTR) return false;
    stop_watching();
    fd_.reset();
    kept_.clear();
    return true;
}

void CmPipe::write_kept() {
    while (fd_ && !kept_.empty()) {
        if (!write_now(kept_.front())) return;
        if (fd_) kept_.pop_front();
    }
    stop_watching();
}

void CmPipe::stop_watching() {
    poller_.remove(watch_);
    watch_ = Poller::kNone;
}

// Opened through /proc, the write end gives a read end with flags of its own, so that reading does
// not block here even if it does in the client. A client that reads at the same time gets whole
// records or none: the kernel locks the pipe for each read.
std::deque<abi::CmEventRecord> CmPipe::take_unread() {
    std::deque<abi::CmEventRecord> unread;
    const std::string path = "/proc/self/fd/" + std::to_string(fd_.value());
    const UniqueFd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    abi::CmEventRecord record;
    while (reader &&
           ::read(reader.value(), &record, sizeof record) == static_cast<ssize_t>(sizeof record))
        unread.push_back(record);
    unread.insert(unread.end(), kept_.begin(), kept_.end());
    return unread;
}

std::vector<abi::CmEventRecord> CmPipe::withdraw(std::uint32_t id) {
    std::vector<abi::CmEventRecord> withdrawn;
    if (!fd_) return withdrawn;
    const std::deque<abi::CmEventRecord> unread = take_unread();
    kept_.clear();
    stop_watching();
    for (const abi::CmEventRecord& record : unread) {
        if (record.id == id)
            withdrawn.push_back(record);
        else
            push(record);
    }
    return withdrawn;
}

}  // namespace rdmalab::card::host

// The card's end of a pipe of fixed-size records (completion events, async events). Writing never
// blocks: what a full pipe does not take is kept and written when the reader has made room.
//
// A record that is still kept need not be kept twice: the reader finds everything that happened
// until it reads the first one. This bounds what a client that never reads can make the card keep.
#pragma once

#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <set>

#include "card/host/descriptor.h"
#include "card/host/poller.h"

namespace rdmalab::card::host {

template <class Record>
class RecordPipe {
    static_assert(std::has_unique_object_representations_v<Record>);

public:
    RecordPipe(UniqueFd write_end, Poller& poller) : fd_(std::move(write_end)), poller_(poller) {}
    ~RecordPipe() { poller_.remove(watch_); }
    RecordPipe(const RecordPipe&) = delete;
    RecordPipe& operator=(const RecordPipe&) = delete;

    void push(const Record& record) {
        if (!fd_ || (kept_.empty() && write_now(record))) return;
        if (!fd_ || !kept_set_.insert(record).second) return;
        kept_.push_back(record);
        if (watch_ == Poller::kNone) {
            watch_ = poller_.add(fd_.value(), EPOLLOUT, [this](std::uint32_t) { write_kept(); });
        }
    }
    std::size_t kept() const { return kept_.size(); }

private:
    struct ByBytes {
        bool operator()(const Record& a, const Record& b) const {
            return std::memcmp(&a, &b, sizeof a) < 0;
        }
    };

    // True when there is nothing more to do for the record: it is in the pipe, or nobody reads.
    bool write_now(const Record& record) {
        const ssize_t written = ::write(fd_.value(), &record, sizeof record);
        if (written == static_cast<ssize_t>(sizeof record)) return true;
        if (errno == EAGAIN || errno == EINTR) return false;
        abandon();
        return true;
    }

    void write_kept() {
        while (!kept_.empty() && fd_) {
            const Record record = kept_.front();
            if (!write_now(record)) return;
            if (!fd_) return;
            kept_set_.erase(record);
            kept_.pop_front();
        }
        poller_.remove(watch_);
        watch_ = Poller::kNone;
    }

    void abandon() {
        poller_.remove(watch_);
        watch_ = Poller::kNone;
        fd_.reset();
        kept_.clear();
        kept_set_.clear();
    }

    UniqueFd fd_;
    Poller& poller_;
    Poller::Token watch_ = Poller::kNone;
    std::deque<Record> kept_;
    std::set<Record, ByBytes> kept_set_;
};

}  // namespace rdmalab::card::host

// The card's end of an event channel: a pipe of CmEventRecords. Writing never blocks; what a full
// pipe does not take is kept and written when the reader has made room. Other than completion
// events (record_pipe.h) every record counts, and records can be taken back while they are unread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "card/cm_abi.h"
#include "card/host/descriptor.h"
#include "card/host/poller.h"

namespace rdmalab::card::host {

class CmPipe {
public:
    // More than all ids of a card can be told: a client that leaves more unread is broken, and what
    // comes then is lost.
    static constexpr std::size_t kKeptMax = 65'536;

    CmPipe(UniqueFd write_end, Poller& poller) : fd_(std::move(write_end)), poller_(poller) {}
    ~CmPipe() { poller_.remove(watch_); }
    CmPipe(const CmPipe&) = delete;
    CmPipe& operator=(const CmPipe&) = delete;

    void push(const abi::CmEventRecord& record);
    // Takes the unread records of an id out. The others keep their order.
    std::vector<abi::CmEventRecord> withdraw(std::uint32_t id);
    std::size_t kept() const { return kept_.size(); }

private:
    bool write_now(const abi::CmEventRecord& record);
    void write_kept();
    void stop_watching();
    std::deque<abi::CmEventRecord> take_unread();

    UniqueFd fd_;
    Poller& poller_;
    Poller::Token watch_ = Poller::kNone;
    std::deque<abi::CmEventRecord> kept_;
};

}  // namespace rdmalab::card::host

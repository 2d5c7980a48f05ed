// What each link has completed so far, in memory that an agent shares with its workers: the last
// that is known of them when a host dies with its results.
#pragma once

#include <atomic>
#include <cstdint>

namespace rdmalab::perftest {

class LinkCounters {
public:
    explicit LinkCounters(std::size_t links);
    ~LinkCounters();
    LinkCounters(const LinkCounters&) = delete;
    LinkCounters& operator=(const LinkCounters&) = delete;

    std::atomic<std::uint64_t>& at(std::size_t link) { return counters_[link]; }

private:
    std::size_t length_;
    std::atomic<std::uint64_t>* counters_;
};

}  // namespace rdmalab::perftest

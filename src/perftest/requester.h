// The sending half of the hot loop. Work requests are built once, as a ring of blocks per queue
// pair: a block is posted by one call per list and ends in one signaled request, so that one
// completion stands for a block. Each completion posts the next block of its queue pair at once.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "perftest/endpoint.h"

namespace rdmalab::perftest {

class Requester {
public:
    explicit Requester(Endpoint& endpoint);

    // Lets every queue pair post so many iterations more, or without end.
    void allow_more(std::uint64_t iterations);
    void allow_all();
    // No more than what is posted already.
    void hold();
    // Takes what has completed and posts what is allowed; number of completions.
    int poll();

    bool is_drained() const { return completed_ == posted_; }
    std::uint64_t completed() const { return completed_; }
    std::uint64_t posted() const { return posted_; }
    std::vector<std::uint64_t> completed_per_qp() const;

    // For ping-pongs (one operation, no lists), on the first queue pair: posts one iteration. Waits
    // for a completion when the ring is full.
    void post_one();

private:
    struct Lane {
        ibv_qp* qp = nullptr;
        std::uint32_t index = 0;
        std::vector<ibv_send_wr> ring;
        std::vector<ibv_sge> sges;
        std::uint32_t next_block = 0, free_blocks = 0;
        std::uint64_t posted = 0, completed = 0, allowed = 0;
        std::int64_t not_before_ns = 0;
    };

    void refill(Lane& lane);
    void build(Lane& lane, std::uint32_t index);
    void build_request(Lane& lane, std::uint32_t slot, std::size_t operation);
    void post_next(Lane& lane);
    void post_block(Lane& lane);
    void post_part(Lane& lane, std::uint64_t iterations);
    void post(Lane& lane, ibv_send_wr* first);
    void fill_block(Lane& lane, std::uint64_t iterations);
    bool is_due(Lane& lane);

    Endpoint& endpoint_;
    const Plan& plan_;
    std::uint32_t blocks_ = 1;     // per lane
    std::uint32_t block_wrs_ = 1;  // work requests of a block
    std::uint32_t list_wrs_ = 1;   // of one call
    std::vector<Lane> lanes_;
    std::uint64_t completed_ = 0, posted_ = 0;
    std::int64_t block_ns_ = 0;  // at the rate limit; 0 without
    std::uint64_t corrupt_every_ = 0;
};

}  // namespace rdmalab::perftest

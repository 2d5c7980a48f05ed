#include "perftest/requester.h"

#include <errno.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "perftest/channel.h"
#include "perftest/failure.h"
#include "perftest/payload.h"
#include "perftest/quantity.h"

namespace rdmalab::perftest {

namespace {

constexpr int kPollBatch = 32;
constexpr std::int64_t kCatchUpNs = 10'000'000;

ibv_wr_opcode opcode_of(Verb verb) {
    switch (verb) {
        case Verb::kWrite:
            return IBV_WR_RDMA_WRITE;
        case Verb::kRead:
            return IBV_WR_RDMA_READ;
        case Verb::kSend:
            return IBV_WR_SEND;
        case Verb::kWriteImm:
            return IBV_WR_RDMA_WRITE_WITH_IMM;
        case Verb::kSendImm:
            return IBV_WR_SEND_WITH_IMM;
        case Verb::kAtomicFa:
            return IBV_WR_ATOMIC_FETCH_AND_ADD;
        case Verb::kAtomicCs:
            return IBV_WR_ATOMIC_CMP_AND_SWP;
    }
    return IBV_WR_RDMA_WRITE;
}

// Which queue pair, and how many iterations the completion stands for.
std::uint64_t tag_of(std::uint32_t lane, std::uint64_t iterations) {
    return static_cast<std::uint64_t>(lane) << 32 | iterations;
}

}  // namespace

Requester::Requester(Endpoint& endpoint) : endpoint_(endpoint), plan_(endpoint.plan()) {
    auto group = static_cast<std::uint32_t>(plan_.operations.size());
    list_wrs_ = plan_.post_list * group;
    block_wrs_ = plan_.block * group;
    blocks_ = std::max(plan_.tx_depth / block_wrs_, 1u);
    lanes_.resize(plan_.qps);
    for (std::uint32_t i = 0; i < plan_.qps; ++i) build(lanes_[i], i);
    if (plan_.rate_limit_gbps > 0) {
        double bits = static_cast<double>(plan_.bytes_per_iteration()) * 8 * plan_.block;
        block_ns_ = static_cast<std::int64_t>(bits / plan_.rate_limit_gbps);
    }
    if (plan_.validate) corrupt_every_ = corrupt_every();
}

void Requester::build(Lane& lane, std::uint32_t index) {
    lane.qp = endpoint_.qp(index);
    lane.index = index;
    lane.free_blocks = blocks_;
    lane.ring.resize(std::size_t{blocks_} * block_wrs_);
    lane.sges.resize(lane.ring.size());
    std::size_t group = plan_.operations.size();
    for (std::uint32_t i = 0; i < lane.ring.size(); ++i) {
        build_request(lane, i, i % group);
        bool ends_list = (i + 1) % list_wrs_ == 0, ends_block = (i + 1) % block_wrs_ == 0;
        lane.ring[i].next = ends_list ? nullptr : &lane.ring[i + 1];
        if (ends_block) lane.ring[i].send_flags |= IBV_SEND_SIGNALED;
        lane.ring[i].wr_id = tag_of(index, plan_.block);
    }
}

void Requester::build_request(Lane& lane, std::uint32_t place, std::size_t number) {
    const Operation& operation = plan_.operations[number];
    std::uint64_t slot = place / plan_.operations.size();
    const Buffer& local = endpoint_.local(number);
    lane.sges[place] = {.addr = local.address(lane.index, slot),
                        .length = static_cast<std::uint32_t>(operation.size),
                        .lkey = local.lkey()};
    ibv_send_wr& wr = lane.ring[place];
    wr = {};
    wr.sg_list = &lane.sges[place];
    wr.num_sge = operation.size > 0 ? 1 : 0;
    wr.opcode = opcode_of(operation.verb);
    std::uint64_t remote =
        endpoint_.remote(number).address + endpoint_.remote_layout(number).offset(lane.index, slot);
    if (is_atomic(operation.verb)) {
        wr.wr.atomic.remote_addr = remote;
        wr.wr.atomic.rkey = endpoint_.remote(number).rkey;
        wr.wr.atomic.compare_add = operation.verb == Verb::kAtomicFa ? 1 : 0;
        wr.wr.atomic.swap = 1;
    } else if (endpoint_.peer_ah() != nullptr) {
        wr.wr.ud.ah = endpoint_.peer_ah();
        wr.wr.ud.remote_qpn = endpoint_.peer_qpn(lane.index);
        wr.wr.ud.remote_qkey = kQkey;
    } else if (!is_send(operation.verb)) {
        wr.wr.rdma.remote_addr = remote;
        wr.wr.rdma.rkey = endpoint_.remote(number).rkey;
    }
    bool carries = !is_read_like(operation.verb);
    if (carries && operation.size > 0 && operation.size <= endpoint_.inline_size()) {
        wr.send_flags |= IBV_SEND_INLINE;
    }
}

void Requester::refill(Lane& lane) {
    while (lane.free_blocks > 0 && lane.posted < lane.allowed && is_due(lane)) post_next(lane);
}

void Requester::allow_more(std::uint64_t iterations) {
    for (Lane& lane : lanes_) {
        lane.allowed = lane.posted + iterations;
        refill(lane);
    }
}

void Requester::allow_all() {
    for (Lane& lane : lanes_) {
        lane.allowed = UINT64_MAX;
        refill(lane);
    }
}

void Requester::hold() {
    for (Lane& lane : lanes_) lane.allowed = 0;
}

// Keeps the rate limit: a block may start when the ones before would have left at that rate.
bool Requester::is_due(Lane& lane) {
    if (block_ns_ == 0) return true;
    std::int64_t now = monotonic_ns();
    if (now < lane.not_before_ns) return false;
    // What was missed is caught up, but not as a burst of everything since the start.
    std::int64_t oldest = now - std::max(block_ns_, kCatchUpNs);
    if (lane.not_before_ns == 0) oldest = now;
    lane.not_before_ns = std::max(lane.not_before_ns, oldest) + block_ns_;
    return true;
}

void Requester::post(Lane& lane, ibv_send_wr* first) {
    ibv_send_wr* bad = nullptr;
    if (int error = ibv_post_send(lane.qp, first, &bad)) {
        throw Failure(fmt::format("ibv_post_send on QP {}: {}", lane.qp->qp_num, strerror(error)));
    }
}

void Requester::post_next(Lane& lane) {
    std::uint64_t left = lane.allowed - lane.posted;
    std::uint64_t count = std::min<std::uint64_t>(left, plan_.block);
    if (plan_.validate) fill_block(lane, count);
    if (count == plan_.block) [[likely]] {
        post_block(lane);
    } else {
        post_part(lane, count);
    }
    lane.next_block = lane.next_block + 1 == blocks_ ? 0 : lane.next_block + 1;
    --lane.free_blocks;
    lane.posted += count;
    posted_ += count;
}

void Requester::post_block(Lane& lane) {
    ibv_send_wr* wr = &lane.ring[std::size_t{lane.next_block} * block_wrs_];
    for (ibv_send_wr* end = wr + block_wrs_; wr != end; wr += list_wrs_) post(lane, wr);
}

// The last iterations of a counted run, when they do not fill a block.
void Requester::post_part(Lane& lane, std::uint64_t iterations) {
    std::size_t first = std::size_t{lane.next_block} * block_wrs_;
    std::vector<ibv_send_wr> part(
        lane.ring.begin() + static_cast<std::ptrdiff_t>(first),
        lane.ring.begin() +
            static_cast<std::ptrdiff_t>(first + iterations * plan_.operations.size()));
    for (std::size_t i = 0; i + 1 < part.size(); ++i) part[i].next = &part[i + 1];
    part.back().next = nullptr;
    part.back().send_flags |= IBV_SEND_SIGNALED;
    part.back().wr_id = tag_of(lane.index, iterations);
    post(lane, part.data());
}

void Requester::fill_block(Lane& lane, std::uint64_t iterations) {
    const Buffer& local = endpoint_.local(0);
    for (std::uint64_t i = 0; i < iterations; ++i) {
        std::uint64_t number = lane.posted + i;
        std::uint64_t slot = std::uint64_t{lane.next_block} * plan_.block + i;
        std::span<std::byte> message(local.host(lane.index, slot), plan_.operations[0].size);
        fill_payload(message, lane.index, number);
        bool spoil = corrupt_every_ > 0 && (number + 1) % corrupt_every_ == 0;
        if (spoil && !message.empty()) message[number % message.size()] ^= std::byte{0x40};
    }
}

int Requester::poll() {
    ibv_wc completions[kPollBatch];
    int found = ibv_poll_cq(endpoint_.send_cq(), kPollBatch, completions);
    if (found < 0) throw Failure("ibv_poll_cq failed: the device is gone");
    for (int i = 0; i < found; ++i) {
        const ibv_wc& completion = completions[i];
        if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
            throw Failure(completion_error_text(completion));
        }
        Lane& lane = lanes_[completion.wr_id >> 32];
        std::uint64_t iterations = completion.wr_id & UINT32_MAX;
        lane.completed += iterations;
        completed_ += iterations;
        ++lane.free_blocks;
        if (lane.posted < lane.allowed && block_ns_ == 0) [[likely]]
            post_next(lane);
    }
    if (block_ns_ > 0) {
        for (Lane& lane : lanes_) refill(lane);
    }
    return found;
}

std::vector<std::uint64_t> Requester::completed_per_qp() const {
    std::vector<std::uint64_t> out;
    for (const Lane& lane : lanes_) out.push_back(lane.completed);
    return out;
}

void Requester::post_one() {
    Lane& lane = lanes_.front();
    // The completion of the oldest block is there long before the ring is full.
    while (lane.posted - lane.completed == lane.ring.size()) poll();
    post(lane, &lane.ring[lane.posted % lane.ring.size()]);
    ++lane.posted;
    ++posted_;
}

}  // namespace rdmalab::perftest

#include "perftest/cluster/lockstep.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <cstdio>

#include "perftest/channel.h"
#include "perftest/failure.h"
#include "perftest/payload.h"

namespace rdmalab::perftest {

namespace {

constexpr int kPollBatch = 16;
constexpr std::uint64_t kInvalidLoggedMax = 5000;

// The part of a message that one queue pair carries.
struct Part {
    std::uint64_t offset = 0, length = 0;
};
Part part_of(std::uint64_t size, std::uint32_t qps, std::uint32_t qp) {
    std::uint64_t first = size * qp / qps, last = size * (qp + 1) / qps;
    return {first, last - first};
}

std::uint64_t size_of(const Endpoint& endpoint) { return endpoint.plan().operations.front().size; }

}  // namespace

void Lockstep::add(Endpoint& endpoint, bool sends, bool receives, std::uint32_t number,
                   bool is_source) {
    Link link;
    link.endpoint = &endpoint;
    link.sends = sends;
    link.receives = receives;
    link.sent_number = 2 * number + (is_source ? 0 : 1);
    link.received_number = 2 * number + (is_source ? 1 : 0);
    links_.push_back(link);
}

void Lockstep::post_receive(Link& link) {
    ibv_recv_wr request{}, *bad = nullptr;
    if (int error = ibv_post_recv(link.endpoint->qp(0), &request, &bad)) {
        throw Failure(fmt::format("ibv_post_recv: {}", strerror(error)));
    }
}

void Lockstep::prime(std::size_t index) {
    Link& link = links_[index];
    if (plan().validate) corrupt_every_ = corrupt_every();
    for (std::uint32_t i = 0; i < kLockstepReceives; ++i) post_receive(link);
    if (link.sends && plan().validate) fill(link, 0);
}

void Lockstep::fill(Link& link, std::uint64_t iteration) {
    std::span<std::byte> message(link.endpoint->local(0).host(0, iteration),
                                 size_of(*link.endpoint));
    fill_payload(message, link.sent_number, iteration);
    bool spoil = corrupt_every_ > 0 && (iteration + 1) % corrupt_every_ == 0;
    if (spoil && !message.empty()) message[iteration % message.size()] ^= std::byte{0x40};
}

void Lockstep::check(Link& link) {
    std::span<const std::byte> message(link.endpoint->target(0).host(0, iteration_),
                                       size_of(*link.endpoint));
    std::optional<Mismatch> wrong = check_payload(message, link.received_number, iteration_);
    if (!wrong || ++link.invalid > kInvalidLoggedMax) return;
    fmt::print(stderr, "invalid message: iteration {}, byte {}: expected {:#04x}, found {:#04x}\n",
               iteration_, wrong->offset, std::to_integer<unsigned>(wrong->expected),
               std::to_integer<unsigned>(wrong->found));
}

void Lockstep::post_data(Link& link) {
    Endpoint& endpoint = *link.endpoint;
    ++link.posted;
    for (std::uint32_t q = 0; q < plan().qps; ++q) {
        Part part = part_of(size_of(endpoint), plan().qps, q);
        if (part.length == 0) continue;
        ibv_sge piece{.addr = endpoint.local(0).address(0, iteration_) + part.offset,
                      .length = static_cast<std::uint32_t>(part.length),
                      .lkey = endpoint.local(0).lkey()};
        ibv_send_wr request{}, *bad = nullptr;
        request.sg_list = &piece;
        request.num_sge = 1;
        request.opcode = IBV_WR_RDMA_WRITE;
        request.send_flags = IBV_SEND_SIGNALED;
        request.wr.rdma.remote_addr = endpoint.remote(0).address +
                                      endpoint.remote_layout(0).offset(0, iteration_) + part.offset;
        request.wr.rdma.rkey = endpoint.remote(0).rkey;
        if (int error = ibv_post_send(endpoint.qp(q), &request, &bad)) {
            throw Failure(fmt::format("ibv_post_send: {}", strerror(error)));
        }
        ++link.in_flight;
    }
}

void Lockstep::post_sync(Link& link) {
    ibv_send_wr request{}, *bad = nullptr;
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.send_flags = IBV_SEND_SIGNALED;
    request.imm_data = static_cast<std::uint32_t>(iteration_);
    if (int error = ibv_post_send(link.endpoint->qp(0), &request, &bad)) {
        throw Failure(fmt::format("ibv_post_send: {}", strerror(error)));
    }
    ++link.in_flight;
}

// True when anything has completed or come.
bool Lockstep::poll(Link& link) {
    ibv_wc completions[kPollBatch];
    bool moved = false;
    for (ibv_cq* cq : {link.endpoint->send_cq(), link.endpoint->recv_cq()}) {
        int found = ibv_poll_cq(cq, kPollBatch, completions);
        if (found < 0) throw Failure("ibv_poll_cq failed: the device is gone");
        for (int i = 0; i < found; ++i) {
            if (completions[i].status != IBV_WC_SUCCESS) {
                throw Failure(completion_error_text(completions[i]));
            }
            if (cq == link.endpoint->send_cq()) {
                --link.in_flight;
            } else {
                ++link.syncs;
                post_receive(link);
            }
        }
        moved |= found > 0;
    }
    return moved;
}

void Lockstep::begin(std::int64_t) {
    wanted_ = plan().warmup_iterations + plan().iterations;
    begin_iteration();
}

void Lockstep::begin_iteration() {
    state_ = State::kData;
    begun_ns_ = monotonic_ns();
    for (Link& link : links_) {
        if (link.sends) post_data(link);
    }
}

bool Lockstep::all_complete() const {
    return std::all_of(links_.begin(), links_.end(),
                       [](const Link& link) { return link.in_flight == 0; });
}

bool Lockstep::all_synced() const {
    return std::all_of(links_.begin(), links_.end(),
                       [this](const Link& link) { return link.syncs > iteration_; });
}

void Lockstep::finish_iteration(std::int64_t now_ns) {
    if (iteration_ >= plan().warmup_iterations) {
        timed_ns_ += now_ns - begun_ns_;
        ++counted_;
    }
    for (Link& link : links_) {
        if (link.receives && plan().validate) check(link);
    }
    ++iteration_;
    if (iteration_ == wanted_ || interrupted_) {
        state_ = State::kEnded;
        return;
    }
    for (Link& link : links_) {
        if (link.sends && plan().validate) fill(link, iteration_);
    }
    begin_iteration();
}

bool Lockstep::turn(std::int64_t) {
    bool moved = false;
    for (Link& link : links_) moved |= poll(link);
    if (interrupted_ && is_begun()) {
        // The others are told, too, and perhaps at another iteration: nobody is waited for.
        state_ = State::kEnded;
        return moved;
    }
    if (state_ == State::kData && all_complete()) {
        state_ = State::kSync;
        for (Link& link : links_) post_sync(link);
        return true;
    }
    if (state_ == State::kSync && all_complete() && all_synced()) {
        finish_iteration(monotonic_ns());
        return true;
    }
    return moved;
}

void Lockstep::interrupt() { interrupted_ = true; }

ProcessResult Lockstep::result(std::size_t index) const {
    const Link& link = links_[index];
    ProcessResult out;
    out.is_requester = link.sends;
    out.window_ns = timed_ns_;
    if (link.sends) out.iterations_per_qp = {counted_};
    out.posted = link.posted;
    out.received = link.receives ? link.syncs : 0;
    out.invalid = link.invalid;
    out.interrupted = interrupted_ && iteration_ < wanted_;
    out.numa_node = link.endpoint->numa_node();
    return out;
}

}  // namespace rdmalab::perftest

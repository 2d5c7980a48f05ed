#include "perftest/responder.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <cstdio>

#include "perftest/failure.h"
#include "perftest/payload.h"

namespace rdmalab::perftest {

namespace {

constexpr int kPollBatch = 32;
constexpr std::uint32_t kListMax = 64;
constexpr std::uint64_t kInvalidLoggedMax = 5000;

}  // namespace

Responder::Responder(Endpoint& endpoint) : endpoint_(endpoint), plan_(endpoint.plan()) {
    if (!plan_.sends_receives()) return;
    list_ = std::clamp(plan_.rx_depth / 4, 1u, kListMax);
    lists_ = plan_.rx_depth / list_;
    auto length = static_cast<std::uint32_t>(plan_.largest_receive() +
                                             (plan_.transport == Transport::kUd ? kGrhBytes : 0));
    lanes_.resize(plan_.qps);
    for (std::uint32_t q = 0; q < plan_.qps; ++q) {
        Lane& lane = lanes_[q];
        lane.qp = endpoint_.qp(q);
        lane.ring.resize(std::size_t{lists_} * list_);
        lane.sges.resize(lane.ring.size());
        for (std::uint32_t i = 0; i < lane.ring.size(); ++i) {
            lane.sges[i] = {.addr = endpoint_.receive().address(q, i),
                            .length = length,
                            .lkey = endpoint_.receive().lkey()};
            lane.ring[i] = {};
            lane.ring[i].wr_id = q;
            lane.ring[i].sg_list = &lane.sges[i];
            lane.ring[i].num_sge = length > 0 ? 1 : 0;
            lane.ring[i].next = (i + 1) % list_ == 0 ? nullptr : &lane.ring[i + 1];
        }
    }
}

void Responder::prime() {
    for (Lane& lane : lanes_) {
        for (std::uint32_t i = 0; i < lists_; ++i) post_list(lane);
    }
}

void Responder::post_list(Lane& lane) {
    ibv_recv_wr* bad = nullptr;
    if (int error = ibv_post_recv(lane.qp, &lane.ring[std::size_t{lane.next_list} * list_], &bad)) {
        throw Failure(fmt::format("ibv_post_recv on QP {}: {}", lane.qp->qp_num, strerror(error)));
    }
    lane.next_list = lane.next_list + 1 == lists_ ? 0 : lane.next_list + 1;
}

int Responder::poll() {
    ibv_wc completions[kPollBatch];
    int found = ibv_poll_cq(endpoint_.recv_cq(), kPollBatch, completions);
    if (found < 0) throw Failure("ibv_poll_cq failed: the device is gone");
    for (int i = 0; i < found; ++i) {
        const ibv_wc& completion = completions[i];
        if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
            throw Failure(completion_error_text(completion));
        }
        auto index = static_cast<std::uint32_t>(completion.wr_id);
        Lane& lane = lanes_[index];
        if (plan_.validate) check(lane, index, completion);
        ++lane.received;
        if (++lane.used == list_) {
            lane.used = 0;
            post_list(lane);
        }
    }
    received_ += static_cast<std::uint64_t>(found);
    return found;
}

void Responder::check(Lane& lane, std::uint32_t index, const ibv_wc& completion) {
    std::uint64_t size = plan_.operations.front().size;
    if (completion.byte_len != size) {
        report_invalid(index, lane.received,
                       fmt::format("expected {} bytes, found {}", size, completion.byte_len));
        return;
    }
    std::uint64_t slot = lane.received % lane.ring.size();
    std::span<const std::byte> message(endpoint_.receive().host(index, slot), size);
    if (std::optional<Mismatch> wrong = check_payload(message, index, lane.received)) {
        report_invalid(index, lane.received,
                       fmt::format("byte {}: expected {:#04x}, found {:#04x}", wrong->offset,
                                   std::to_integer<unsigned>(wrong->expected),
                                   std::to_integer<unsigned>(wrong->found)));
    }
}

void Responder::report_invalid(std::uint32_t index, std::uint64_t number, const std::string& text) {
    if (++invalid_ > kInvalidLoggedMax) return;
    fmt::print(stderr, "invalid message: queue pair {}, message {}: {}\n", index, number, text);
    if (invalid_ == kInvalidLoggedMax) {
        fmt::print(stderr, "{} invalid messages; further ones are counted only\n", invalid_);
    }
}

}  // namespace rdmalab::perftest

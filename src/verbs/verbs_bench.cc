// What the library itself costs per post and per poll, with the card's part done by two stores. The
// instructions of each are counted where the kernel lets us (perf_event_open).
#include <benchmark/benchmark.h>
#include <infiniband/verbs.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "verbs/fake_card.h"

namespace rdmalab::verbs::testing {

namespace {

// User-space instructions of this thread; 0 where counting is not allowed.
class InstructionCounter {
public:
    InstructionCounter() {
        perf_event_attr attributes{};
        attributes.type = PERF_TYPE_HARDWARE;
        attributes.size = sizeof attributes;
        attributes.config = PERF_COUNT_HW_INSTRUCTIONS;
        attributes.exclude_kernel = 1;
        fd_ = static_cast<int>(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0));
    }
    ~InstructionCounter() {
        if (fd_ >= 0) close(fd_);
    }
    InstructionCounter(const InstructionCounter&) = delete;
    InstructionCounter& operator=(const InstructionCounter&) = delete;

    double value() const {
        std::uint64_t count = 0;
        if (fd_ < 0 || read(fd_, &count, sizeof count) != sizeof count) return 0;
        return static_cast<double>(count);
    }

private:
    int fd_ = -1;
};

constexpr int kList = 16;
constexpr std::uint32_t kDepth = 1024;

// One QP of a fake card, with direct pointers to what the card would touch.
class Bench {
public:
    Bench() {
        ibv_device** devices = ibv_get_device_list(nullptr);
        context_ = ibv_open_device(devices[0]);
        ibv_free_device_list(devices);
        pd_ = ibv_alloc_pd(context_);
        cq = ibv_create_cq(context_, kDepth, nullptr, nullptr, 0);
        mr_ = ibv_reg_mr(pd_, buffer_.data(), buffer_.size(), IBV_ACCESS_LOCAL_WRITE);
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = cq;
        init.qp_type = IBV_QPT_RC;
        init.cap = {kDepth, kDepth, 1, 1, 0};
        qp = ibv_create_qp(pd_, &init);
        ibv_qp_attr attributes{};
        attributes.qp_state = IBV_QPS_RTS;
        if (ibv_modify_qp(qp, &attributes, IBV_QP_STATE) != 0) std::abort();
        ring_ = reinterpret_cast<abi::Cqe*>(
            card_.context().at(card_.context().cqs.at(cq->handle).region) + sizeof(abi::CqHeader));
        doorbells_ =
            reinterpret_cast<abi::DoorbellArea*>(card_.context().at(card_.context().doorbells));
        slot_ = card_.context().qps.at(qp->qp_num).slot;
        make_list();
    }
    ~Bench() {
        ibv_destroy_qp(qp);
        ibv_dereg_mr(mr_);
        ibv_destroy_cq(cq);
        ibv_dealloc_pd(pd_);
        ibv_close_device(context_);
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;

    void post(benchmark::State& state) {
        ibv_send_wr* bad = nullptr;
        if (ibv_post_send(qp, list, &bad) != 0) state.SkipWithError("post");
    }
    // What the card does: takes the doorbell, completes the last entry of the list.
    void complete_list() {
        doorbells_->leaf[slot_ / 64].store(0, std::memory_order_relaxed);
        sent_ += kList;
        complete(sent_ - 1);
    }
    void complete(std::uint32_t ring_index) {
        abi::Cqe& cqe = ring_[completed_ & (kDepth - 1)];
        cqe.qpn = qp->qp_num;
        cqe.queue_slot = slot_;
        cqe.ring_index = ring_index;
        cqe.sequence.store(++completed_, std::memory_order_release);
    }

    ibv_cq* cq = nullptr;
    ibv_qp* qp = nullptr;
    ibv_send_wr list[kList] = {};

private:
    void make_list() {
        for (int i = 0; i < kList; ++i) {
            sges_[i] = {reinterpret_cast<std::uintptr_t>(buffer_.data()) + 8u * unsigned(i), 8,
                        mr_->lkey};
            list[i].next = i + 1 < kList ? &list[i + 1] : nullptr;
            list[i].sg_list = &sges_[i];
            list[i].num_sge = 1;
            list[i].opcode = IBV_WR_RDMA_WRITE;
            list[i].send_flags = i + 1 < kList ? 0 : IBV_SEND_SIGNALED;
        }
    }

    FakeCard card_;
    std::vector<std::byte> buffer_ = std::vector<std::byte>(4096);
    ibv_context* context_ = nullptr;
    ibv_pd* pd_ = nullptr;
    ibv_mr* mr_ = nullptr;
    ibv_sge sges_[kList] = {};
    abi::Cqe* ring_ = nullptr;
    abi::DoorbellArea* doorbells_ = nullptr;
    std::uint32_t slot_ = 0, sent_ = 0, completed_ = 0;
};

void per_item(benchmark::State& state, const InstructionCounter& counter, double before, int n) {
    state.SetItemsProcessed(state.iterations() * n);
    state.counters["instructions"] =
        (counter.value() - before) / static_cast<double>(state.iterations() * n);
}

// 8-byte RDMA writes in lists of 16, the last one signaled, and its completion.
void post_and_poll_a_list(benchmark::State& state) {
    Bench bench;
    InstructionCounter counter;
    double before = counter.value();
    ibv_wc wc;
    for (auto _ : state) {
        bench.post(state);
        bench.complete_list();
        if (ibv_poll_cq(bench.cq, 1, &wc) != 1) state.SkipWithError("poll");
    }
    per_item(state, counter, before, kList);
}
BENCHMARK(post_and_poll_a_list);

void poll_one_completion(benchmark::State& state) {
    Bench bench;
    InstructionCounter counter;
    double before = counter.value();
    ibv_wc wc;
    std::uint32_t index = 0;
    for (auto _ : state) {
        bench.complete(index++);
        if (ibv_poll_cq(bench.cq, 1, &wc) != 1) state.SkipWithError("poll");
    }
    per_item(state, counter, before, 1);
}
BENCHMARK(poll_one_completion);

void poll_sixteen_completions(benchmark::State& state) {
    Bench bench;
    InstructionCounter counter;
    double before = counter.value();
    ibv_wc wc[kList];
    std::uint32_t index = 0;
    for (auto _ : state) {
        for (int i = 0; i < kList; ++i) bench.complete(index++);
        if (ibv_poll_cq(bench.cq, kList, wc) != kList) state.SkipWithError("poll");
    }
    per_item(state, counter, before, kList);
}
BENCHMARK(poll_sixteen_completions);

}  // namespace

}  // namespace rdmalab::verbs::testing

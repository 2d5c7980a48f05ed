// The hot inner pieces of the card: rings, doorbells, and whole messages through a card whose
// memory port is memcpy, which leaves the cost of everything but the system calls.
#include <benchmark/benchmark.h>

#include <memory>

#include "card/doorbells.h"
#include "card/rings.h"
#include "card/test_client.h"

namespace rdmalab::card {
namespace {

using namespace testing;

void idle_doorbells(benchmark::State& state) {
    auto area = std::make_unique<abi::DoorbellArea>();
    for (auto _ : state) {
        benchmark::DoNotOptimize(drain_doorbells(*area, [](std::uint32_t) {}));
    }
}
BENCHMARK(idle_doorbells);

void one_doorbell(benchmark::State& state) {
    auto area = std::make_unique<abi::DoorbellArea>();
    for (auto _ : state) {
        area->leaf[7].fetch_or(2);
        area->mid[0].fetch_or(128);
        area->top.fetch_or(1);
        drain_doorbells(*area, [](std::uint32_t slot) { benchmark::DoNotOptimize(slot); });
    }
}
BENCHMARK(one_doorbell);

void idle_round(benchmark::State& state) {
    TestCard setting;
    TestClient client(setting, 2);
    setting.settle();
    for (auto _ : state) benchmark::DoNotOptimize(setting.card.poll(setting.now));
}
BENCHMARK(idle_round);

void push_and_publish_completion(benchmark::State& state) {
    alignas(64) static std::byte memory[128 + 64 * 64]{};
    CompletionRing ring(memory, 64);
    auto& header = *reinterpret_cast<abi::CqHeader*>(memory);
    std::uint32_t count = 0;
    for (auto _ : state) {
        ring.push({}, 0);
        benchmark::DoNotOptimize(ring.publish());
        header.consumer.store(++count, std::memory_order_relaxed);
    }
}
BENCHMARK(push_and_publish_completion);

void fetch_send(benchmark::State& state) {
    const std::uint32_t stride = send_stride(1, 0);
    struct alignas(64) Line {
        std::byte bytes[64];
    };
    std::vector<Line> memory((send_region_length(64, stride) + 63) / 64);
    auto* base = reinterpret_cast<std::byte*>(memory.data());
    SendRing ring(base, {.capacity = 64, .stride = stride, .sge_max = 1});
    for (std::uint32_t i = 0; i < 64; ++i) {
        abi::SendEntry head{};
        head.sge_count = 1;
        store_bytes(base + abi::kRingHeaderSize + i * stride, head);
    }
    transport::SendWqe wqe;
    std::uint32_t producer = 0;
    for (auto _ : state) {
        reinterpret_cast<abi::QueueHeader*>(base)->producer.store(++producer);
        benchmark::DoNotOptimize(ring.fetch(wqe));
    }
}
BENCHMARK(fetch_send);

// `batch` writes of `length` bytes are posted at once, one in `batch` is signaled.
void rdma_write(benchmark::State& state) {
    const auto length = static_cast<std::uint32_t>(state.range(0));
    const auto batch = static_cast<int>(state.range(1));
    TestCard setting;
    TestClient a(setting, 2), b(setting, 3);
    std::string from(length, 'a'), to(length, 'b');
    const auto from_keys = a.reg_mr(bytes_of(from)), to_keys = b.reg_mr(bytes_of(to));
    TestCq a_cq = a.create_cq(256), b_cq = b.create_cq(256);
    const QpOptions options{.send_wr_max = 128};
    TestQp a_qp = a.create_qp(a_cq, options), b_qp = b.create_qp(b_cq, options);
    if (a.connect(a_qp, b, b_qp) + b.connect(b_qp, a, a_qp) != 0) {
        return state.SkipWithError("no connection");
    }
    SendOptions write{.opcode = abi::SendOpcode::kWrite, .remote_address = address_of(to)};
    write.sges = {sge(bytes_of(from), from_keys.lkey)};
    write.rkey = to_keys.rkey;
    for (auto _ : state) {
        for (int i = 1; i <= batch; ++i) {
            write.flags = i == batch ? std::uint8_t{abi::kSendSignaled} : std::uint8_t{0};
            a.post_send(a_qp, write);
        }
        setting.settle();
        if (!a.poll(a_cq)) return state.SkipWithError("no completion");
    }
    state.SetItemsProcessed(state.iterations() * batch);
    state.SetBytesProcessed(state.iterations() * batch * length);
}
BENCHMARK(rdma_write)
    ->ArgNames({"bytes", "batch"})
    ->Args({8, 1})
    ->Args({8, 16})
    ->Args({65536, 1})
    ->Args({65536, 16});

}  // namespace
}  // namespace rdmalab::card

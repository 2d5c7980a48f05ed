// What congestion control costs: per packet that is paced, per event through the rings, per call of
// an algorithm.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>

#include "pcc/algorithm_entry.h"
#include "pcc/notification_point.h"
#include "pcc/reaction_point.h"
#include "pcc/runtime.h"

namespace rdmalab::pcc {
namespace {

constexpr FlowId kFlow = make_flow_id(3, 0x10001);

struct NoCard final : ReactionPort {
    void watch(FlowId, bool) override {}
    void watch_all(bool) override {}
    bool send_probe(FlowId, Instant) override { return true; }
    void wake(std::atomic<std::uint32_t>&) override {}
};

struct Setting {
    Setting() {
        std::fill(memory, memory + shared_size(1), std::byte{0});
        format_shared(memory, 1);
        settings.flows = FlowPolicy::kAll;
    }
    ~Setting() { std::free(memory); }
    Settings settings;
    NoCard card;
    std::byte* memory = static_cast<std::byte*>(std::aligned_alloc(4096, shared_size(1)));
    ReactionPoint point{settings, 1, 0, card};
    Instant now{1'000'000'000};
};

void packet_of_a_watched_flow(benchmark::State& state) {
    Setting s;
    for (auto _ : state) {
        s.now = s.now + nanoseconds(400);
        benchmark::DoNotOptimize(s.point.handle_sent({kFlow, 1, 4096, true, false}, s.now));
    }
}
BENCHMARK(packet_of_a_watched_flow);

void packet_that_is_paced(benchmark::State& state) {
    Setting s;
    s.settings.dcqcn.time_reset_us = s.settings.dcqcn.byte_reset = 0;  // the limit stays
    s.point.handle_cnp(kFlow, s.now);
    for (auto _ : state) {
        s.now = s.now + nanoseconds(800);
        benchmark::DoNotOptimize(s.point.handle_sent({kFlow, 1, 4096, true, false}, s.now));
    }
}
BENCHMARK(packet_that_is_paced);

void mark_at_the_notification_point(benchmark::State& state) {
    NotificationPoint point;
    Instant now{1};
    for (auto _ : state) {
        now = now + nanoseconds(400);
        benchmark::DoNotOptimize(point.handle_mark(3, microseconds(4), now));
    }
}
BENCHMARK(mark_at_the_notification_point);

// 32 packets become one event, which goes through the ring, and an answer comes back.
void event_through_the_rings(benchmark::State& state) {
    Setting s;
    EventLink link(s.memory, 1);
    s.point.attach(link, true, s.now);
    s.settings.tx_packets_per_event = 1;
    WorkerRings& rings = rings_of(s.memory, 0);
    for (auto _ : state) {
        s.now = s.now + nanoseconds(400);
        s.point.handle_sent({kFlow, 1, 4096, true, false}, s.now);
        const std::uint32_t at = rings.event_consumer.load(std::memory_order_relaxed);
        benchmark::DoNotOptimize(rings.events[at & (kEventRingCapacity - 1)]);
        rings.event_consumer.store(at + 1, std::memory_order_release);
        const std::uint32_t answer = rings.answer_producer.load(std::memory_order_relaxed);
        rings.answers[answer & (kAnswerRingCapacity - 1)] = {kFlow, kRateMax, 0, 0};
        rings.answer_producer.store(answer + 1, std::memory_order_release);
        s.point.poll(s.now);
    }
}
BENCHMARK(event_through_the_rings);

void init(std::uint32_t*) {
    const doca_pcc_dev_algo_meta_data meta{};
    doca_pcc_dev_algo_init_metadata(0, &meta, 0, 0);
    doca_pcc_dev_init_algo_slot(0, 0, 0, 1);
}
doca_pcc_dev_error_t set_parameters(std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t,
                                    const std::uint32_t*, std::uint32_t*) {
    return DOCA_PCC_DEV_STATUS_FAIL;
}

void call_of_dcqcn(benchmark::State& state) {
    AlgorithmEntry entry;
    entry.init = init;
    entry.handle = doca_pcc_dev_default_internal_algo;
    entry.set_parameters = set_parameters;
    Runtime runtime(entry, {});
    if (!runtime.start().ok()) return state.SkipWithError("the algorithm does not start");
    Event event;
    event.type = EventType::kTx;
    event.flow = kFlow;
    event.tx = {0, 131'072, 32, 0};
    for (auto _ : state) {
        event.timestamp_ns += 10'000;
        benchmark::DoNotOptimize(runtime.handle(0, event));
    }
}
BENCHMARK(call_of_dcqcn);

}  // namespace
}  // namespace rdmalab::pcc

#include <benchmark/benchmark.h>

#include "wire/testing.h"

namespace rdmalab::wire {
namespace {

using testing::Bytes;

constexpr std::size_t kPayload = 4096;

// Argument 0: IPv6.
void emit_write_only(benchmark::State& state) {
    const LowerTemplate lower = make_lower_template(testing::path_of(state.range(0) != 0));
    const OpcodeInfo& info = *find_opcode(0x0a);
    Frame frame;
    std::uint32_t psn = 0;
    for (auto _ : state) {
        start_roce(frame, lower, info);
        Bth& bth = *header_at<Bth>(frame, frame.bth_offset);
        bth.destination_qp = 0x11;
        bth.psn = ++psn & Psn::kMask;
        *header_at<Reth>(frame, frame.bth_offset + sizeof bth) = {0x7f00'0000'1000, 0x102,
                                                                  kPayload};
        frame.add_segment({SpaceId{1}, kPayload, 0x1000});
        finish_roce(frame);
        benchmark::DoNotOptimize(frame.header.data());
        benchmark::ClobberMemory();
    }
}
BENCHMARK(emit_write_only)->ArgName("ipv6")->Arg(0)->Arg(1);

void parse_write_only(benchmark::State& state) {
    Prng prng(1);
    Frame frame;
    const Bytes payload(kPayload);
    testing::make_frame(frame, state.range(0) != 0, *find_opcode(0x0a), payload, prng);
    const Bytes bytes = testing::written(frame, payload);
    Frame received;
    for (auto _ : state) {
        if (testing::parse(bytes, received) != ParseError::kNone) state.SkipWithError("refused");
        benchmark::DoNotOptimize(received.header.data());
        benchmark::ClobberMemory();
    }
}
BENCHMARK(parse_write_only)->ArgName("ipv6")->Arg(0)->Arg(1);

void icrc(benchmark::State& state) {
    Prng prng(1);
    Frame frame;
    const Bytes payload(static_cast<std::size_t>(state.range(0)), std::byte{7});
    testing::make_frame(frame, false, *find_opcode(0x0a), payload, prng);
    for (auto _ : state) {
        Icrc crc(frame);
        crc.add(payload);
        benchmark::DoNotOptimize(crc.value());
    }
    state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(icrc)->ArgName("payload")->Arg(0)->Arg(256)->Arg(kPayload);

void write_whole_frame(benchmark::State& state) {
    Prng prng(1);
    Frame frame;
    const Bytes payload(kPayload, std::byte{7});
    testing::make_frame(frame, false, *find_opcode(0x0a), payload, prng);
    Bytes out(wire_length(frame));
    for (auto _ : state) {
        benchmark::DoNotOptimize(write_frame(frame, payload, out));
        benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kPayload));
}
BENCHMARK(write_whole_frame);

// What the receiver of a CE-marked frame pays for an elided ICRC.
void mark_and_check_invariants(benchmark::State& state) {
    Prng prng(1);
    Frame frame;
    testing::make_frame(frame, state.range(0) != 0, *find_opcode(0x0a), {}, prng);
    for (auto _ : state) {
        frame.header_kept = false;
        set_ecn(frame, kEcnCe);
        benchmark::DoNotOptimize(invariants_unchanged(frame));
    }
}
BENCHMARK(mark_and_check_invariants)->ArgName("ipv6")->Arg(0)->Arg(1);

}  // namespace
}  // namespace rdmalab::wire

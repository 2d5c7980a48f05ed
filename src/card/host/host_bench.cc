// Payload between two processes: the card's memory port against the raw loop of one read call and
// one write call per message, which is the limit of the two-copy model. Compare items of one size.
#include <benchmark/benchmark.h>
#include <sys/uio.h>

#include <vector>

#include "card/host/memory_port.h"
#include "card/host/testing.h"

namespace rdmalab::card::host {
namespace {

constexpr std::uint32_t kPacket = 4096;
constexpr std::size_t kArea = 16 << 20;

void raw_two_copies(benchmark::State& state) {
    const auto length = static_cast<std::size_t>(state.range(0));
    ChildProcess a(kArea), b(kArea);
    std::vector<std::byte> bounce(length);
    for (auto _ : state) {
        const iovec local{bounce.data(), length};
        const iovec from{reinterpret_cast<void*>(a.address(0)), length};
        const iovec to{reinterpret_cast<void*>(b.address(0)), length};
        benchmark::DoNotOptimize(::process_vm_readv(a.pid(), &local, 1, &from, 1, 0));
        benchmark::DoNotOptimize(::process_vm_writev(b.pid(), &local, 1, &to, 1, 0));
    }
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * length));
}
BENCHMARK(raw_two_copies)->Arg(8)->Arg(4096)->Arg(64 << 10)->Arg(128 << 10)->Arg(256 << 10);

// The message arrives as packets, as from the engine.
void memory_port(benchmark::State& state) {
    const auto length = static_cast<std::uint32_t>(state.range(0));
    ChildProcess a(kArea), b(kArea);
    ProcessMemory memory;
    memory.add_process(SpaceId{1}, a.pid());
    memory.add_process(SpaceId{2}, b.pid());
    std::vector<transport::CopyFault> faults;
    for (auto _ : state) {
        for (std::uint32_t done = 0; done < length; done += kPacket) {
            memory.copy(SpaceId{2}, b.address(done),
                        {SpaceId{1}, std::min(kPacket, length - done), a.address(done)}, {});
        }
        memory.flush(faults);
    }
    if (!faults.empty()) state.SkipWithError("a copy failed");
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * length);
}
BENCHMARK(memory_port)->Arg(8)->Arg(4096)->Arg(64 << 10)->Arg(128 << 10)->Arg(256 << 10);

// 64 KiB whose packets lie apart on both sides, so that nothing merges.
void memory_port_scattered(benchmark::State& state) {
    const auto length = static_cast<std::uint32_t>(state.range(0));
    ChildProcess a(kArea), b(kArea);
    ProcessMemory memory;
    memory.add_process(SpaceId{1}, a.pid());
    memory.add_process(SpaceId{2}, b.pid());
    std::vector<transport::CopyFault> faults;
    for (auto _ : state) {
        for (std::uint32_t done = 0; done < length; done += kPacket) {
            memory.copy(SpaceId{2}, b.address(done * 2), {SpaceId{1}, kPacket, a.address(done * 2)},
                        {});
        }
        memory.flush(faults);
    }
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * length);
}
BENCHMARK(memory_port_scattered)->Arg(64 << 10);

// Several messages in one flush: does a larger batch still fit the cache?
void memory_port_batch_of_64k(benchmark::State& state) {
    const auto count = static_cast<std::uint32_t>(state.range(0));
    constexpr std::uint32_t kMessage = 64 << 10;
    ChildProcess a(kArea), b(kArea);
    ProcessMemory memory;
    memory.add_process(SpaceId{1}, a.pid());
    memory.add_process(SpaceId{2}, b.pid());
    std::vector<transport::CopyFault> faults;
    for (auto _ : state) {
        for (std::uint32_t i = 0; i < count; ++i) {
            for (std::uint32_t done = 0; done < kMessage; done += kPacket) {
                memory.copy(SpaceId{2}, b.address(done), {SpaceId{1}, kPacket, a.address(done)},
                            {});
            }
        }
        memory.flush(faults);
    }
    state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * count * kMessage);
}
BENCHMARK(memory_port_batch_of_64k)->Arg(1)->Arg(2)->Arg(4)->Arg(8);

// 8-byte inline writes to scattered places of one process.
void memory_port_inline_writes(benchmark::State& state) {
    ChildProcess b(kArea);
    ProcessMemory memory;
    memory.add_process(SpaceId{2}, b.pid());
    std::vector<transport::CopyFault> faults;
    const std::uint64_t value = 1;
    for (auto _ : state) {
        for (std::uint32_t i = 0; i < 64; ++i) {
            memory.copy(SpaceId{2}, b.address(i * 64),
                        {kCardSpace, 8, reinterpret_cast<std::uint64_t>(&value)}, {});
        }
        memory.flush(faults);
    }
    state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) * 64);
}
BENCHMARK(memory_port_inline_writes);

}  // namespace
}  // namespace rdmalab::card::host

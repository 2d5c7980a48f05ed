// Rules of ibv_create_flow(3): what it costs to make one beside many, and to find the one that a
// frame meets. Look-ups must not grow with the number of rules that share masks.
#include <benchmark/benchmark.h>

#include "flow/rule_table.h"

namespace rdmalab::flow {
namespace {

constexpr std::uint32_t kLayers = kRuleEthernet | kRuleIpv4 | kRuleUdp;

// A five-tuple.
RuleMatch conversation(std::uint32_t number) {
    RuleMatch match;
    match.layers = kLayers;
    const auto fill = [](RuleHeaders& headers, std::uint32_t address, std::uint16_t port) {
        store_bytes(reinterpret_cast<std::byte*>(headers.source_ip.data()), Be32{address});
        store_bytes(reinterpret_cast<std::byte*>(headers.destination_ip.data()), Be32{~0u});
        headers.protocol = 0xff;
        headers.source_port = port;
        headers.destination_port = 0xffff;
    };
    fill(match.value.outer, 0x0a00'0000 + number, static_cast<std::uint16_t>(number));
    fill(match.mask.outer, ~0u, 0xffff);
    return match;
}

RuleTable table_of(std::uint32_t rules) {
    RuleTable table;
    for (std::uint32_t i = 0; i < rules; ++i) table.add(conversation(i), 0, true, i);
    return table;
}

void find_rule(benchmark::State& state) {
    const auto rules = static_cast<std::uint32_t>(state.range(0));
    const RuleTable table = table_of(rules);
    std::vector<FlatFrame> frames;
    for (std::uint32_t i = 0; i < 64; ++i)
        frames.push_back({kLayers, conversation(i * 7919 % rules).value});
    std::size_t next = 0;
    for (auto _ : state) {
        std::uint64_t found = 0;
        table.visit(frames[next++ % frames.size()], [&](std::uint64_t target) { found += target; });
        benchmark::DoNotOptimize(found);
    }
}
BENCHMARK(find_rule)->ArgName("rules")->Arg(10)->Arg(1'000)->Arg(100'000);

void add_and_remove_rule(benchmark::State& state) {
    const auto rules = static_cast<std::uint32_t>(state.range(0));
    RuleTable table = table_of(rules);
    std::uint32_t next = rules;
    for (auto _ : state) {
        const RuleId id = table.add(conversation(next++), 0, true, 1);
        table.remove(id);
    }
}
BENCHMARK(add_and_remove_rule)->ArgName("rules")->Arg(10)->Arg(1'000)->Arg(100'000);

}  // namespace
}  // namespace rdmalab::flow

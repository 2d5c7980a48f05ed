#include <benchmark/benchmark.h>

#include "flow/eswitch.h"
#include "wire/headers.h"

namespace rdmalab::flow {
namespace {

MacAddress mac_of(int port) { return {{2, 0, 0, 0, 0, static_cast<std::uint8_t>(port)}}; }

EswitchDomain domain_of(int vports) {
    EswitchDomain domain;
    domain.add_wire(VportId{0});
    for (int port = 1; port <= vports; ++port)
        domain.add_vport(VportId{static_cast<std::uint16_t>(port)}, mac_of(port));
    return domain;
}

void prepare(wire::Frame& frame, const MacAddress& destination) {
    wire::Path path;
    path.source = path.destination = Gid::from_ipv4(0x0a00'0001);
    path.destination_mac = destination;
    wire::start_roce(frame, wire::make_lower_template(path), *wire::find_opcode(0x0a));
    frame.add_segment({SpaceId{1}, 4096, 0x1000});
    wire::finish_roce(frame);
}

void hop(benchmark::State& state, const MacAddress& destination) {
    const int vports = static_cast<int>(state.range(0));
    EswitchDomain domain = domain_of(vports);
    wire::Frame frame;
    prepare(frame, destination);
    for (auto _ : state) {
        OutputList out;
        domain.process(VportId{1}, frame, out);
        benchmark::DoNotOptimize(out.back());
    }
}

void unicast_hop(benchmark::State& state) { hop(state, mac_of(2)); }
BENCHMARK(unicast_hop)->ArgName("vports")->Arg(4)->Arg(64);

void unknown_unicast_to_the_wire(benchmark::State& state) { hop(state, {{2, 0, 0, 0, 9, 9}}); }
BENCHMARK(unknown_unicast_to_the_wire)->ArgName("vports")->Arg(4)->Arg(64);

void broadcast(benchmark::State& state) { hop(state, MacAddress::broadcast()); }
BENCHMARK(broadcast)->ArgName("vports")->Arg(4)->Arg(64);

}  // namespace
}  // namespace rdmalab::flow

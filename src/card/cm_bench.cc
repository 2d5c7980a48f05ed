// What a connection costs the card, from resolve to destroy on both sides, beside others that live:
// the cost may not grow with their number. The requests of the clients are counted in, the sockets
// and pipes that carry them are not.
#include <benchmark/benchmark.h>

#include <cstdint>

#include "card/cm_testing.h"

namespace rdmalab::card {
namespace {

using testing::CmClient;
using testing::CmWorld;

constexpr std::uint16_t kPort = 7'471;

void connect_and_disconnect(benchmark::State& state) {
    CmWorld world;
    CmClient client = world.client(), server = world.client();
    server.listen("0.0.0.0", kPort);
    std::uint32_t qpn = 1;
    for (std::int64_t i = 0; i < state.range(0); ++i)
        world.establish(client, server, "10.0.0.2", kPort, qpn++);
    for (auto _ : state) {
        const auto ids = world.establish(client, server, "10.0.0.2", kPort, qpn++);
        client.disconnect(ids.active);
        world.run_for(milliseconds(1));
        client.next();
        server.next();
        client.destroy(ids.active, 4);
        server.destroy(ids.passive, 2);
    }
    state.SetItemsProcessed(state.iterations());
}
BENCHMARK(connect_and_disconnect)->RangeMultiplier(10)->Range(10, 10'000);

}  // namespace
}  // namespace rdmalab::card

// Many connections, and random ones over a bad link.
#include "transport/cm.h"
#include "transport/cm_fixture.h"

namespace rdmalab::transport {
namespace {

using testing::CmPair;
using testing::CmTest;
using testing::names;

TEST_F(CmTest, five_thousand_connects_and_disconnects_leave_nothing) {
    for (std::uint32_t i = 0; i < 5'000; ++i) {
        const auto ids = pair.establish(Qpn{100 + i}, Qpn{100'000 + i});
        pair.client().disconnect(ids.client, pair.now());
        pair.run_for(milliseconds(1));
        ASSERT_EQ(names(pair.client_events()).front(), "Disconnected");
        pair.client().release(ids.client, pair.now());
        pair.server().release(ids.server, pair.now());
    }
    expect_nothing_left();
}

// Both sides do random things while the link loses and repeats; then the link is made good and the
// owners leave: everything must come to an end, and no side may wait for ever.
class CmSoak : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(CmSoak, everything_ends_whatever_is_lost) {
    SCOPED_TRACE("--gtest_filter=*CmSoak* seed " + std::to_string(GetParam()));
    CmPair pair(GetParam(), {0.2, 0.2, microseconds(5), milliseconds(300)});
    pair.listen();
    Prng prng(GetParam());
    std::vector<CmConnId> clients, servers;
    for (int step = 0; step < 2'000; ++step) {
        const Qpn qpn{static_cast<std::uint32_t>(1 + prng.below(50))};
        auto& side = prng.chance(0.5) ? clients : servers;
        Cm& cm = &side == &clients ? pair.client() : pair.server();
        const CmConnId id = side.empty() ? CmConnId{} : side[prng.below(side.size())];
        switch (prng.below(8)) {
            case 0:
                clients.push_back(
                    pair.client().connect(pair.connect_request(qpn), pair.now()).value());
                break;
            case 1:
                cm.accept(id, {}, pair.now());
                break;
            case 2:
                cm.establish(id, pair.now());
                break;
            case 3:
                cm.disconnect(id, pair.now());
                break;
            case 4:
                if (prng.chance(0.3)) cm.reject(id, {}, pair.now());
                break;
            case 5:
                if (prng.chance(0.3)) cm.release(id, pair.now());
                break;
            case 6:
                cm.notify_established(id, pair.now());
                break;
            case 7:
                pair.run_for(milliseconds(static_cast<std::int64_t>(prng.below(400))));
                break;
        }
        for (const CmEvent& event : pair.server_events())
            if (event.kind == CmEventKind::kRequest) servers.push_back(event.connection);
    }
    pair.link() = {};
    for (const CmConnId id : clients) pair.client().release(id, pair.now());
    for (int round = 0; round < 3; ++round) {
        pair.settle();
        for (const CmEvent& event : pair.server_events())
            if (event.kind == CmEventKind::kRequest) servers.push_back(event.connection);
    }
    for (const CmConnId id : servers) {
        const auto state = pair.server().state(id);
        if (!state) continue;
        // The peers are gone: whoever was past the request has been told.
        EXPECT_TRUE(*state == CmState::kIdle || *state == CmState::kReqReceived ||
                    *state == CmState::kMraReqSent)
            << to_string(*state);
        pair.server().release(id, pair.now());
    }
    pair.settle();
    EXPECT_EQ(pair.client().counts(), (Cm::Counts{0, 0, 0, 0}));
    EXPECT_EQ(pair.server().counts(), (Cm::Counts{0, 0, 0, 2}));
}

INSTANTIATE_TEST_SUITE_P(Seeds, CmSoak, ::testing::Range<std::uint64_t>(1, 9));

}  // namespace
}  // namespace rdmalab::transport

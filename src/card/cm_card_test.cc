// Connections through a whole card: e-switches, taps and a cable that loses, repeats and corrupts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "card/cm_testing.h"
#include "wire/print.h"

namespace rdmalab::card {
namespace {

using abi::CmEventType;
using testing::CmClient;

constexpr std::uint16_t kPort = 7'471;

// A host whose event channels are queues, too.
class CmCardHost final : public HostPort {
public:
    Result<MappedRegion> allocate_region(OwnerId owner, std::uint64_t length) override {
        return base.allocate_region(owner, length);
    }
    void free_region(OwnerId owner, const MappedRegion& region) override {
        base.free_region(owner, region);
    }
    void notify_channel(OwnerId owner, std::uint32_t channel,
                        const abi::CompletionEvent& event) override {
        base.notify_channel(owner, channel, event);
    }
    void notify_async(OwnerId owner, const abi::AsyncEventRecord& event) override {
        base.notify_async(owner, event);
    }
    void wake(std::atomic<std::uint32_t>& word) override { base.wake(word); }
    void captured(TapPoint point, const wire::Frame& frame, bool inbound) override {
        base.captured(point, frame, inbound);
    }
    void notify_cm(CmSessionId session, std::uint32_t channel,
                   const abi::CmEventRecord& record) override {
        cm.notify_cm(session, channel, record);
    }
    std::vector<abi::CmEventRecord> withdraw_cm(CmSessionId session, std::uint32_t channel,
                                                std::uint32_t id) override {
        return cm.withdraw_cm(session, channel, id);
    }

    testing::FakeHost base;
    testing::FakeCmHost cm;
};

class CmCard {
public:
    explicit CmCard(const CardConfig& config = testing::loopback_config())
        : card(config, host, memory) {}

    CmClient client(std::uint64_t visible = ~std::uint64_t{0}) {
        const auto door = [this, visible](CmSessionId session, abi::CmOp op, ByteView body) {
            return op == abi::CmOp::kOpen ? card.open_cm_session(session, visible, body)
                                          : card.handle_cm_request(session, op, body, now);
        };
        return CmClient(door, host.cm, next_session_++);
    }
    void run_for(Duration time) {
        const Instant end = now + time;
        while (true) {
            while (card.poll(now)) {
            }
            if (card.next_deadline() > end) break;
            now = std::max(now, card.next_deadline());
        }
        now = end;
    }

    CmCardHost host;
    testing::DirectMemory memory;
    Card card;
    Instant now{seconds(1).ns};

private:
    std::uint32_t next_session_ = 1;
};

CardConfig with_cable(const Impairments& impairments) {
    CardConfig config = testing::loopback_config();
    config.cables[0].a_to_b = config.cables[0].b_to_a = impairments;
    return config;
}

// From mlx5_3 to mlx5_2, over the cable. False: some event did not come.
bool connect_over_cable(CmCard& world, CmClient& client, CmClient& server, std::uint32_t qpn,
                        Duration patience, std::uint32_t& active, std::uint32_t& passive) {
    active = client.create_id();
    if (client.resolve(active, "10.0.0.1", kPort, "10.0.0.2") != 0) return false;
    if (client.connect(active, qpn) != 0) return false;
    world.run_for(patience);
    const abi::CmEventRecord request = server.next();
    if (request.type != CmEventType::kConnectRequest) return false;
    passive = request.new_id;
    server.adopt(passive);
    server.accept(passive, qpn + 1'000);
    world.run_for(patience);
    if (client.next().type != CmEventType::kConnectResponse) return false;
    client.establish(active);
    world.run_for(patience);
    return server.next().type == CmEventType::kEstablished;
}

TEST(CmCard, a_connection_crosses_the_cable) {
    CmCard world;
    CmClient client = world.client(), server = world.client();
    ASSERT_NE(server.listen("10.0.0.1", kPort), 0u);
    world.card.set_tap(*world.card.find_tap("p0"), true);
    std::uint32_t active = 0, passive = 0;
    ASSERT_TRUE(connect_over_cable(world, client, server, 1, microseconds(1), active, passive));
    EXPECT_EQ(server.info(passive).device, 2u);
    EXPECT_EQ(client.info(active).device, 3u);
    ASSERT_EQ(world.host.base.captures.size(), 3u) << "REQ, REP, RTU";
    for (const auto& capture : world.host.base.captures)
        EXPECT_NE(wire::print(capture.frame).find("UD SEND Only"), std::string::npos);
    EXPECT_EQ(world.card.cm_counters(3).tx_mads, 2u);
    EXPECT_EQ(world.card.cm_counters(2).rx_mads, 2u);
    EXPECT_EQ(world.card.engine(2).counters().rx_unknown_qp, 0u);
}

TEST(CmCard, computed_crcs_are_checked_and_right) {
    CardConfig config = testing::loopback_config();
    config.force_computed_icrc = true;
    CmCard world(config);
    CmClient client = world.client(), server = world.client();
    server.listen("10.0.0.1", kPort);
    std::uint32_t active = 0, passive = 0;
    EXPECT_TRUE(connect_over_cable(world, client, server, 1, milliseconds(1), active, passive));
}

TEST(CmCard, a_bad_cable_is_made_good) {
    Impairments bad;
    bad.loss = 0.1;
    bad.duplicate = 0.1;
    bad.corrupt = 0.1;
    bad.delay = milliseconds(1);
    CmCard world(with_cable(bad));
    CmClient client = world.client(), server = world.client();
    server.listen("10.0.0.1", kPort);
    for (std::uint32_t i = 1; i <= 50; ++i) {
        std::uint32_t active = 0, passive = 0;
        ASSERT_TRUE(connect_over_cable(world, client, server, i, seconds(60), active, passive));
        ASSERT_EQ(client.disconnect(active), 0);
        world.run_for(seconds(60));
        EXPECT_EQ(client.next().type, CmEventType::kDisconnected);
        EXPECT_EQ(client.next().type, CmEventType::kTimewaitExit);
        EXPECT_EQ(server.next().type, CmEventType::kDisconnected);
        EXPECT_EQ(server.next().type, CmEventType::kTimewaitExit);
        client.destroy(active);
        server.destroy(passive);
    }
    EXPECT_GT(world.card.engine(2).counters().rx_icrc_errors, 0u);
    EXPECT_GT(world.card.cm_counters(3).retransmitted, 0u);
    EXPECT_EQ(world.card.cm_counters(2).malformed, 0u);
}

TEST(CmCard, a_header_rewritten_on_the_way_is_dropped) {
    CmCard world;
    CmClient client = world.client(), server = world.client();
    server.listen("10.0.0.1", kPort);
    world.card.set_tap(*world.card.find_tap("p0"), true);
    world.host.base.on_capture = [](TapPoint, wire::Frame& frame, bool) {
        frame.keep_emitted_header();
        wire::header_at<wire::Bth>(frame, frame.bth_offset)->psn = 99;
    };
    const std::uint32_t active = client.create_id();
    ASSERT_EQ(client.resolve(active, "10.0.0.1", kPort, "10.0.0.2"), 0);
    ASSERT_EQ(client.connect(active), 0);
    world.run_for(milliseconds(1));
    EXPECT_EQ(server.pending(), 0u);
    EXPECT_EQ(world.card.engine(2).counters().rx_icrc_errors, 1u);
}

TEST(CmCard, a_dead_process_disconnects_its_peers_in_time) {
    CmCard world;
    CmClient client = world.client(), server = world.client();
    server.listen("10.0.0.1", kPort);
    std::uint32_t active = 0, passive = 0;
    ASSERT_TRUE(connect_over_cable(world, client, server, 1, microseconds(1), active, passive));
    world.card.close_cm_session(client.session(), world.now);
    EXPECT_TRUE(world.card.doorbell_pending()) << "there is a DREQ to send";
    world.run_for(microseconds(1));
    EXPECT_EQ(server.next().type, CmEventType::kDisconnected);
}

}  // namespace
}  // namespace rdmalab::card

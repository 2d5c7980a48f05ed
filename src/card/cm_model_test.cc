// Two clients do all that clients can do, in any order and on any id they have heard of, while
// frames get lost: every operation must get through at times, and nothing may be left when they are
// gone.
#include <gtest/gtest.h>

#include <map>

#include "base/prng.h"
#include "card/cm_testing.h"

namespace rdmalab::card {
namespace {

using abi::CmOp;
using testing::cm_address;
using testing::CmClient;
using testing::CmWorld;

class Model {
public:
    explicit Model(std::uint64_t seed) : prng_(seed) {
        world_.drop = [this](const wire::Frame&) { return prng_.chance(0.1); };
    }

    void step() {
        CmClient& client = prng_.chance(0.5) ? a_ : b_;
        act(client, kOps[prng_.below(std::size(kOps))]);
        for (abi::CmEventRecord record = client.next(); record.type != kNothing;
             record = client.next())
            if (record.type == abi::CmEventType::kConnectRequest) ids_.push_back(record.new_id);
        forget_oldest();
        if (prng_.chance(0.3)) world_.run_for(milliseconds(1));
        if (prng_.chance(0.01)) world_.run_for(seconds(1));
    }

    CmService::Counts end() {
        world_.service.close_session(a_.session(), world_.now);
        world_.service.close_session(b_.session(), world_.now);
        world_.run_for(seconds(600));
        return world_.service.counts();
    }

    const std::map<CmOp, std::size_t>& successes() const { return successes_; }

private:
    static constexpr auto kNothing = abi::CmEventType::kDeviceRemoval;
    // What moves a connection on comes more often than what ends it.
    static constexpr CmOp kOps[] = {
        CmOp::kCreateId,    CmOp::kBind,          CmOp::kListen,         CmOp::kResolveAddr,
        CmOp::kResolveAddr, CmOp::kResolveRoute,  CmOp::kResolveRoute,   CmOp::kConnect,
        CmOp::kConnect,     CmOp::kAdopt,         CmOp::kAdopt,          CmOp::kAccept,
        CmOp::kAccept,      CmOp::kEstablish,     CmOp::kEstablish,      CmOp::kDisconnect,
        CmOp::kReject,      CmOp::kNotify,        CmOp::kInitQpAttr,     CmOp::kJoinMcast,
        CmOp::kLeaveMcast,  CmOp::kMigrateId,     CmOp::kSetOption,      CmOp::kQuery,
        CmOp::kDestroyId,   CmOp::kCreateChannel, CmOp::kDestroyChannel, CmOp::kResolveRoute,
        CmOp::kConnect,     CmOp::kAccept,        CmOp::kEstablish};

    // So that ports come free and something new can happen.
    void forget_oldest() {
        if (ids_.size() < 16) return;
        a_.destroy(ids_.front());
        b_.destroy(ids_.front());
        ids_.erase(ids_.begin());
    }

    std::uint32_t id() {
        if (ids_.empty() || prng_.chance(0.02)) return static_cast<std::uint32_t>(prng_.next());
        // Those of late are the interesting ones.
        const std::uint64_t back = prng_.below(std::min<std::size_t>(ids_.size(), 8));
        return ids_[ids_.size() - 1 - back];
    }
    std::uint32_t channel(const CmClient& client) {
        return prng_.chance(0.9) ? client.channel() : static_cast<std::uint32_t>(prng_.below(6));
    }
    abi::CmAddress address() {
        static constexpr const char* kTexts[] = {"10.0.0.1", "10.0.0.1", "10.0.0.2", "127.0.0.1",
                                                 "0.0.0.0",  "::",       "10.9.9.9"};
        return cm_address(kTexts[prng_.below(std::size(kTexts))],
                          static_cast<std::uint16_t>(prng_.below(3)));
    }

    template <class Request>
    void send(CmClient& client, CmOp op, const Request& request) {
        const ControlReply reply = client.send(op, request);
        if (reply.status != 0) return;
        ++successes_[op];
        if (op == CmOp::kCreateId)
            ids_.push_back(load_bytes<abi::HandleReply>(reply.body.data()).handle);
    }

    void act(CmClient& client, CmOp op) {
        switch (op) {
            case CmOp::kCreateId: {
                const bool ud = prng_.chance(0.2);
                return send(client, op,
                            abi::CmCreateIdRequest{prng_.next(), channel(client),
                                                   ud ? abi::kPortSpaceUdp : abi::kPortSpaceTcp,
                                                   static_cast<std::uint8_t>(ud ? 4 : 2), 0});
            }
            case CmOp::kDestroyId:
                return send(
                    client, op,
                    abi::CmDestroyIdRequest{id(), static_cast<std::uint32_t>(prng_.below(8))});
            case CmOp::kAdopt:
                return send(client, op, abi::CmAdoptRequest{prng_.next(), id(), channel(client)});
            case CmOp::kBind:
                return send(client, op, abi::CmBindRequest{id(), 0, address()});
            case CmOp::kResolveAddr:
                return send(client, op, abi::CmResolveAddrRequest{id(), 1, {}, address()});
            case CmOp::kResolveRoute:
                return send(client, op, abi::CmResolveRouteRequest{id(), 1});
            case CmOp::kListen:
                return listen(client);
            case CmOp::kConnect:
            case CmOp::kAccept:
                return connect(client, op);
            case CmOp::kReject:
                return send(client, op, abi::CmRejectRequest{id(), abi::kCmRejectConsumer, 0, {}});
            case CmOp::kNotify:
                return send(client, op, abi::CmNotifyRequest{id(), 4});
            case CmOp::kInitQpAttr:
                return send(
                    client, op,
                    abi::CmInitQpAttrRequest{id(), static_cast<std::uint32_t>(1 + prng_.below(3))});
            case CmOp::kJoinMcast:
                return send(
                    client, op,
                    abi::CmJoinMcastRequest{prng_.next(), id(), 0, cm_address("239.0.0.1")});
            case CmOp::kLeaveMcast:
                return send(client, op, abi::CmLeaveMcastRequest{id(), 1, 0, 0});
            case CmOp::kMigrateId:
                return send(client, op, abi::CmMigrateRequest{id(), channel(client)});
            case CmOp::kSetOption:
                return send(client, op, abi::CmSetOptionRequest{id(), 0, 0, 1, 0x20});
            case CmOp::kCreateChannel:
                client.create_channel();
                return;
            case CmOp::kDestroyChannel:
                return send(client, op,
                            abi::HandleRequest{static_cast<std::uint32_t>(2 + prng_.below(9))});
            default:
                return send(client, op, abi::HandleRequest{id()});
        }
    }

    // Mostly where somebody may come.
    void listen(CmClient& client) {
        const std::uint32_t listener = id();
        if (prng_.chance(0.8)) client.bind(listener, "0.0.0.0", 1);
        send(client, CmOp::kListen, abi::CmListenRequest{listener, 4});
    }

    void connect(CmClient& client, CmOp op) {
        abi::CmConnectRequest request{};
        request.id = id();
        request.conn.qp_num = static_cast<std::uint32_t>(1 + prng_.below(30));
        request.private_data.length = static_cast<std::uint32_t>(prng_.below(60));
        send(client, op, request);
    }

    Prng prng_;
    CmWorld world_;
    CmClient a_ = world_.client(), b_ = world_.client();
    std::vector<std::uint32_t> ids_;
    std::map<CmOp, std::size_t> successes_;
};

class CmModelTest : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(CmModelTest, clients_that_do_anything_leave_nothing) {
    Model model(GetParam());
    for (int i = 0; i < 400'000; ++i) model.step();
    EXPECT_EQ(model.successes().size(), 20u) << "every operation but those on the session";
    EXPECT_EQ(model.end(), (CmService::Counts{0, 0, 0, 0}));
}

INSTANTIATE_TEST_SUITE_P(Seeds, CmModelTest, ::testing::Range<std::uint64_t>(1, 4));

}  // namespace
}  // namespace rdmalab::card

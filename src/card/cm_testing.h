// A connection manager with clients and without a kernel: channels are queues, frames go straight
// to the function with the destination MAC.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "card/cm_service.h"
#include "card/testing.h"

namespace rdmalab::card::testing {

class FakeCmHost final : public CmHostPort {
public:
    void notify_cm(CmSessionId session, std::uint32_t channel,
                   const abi::CmEventRecord& record) override {
        queues[{session.value, channel}].push_back(record);
    }
    std::vector<abi::CmEventRecord> withdraw_cm(CmSessionId session, std::uint32_t channel,
                                                std::uint32_t id) override;

    std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<abi::CmEventRecord>> queues;
    std::size_t withdrawals = 0;
};

abi::CmAddress cm_address(const std::string& text, std::uint16_t port = 0);

// The client library of one process, as far as a test needs one.
class CmClient {
public:
    // How requests reach the connection manager; kOpen is the first.
    using Door = std::function<ControlReply(CmSessionId, abi::CmOp, ByteView)>;
    CmClient(Door door, FakeCmHost& host, std::uint32_t session);

    // The status of a request; `reply` is filled when it succeeded.
    template <class Request, class Reply>
    int call(abi::CmOp op, const Request& request, Reply& reply) {
        const ControlReply answer = send(op, request);
        if (answer.status == 0 && answer.body.size() == sizeof reply)
            std::memcpy(static_cast<void*>(&reply), answer.body.data(), sizeof reply);
        return answer.status;
    }
    template <class Request>
    int call(abi::CmOp op, const Request& request) {
        return send(op, request).status;
    }
    template <class Request>
    ControlReply send(abi::CmOp op, const Request& request) {
        return door_(session_, op, {reinterpret_cast<const std::byte*>(&request), sizeof request});
    }

    std::uint32_t create_channel();
    std::uint32_t create_id(std::uint16_t port_space = abi::kPortSpaceTcp, std::uint8_t type = 2);
    int bind(std::uint32_t id, const std::string& address, std::uint16_t port);
    // An id that listens; 0 if that failed.
    std::uint32_t listen(const std::string& address, std::uint16_t port, std::int32_t backlog = 0,
                         std::uint16_t port_space = abi::kPortSpaceTcp, std::uint8_t type = 2);
    // Resolves address and route, takes the two events.
    int resolve(std::uint32_t id, const std::string& destination, std::uint16_t port,
                const std::string& source = {});
    int connect(std::uint32_t id, std::uint32_t qpn = 0x11);
    int accept(std::uint32_t id, std::uint32_t qpn = 0x22);
    int adopt(std::uint32_t id, std::uint32_t channel = 0);
    int establish(std::uint32_t id) { return handle(abi::CmOp::kEstablish, id); }
    int disconnect(std::uint32_t id) { return handle(abi::CmOp::kDisconnect, id); }
    int destroy(std::uint32_t id, std::uint32_t events_read = UINT32_MAX);
    int handle(abi::CmOp op, std::uint32_t id) { return call(op, abi::HandleRequest{id}); }
    abi::CmIdInfo info(std::uint32_t id);

    // The next record of the default channel (or another); type kDeviceRemoval when there is none.
    abi::CmEventRecord next(std::uint32_t channel = 0);
    std::size_t pending(std::uint32_t channel = 0);

    CmSessionId session() const { return session_; }
    std::uint32_t channel() const { return channel_; }
    DeviceSet visible() const { return visible_; }

private:
    Door door_;
    FakeCmHost& host_;
    CmSessionId session_;
    std::uint32_t channel_ = 0;
    std::uint64_t next_cookie_ = 1'000;
    DeviceSet visible_ = 0;
};

// loopback_config() with a service, clients "a" and "b", and the time.
class CmWorld {
public:
    explicit CmWorld(CardConfig config = loopback_config());

    void run_for(Duration time);
    CmClient client(DeviceSet visible = ~DeviceSet{0});

    struct Connected {
        std::uint32_t active, passive;
    };
    // From an id of `a` to a listener of `b` on that address and port; all events are taken.
    Connected establish(CmClient& a, CmClient& b, const std::string& address, std::uint16_t port,
                        std::uint32_t qpn = 0x11);

    CardConfig config;
    FakeCmHost host;
    CmService service;
    Instant now{seconds(1).ns};
    // True: the frame is lost.
    std::function<bool(const wire::Frame&)> drop;

private:
    bool move_frames();
    std::uint32_t next_session_ = 1;
};

}  // namespace rdmalab::card::testing

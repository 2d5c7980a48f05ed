// A connection manager for tests of this room: speaks the control protocol, keeps ids and channels,
// and does otherwise as the test says. Resolving succeeds by itself; what a peer would do is raised
// by the test.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "card/cm_abi.h"
#include "verbs/fake_card.h"
#include "verbs/rdmacm/api.h"

namespace rdmalab::rdmacm::testing {

class FakeCm {
public:
    FakeCm();  // sets $RDMALAB_SOCKET
    ~FakeCm();
    FakeCm(const FakeCm&) = delete;
    FakeCm& operator=(const FakeCm&) = delete;

    void refuse(abi::CmOp op, int status, const std::string& text = "");
    void die();  // as after kill -9
    std::uint32_t requests(abi::CmOp op);
    std::uint32_t sessions();
    // The last request of this kind.
    template <class Request>
    Request last(abi::CmOp op) {
        std::lock_guard guard(mutex_);
        Request out{};
        const std::vector<std::byte>& bytes = last_[op];
        if (bytes.size() >= sizeof out) memcpy(static_cast<void*>(&out), bytes.data(), sizeof out);
        return out;
    }

    // An event of `id`; cookie and addresses are filled in.
    void raise(std::uint32_t id, abi::CmEventType type, int status = 0,
               const std::function<void(abi::CmEventRecord&)>& fill = nullptr);
    // A request for the listener; returns the handle of the new id.
    std::uint32_t raise_request(std::uint32_t listener, abi::CmEventRecord record = {});

private:
    struct Channel {
        int reader = -1, writer = -1;
    };
    struct Id {
        std::uint64_t cookie = 0;
        std::uint32_t channel = 0, sent = 0;
        abi::CmIdInfo info{};
    };
    struct Reply {
        int status = 0;
        std::vector<std::byte> body;
        int fd = -1;
    };
    void accept_clients();
    void serve(int fd);
    Reply answer(abi::CmOp op, ByteView body);
    Reply answer_about_id(abi::CmOp op, ByteView body);
    Reply create_channel();
    Reply take_back(std::uint32_t id, std::uint64_t mc_cookie);
    std::uint32_t& counter(Id& id, std::uint64_t mc_cookie);
    void put(std::uint32_t id, abi::CmEventRecord record);
    void bind(Id& id, const abi::CmAddress& address);

    std::string path_;
    int listener_ = -1;
    std::mutex mutex_;
    std::thread accepting_;
    std::vector<std::thread> serving_;
    std::vector<int> connections_;
    std::uint32_t next_handle_ = 1, session_count_ = 0;
    std::map<std::uint32_t, Channel> channels_;
    std::map<std::uint32_t, Id> ids_;
    struct Join {
        std::uint64_t cookie = 0;
        std::uint32_t sent = 0;
    };
    std::map<std::uint32_t, Join> joins_;
    std::map<abi::CmOp, std::uint32_t> counts_;
    std::map<abi::CmOp, std::vector<std::byte>> last_;
    std::map<abi::CmOp, std::pair<int, std::string>> refusals_;
};

// A session with the fake above, a channel in it, and a fake card behind libibverbs.
class RdmaCmTest : public ::testing::Test {
protected:
    void SetUp() override;
    void TearDown() override;

    rdma_cm_id* make_id(rdma_port_space space = RDMA_PS_TCP, rdma_event_channel* channel = nullptr);
    rdma_cm_id* make_resolved_id(rdma_port_space space = RDMA_PS_TCP);
    static void make_qp(rdma_cm_id* id, ibv_qp_type type = IBV_QPT_RC);
    static std::uint32_t handle_of(rdma_cm_id* id);
    // The next event, which must be of this type; acknowledged, so only its plain fields hold.
    rdma_cm_event expect(rdma_cm_event_type type);
    rdma_cm_event* next_event();
    std::uint32_t state_of(ibv_qp* qp);
    abi::QpAttributes attributes_of(ibv_qp* qp);

    verbs::testing::FakeCard card_;
    FakeCm cm_;
    rdma_event_channel* channel_ = nullptr;
};

sockaddr_storage address(const char* text, std::uint16_t port);
inline sockaddr* as_sockaddr(sockaddr_storage& storage) {
    return reinterpret_cast<sockaddr*>(&storage);
}

}  // namespace rdmalab::rdmacm::testing

// A client of a card for tests: it builds ring entries as the drop-in library does.
#pragma once

#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "card/testing.h"

namespace rdmalab::card::testing {

// A card with its surroundings and a clock that the test moves.
class TestCard {
public:
    explicit TestCard(const CardConfig& config = loopback_config()) : card(config, host, memory) {}

    // Polls until there is nothing to do at once.
    void settle();
    // Polls and lets time jump from deadline to deadline, for `duration` at most.
    void run_for(Duration duration);

    FakeHost host;
    DirectMemory memory;
    Card card;
    Instant now{1'000'000};
};

struct TestCq {
    abi::CreateCqReply info{};
    abi::CqHeader* header = nullptr;
    abi::Cqe* entries = nullptr;
    std::uint32_t consumer = 0;
};

struct TestQueue {
    std::byte* base = nullptr;
    std::uint32_t capacity = 0, stride = 0, producer = 0;
    abi::QueueHeader* header() const { return reinterpret_cast<abi::QueueHeader*>(base); }
};

// An RQ or SRQ, with the SGEs of each entry (the card may leave a message in the small area).
struct TestRecvQueue : TestQueue {
    std::deque<std::uint32_t> free_entries;
    std::byte* entry(std::uint32_t index) const;
};

struct TestSrq : TestRecvQueue {
    abi::CreateSrqReply info{};
};

struct TestQp {
    abi::CreateQpReply info{};
    std::uint32_t type = 2;
    TestQueue send;
    TestRecvQueue recv;
    TestSrq* srq = nullptr;
};

// A copy of the fields of a CQE.
struct TestWc {
    std::uint64_t wr_id;
    std::uint32_t qpn, byte_length, immediate, ring_index, source_qpn;
    std::uint16_t flags;
    transport::WcStatus status;
    abi::CqeOpcode opcode;
};

struct QpOptions {
    std::uint32_t type = 2;  // IBV_QPT_RC
    std::uint32_t send_wr_max = 16, recv_wr_max = 16, send_sge_max = 2, recv_sge_max = 2,
                  inline_max = 64;
    TestSrq* srq = nullptr;
    bool signal_all = false;
};

struct SendOptions {
    std::uint64_t wr_id = 0;
    abi::SendOpcode opcode = abi::SendOpcode::kSend;
    std::uint8_t flags = abi::kSendSignaled;
    std::vector<abi::Sge> sges{};
    std::uint32_t immediate = 0;
    std::uint64_t remote_address = 0;
    std::uint32_t rkey = 0;
    std::uint64_t compare_add = 0, swap = 0;
    std::string payload{};  // with kSendInline or kSendSmall
    std::uint32_t ah = 0, remote_qpn = 0, remote_qkey = 0;
};

class TestClient {
public:
    TestClient(TestCard& setting, std::uint32_t device);

    // The status of a call; the reply body goes to `last_body`.
    template <class Request>
    int call(abi::Op op, const Request& request) {
        return call_bytes(op, {reinterpret_cast<const std::byte*>(&request), sizeof request});
    }
    int call_bytes(abi::Op op, ByteView body);
    template <class Reply>
    Reply reply_as() const {
        return last_body.size() == sizeof(Reply) ? load_bytes<Reply>(last_body.data()) : Reply{};
    }

    std::uint32_t alloc_pd();
    abi::RegMrReply reg_mr(ByteSpan memory, std::uint32_t access = 15);
    std::uint32_t create_channel();
    TestCq create_cq(std::uint32_t entries, std::uint32_t channel = abi::kNoChannel);
    bool resize_cq(TestCq& cq, std::uint32_t entries);
    TestSrq create_srq(std::uint32_t wr_max, std::uint32_t sge_max = 2,
                       std::uint32_t xrcd = abi::kNoXrcd, std::uint32_t xrc_cq = 0);
    TestQp create_qp(const TestCq& cq, const QpOptions& options = {});
    // INIT, RTR, RTS towards a QP of `peer`; returns the first errno value that is not 0.
    int connect(const TestQp& qp, const TestClient& peer, const TestQp& peer_qp,
                std::uint8_t timeout = 14);
    int to_state(const TestQp& qp, std::uint32_t state);
    Gid gid(std::uint32_t index) const;
    std::uint32_t gid_index() const;  // the IP address when the device has one

    void post_send(TestQp& qp, const SendOptions& options);
    void post_recv(TestRecvQueue& queue, std::uint64_t wr_id, const std::vector<abi::Sge>& sges);
    void ring(const TestQp& qp) const { ring_slot(qp.info.slot); }
    void ring_slot(std::uint32_t slot) const;
    // The next CQE; `queue` gives the small areas and gets its entry back.
    std::optional<TestWc> poll(TestCq& cq, TestRecvQueue* queue = nullptr);

    OwnerId owner;
    SpaceId space;
    std::uint32_t device;
    std::uint32_t pd = 0;
    abi::DoorbellArea* doorbells = nullptr;
    std::vector<std::byte> last_body;
    // Pointer minus address in SGEs, of memory that is registered under another address.
    std::uint64_t iova_distance = 0;

private:
    void scatter_small(const abi::Cqe& cqe, const TestRecvQueue& queue) const;

    TestCard& setting_;
};

inline abi::Sge sge(ByteView memory, std::uint32_t lkey) {
    return {reinterpret_cast<std::uintptr_t>(memory.data()),
            static_cast<std::uint32_t>(memory.size()), lkey};
}
inline ByteSpan bytes_of(std::string& text) {
    return {reinterpret_cast<std::byte*>(text.data()), text.size()};
}
inline std::uint64_t address_of(const std::string& text) {
    return reinterpret_cast<std::uintptr_t>(text.data());
}

}  // namespace rdmalab::card::testing

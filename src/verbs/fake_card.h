// A card for tests of this room: speaks the control protocol and owns the rings, but carries out
// nothing. The test plays the card's part by hand: it looks at what was posted and pushes
// completions and events.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "card/ring_abi.h"

namespace rdmalab::verbs::testing {

// What the test pushes: abi::Cqe without the field that makes it valid.
struct Completion {
    std::uint64_t wr_id = 0, timestamp_ns = 0;
    std::uint32_t qpn = 0;
    std::uint32_t srq = 0;  // with kCqeSrq
    std::uint32_t ring_index = 0, byte_length = 0, immediate = 0, source_qpn = 0;
    unsigned flags = 0;
    abi::CqeOpcode opcode = abi::CqeOpcode::kSend;
    std::uint8_t status = 0;
};

// One opened device, as the card sees it. Regions are mapped whole.
class FakeContext {
public:
    static constexpr std::size_t kMemoryBytes = 64 << 20;
    FakeContext();
    ~FakeContext();

    abi::Region allocate(std::size_t length);
    std::byte* at(const abi::Region& region) const { return memory_ + region.offset; }

    int memory_fd = -1, async_read_fd = -1, async_write_fd = -1;
    std::uint32_t next_handle = 1;
    abi::Region doorbells{};
    std::map<std::uint32_t, abi::CreateCqReply> cqs;
    std::map<std::uint32_t, std::uint32_t> cq_producers;
    std::map<std::uint32_t, std::uint32_t> cq_channels;
    std::map<std::uint32_t, abi::CreateQpReply> qps;
    std::map<std::uint32_t, abi::QpAttributes> qp_attributes;
    std::map<std::uint32_t, abi::CreateSrqReply> srqs;
    std::map<std::uint32_t, int> channels;  // writing ends
    std::map<std::uint32_t, abi::RegMrRequest> mrs;

private:
    std::byte* memory_ = nullptr;
    std::size_t used_ = 0;
};

class FakeCard {
public:
    FakeCard();  // sets $RDMALAB_SOCKET
    ~FakeCard();

    const std::string& path() const { return path_; }
    // The next request of this kind is refused.
    void refuse(abi::Op op, int status, const std::string& text = "");
    // As after kill -9 of the card.
    void die();
    std::uint32_t requests(abi::Op op);

    // The context that was opened last.
    FakeContext& context() { return *contexts_.back(); }

    // --- What the client has posted
    std::uint32_t send_producer(std::uint32_t qpn);
    abi::SendEntry& send_entry(std::uint32_t qpn, std::uint32_t index);
    std::uint32_t recv_producer(std::uint32_t qpn);
    abi::RecvEntry& recv_entry(std::uint32_t qpn, std::uint32_t index);
    std::byte* recv_small_area(std::uint32_t qpn, std::uint32_t table_index);
    std::uint32_t srq_producer(std::uint32_t srq);
    std::uint32_t srq_table_index(std::uint32_t srq, std::uint32_t index);
    std::byte* srq_small_area(std::uint32_t srq, std::uint32_t table_index);
    bool doorbell(std::uint32_t qpn);  // was it rung since the last look
    void set_sleeping(bool sleeping);
    bool bell_rang();

    // --- What the card answers
    void push(std::uint32_t cq, const Completion& completion);
    void notify(std::uint32_t channel, const abi::CompletionEvent& event);
    void raise(const abi::AsyncEventRecord& event);
    abi::CqHeader& cq_header(std::uint32_t cq);

private:
    struct Reply {
        int status = 0;
        std::vector<std::byte> body;
        std::vector<int> fds;
        int fd_to_close = -1;
    };
    void accept_clients();
    void serve(int fd);
    Reply answer(std::shared_ptr<FakeContext>& context, abi::Op op, ByteView body, bool is_foreign);
    Reply answer_in_context(FakeContext& context, abi::Op op, ByteView body);
    Reply open_context(std::shared_ptr<FakeContext>& context);
    Reply create_cq(FakeContext& context, const abi::CreateCqRequest& request);
    Reply resize_cq(FakeContext& context, const abi::ResizeCqRequest& request);
    Reply create_qp(FakeContext& context, const abi::CreateQpRequest& request);
    Reply create_srq(FakeContext& context, const abi::CreateSrqRequest& request);
    Reply create_channel(FakeContext& context);

    std::string path_;
    int listener_ = -1, page_fd_ = -1, bell_fd_ = -1;
    abi::CardPage* page_ = nullptr;
    std::mutex mutex_;
    std::thread accepting_;
    std::vector<std::thread> serving_;
    std::vector<int> connections_;
    std::vector<std::shared_ptr<FakeContext>> contexts_;
    std::map<abi::Op, std::pair<int, std::string>> refusals_;
    std::map<abi::Op, std::uint32_t> counts_;
};

}  // namespace rdmalab::verbs::testing

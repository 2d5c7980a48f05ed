// Small RAII wrappers over the public verbs for our test programs. A test program ends at the first
// thing that goes wrong, with one line that says what: `check` and `fail` do that.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace rdmalab::programs {

enum ExitCode { kWrongData = 1, kWrongStatus = 2, kStalled = 3, kUsage = 4, kSetUp = 5 };

[[noreturn]] void fail(ExitCode code, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

// For calls that return a pointer, or 0 on success (an errno value, or -1 with errno set).
template <typename T>
T* check(T* pointer, const char* what) {
    if (pointer == nullptr) fail(kSetUp, "%s: %m", what);
    return pointer;
}
void check(int code, const char* what);

struct Path {
    std::uint8_t gid_index = 1;
    ibv_mtu mtu = IBV_MTU_1024;
    std::uint8_t timeout = 14, retry_count = 7, rnr_retry = 7, min_rnr_timer = 12;
    std::uint8_t traffic_class = 0, hop_limit = 64, reads = 16;
    std::uint32_t flow_label = 0;
};
ibv_mtu mtu_of(unsigned bytes);
unsigned bytes_of(ibv_mtu mtu);

class Device {
public:
    explicit Device(const std::string& name);
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;
    ibv_context* context() const { return context_; }
    ibv_pd* pd() const { return pd_; }
    union ibv_gid gid(std::uint8_t index) const;

private:
    ibv_context* context_;
    ibv_pd* pd_;
};

// Zeroed anonymous pages, registered for everything.
class Memory {
public:
    Memory(const Device& device, std::size_t length);
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    std::byte* data() const { return data_; }
    std::size_t length() const { return length_; }
    std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(data_); }
    std::uint32_t lkey() const { return mr_->lkey; }
    std::uint32_t rkey() const { return mr_->rkey; }
    ibv_sge sge(std::size_t offset, std::uint32_t length) const {
        return {address() + offset, length, lkey()};
    }

private:
    std::size_t length_;
    std::byte* data_;
    ibv_mr* mr_;
};

class CompletionQueue {
public:
    CompletionQueue(const Device& device, int entries);
    ~CompletionQueue();
    CompletionQueue(const CompletionQueue&) = delete;
    CompletionQueue& operator=(const CompletionQueue&) = delete;
    ibv_cq* raw() const { return cq_; }
    // Waits for one completion and demands success; ends the program when none comes in time.
    ibv_wc wait(std::chrono::seconds limit = std::chrono::seconds(60));
    ibv_wc wait_any_status(std::chrono::seconds limit = std::chrono::seconds(60));

private:
    ibv_cq* cq_;
};

// What two ends tell each other; plain bytes, sent over a socket.
struct Endpoint {
    union ibv_gid gid;
    std::uint32_t qpn, psn, rkey, reserved;
    std::uint64_t address;
};

struct QueuePairSize {
    unsigned depth = 64, sges = 1, inline_bytes = 0;
};

class QueuePair {
public:
    QueuePair(const Device& device, const CompletionQueue& cq, ibv_qp_type type, QueuePairSize size,
              std::uint32_t psn, ibv_srq* srq = nullptr);
    ~QueuePair();
    QueuePair(const QueuePair&) = delete;
    QueuePair& operator=(const QueuePair&) = delete;
    ibv_qp* raw() const { return qp_; }
    Endpoint endpoint(const Device& device, const Path& path, const Memory& memory) const;
    // RESET -> INIT -> RTR -> RTS towards `remote`.
    void connect(const Endpoint& remote, const Path& path);
    void post(ibv_send_wr& work);
    void post(ibv_recv_wr& work);

private:
    void to_init();
    void to_rtr(const Endpoint& remote, const Path& path);
    void to_rts(const Path& path);
    ibv_qp* qp_;
    std::uint32_t psn_;
};

inline constexpr std::uint32_t kQkey = 0x11111111;
ibv_ah_attr address_of(const union ibv_gid& remote, const Path& path);

// Blocking exchange of fixed-size records over a socket. A peer that is gone ends the program.
void send_bytes(int socket, const void* data, std::size_t length);
void recv_bytes(int socket, void* data, std::size_t length);
template <typename T>
T swap_records(int socket, const T& mine) {
    T theirs;
    send_bytes(socket, &mine, sizeof mine);
    recv_bytes(socket, &theirs, sizeof theirs);
    return theirs;
}

}  // namespace rdmalab::programs

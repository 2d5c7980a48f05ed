// SOCK_STREAM over an RC connection (stream_protocol.h).
#pragma once

#include <cstdint>
#include <vector>

#include "verbs/rdmacm/rsockets/buffer.h"
#include "verbs/rdmacm/rsockets/socket.h"
#include "verbs/rdmacm/rsockets/stream_protocol.h"

namespace rdmalab::rdmacm {

class StreamSocket : public Socket {
public:
    explicit StreamSocket(int domain) : Socket(domain, SOCK_STREAM) {}
    ~StreamSocket() override;

    int bind(const sockaddr* address) override;
    int listen(int backlog) override;
    Socket* accept(sockaddr* address, socklen_t* length) override;
    int connect(const sockaddr* address) override;
    int shutdown(int how) override;
    void close() override;
    ssize_t send(const iovec* pieces, std::size_t count, int flags, const sockaddr* to) override;
    ssize_t receive(const iovec* pieces, std::size_t count, int flags, sockaddr* from,
                    socklen_t* from_length) override;
    int local_address(sockaddr* address, socklen_t* length) override;
    int peer_address(sockaddr* address, socklen_t* length) override;
    off_t map_io(void* buffer, std::size_t length, int protection, int flags,
                 off_t offset) override;
    int unmap_io(void* buffer, std::size_t length) override;
    ssize_t write_io(const void* buffer, std::size_t count, off_t offset, int flags) override;

protected:
    bool progress() override;
    short ready_now() override;
    bool arm_queues() override;
    void drain_queues() override;
    int apply_option(int level, int name, int value) override;
    int pending_error() override;

private:
    enum class State {
        kNew,
        kListening,
        kResolving,   // address, then route
        kConnecting,  // REQ sent
        kAccepting,   // REP sent
        kConnected,
        kEnded,  // disconnected, or failed: see error_
    };
    // One way of the stream, in bytes and messages since the connection began.
    struct Way {
        std::uint64_t bytes = 0, bytes_granted = 0;
        std::uint64_t messages = 0, messages_granted = 0;
    };
    struct Mapping {
        std::byte* buffer = nullptr;
        std::uint64_t length = 0;
        std::uint64_t offset = 0;
        std::uint32_t slot = 0;  // in the peer's table
        bool is_remote = false;
        ibv_mr* mr = nullptr;
    };

    // --- stream_connect.cc
    int make_id();
    int take_id(rdma_cm_id* id, const rdma_conn_param& request, const Settings& settings);
    int prepare_connection();
    int post_receives();
    bool take_hello(const void* data, std::size_t length);
    stream::Hello own_hello() const;
    rdma_conn_param connection_parameters(const stream::Hello& hello) const;
    bool read_events();
    void on_event(const rdma_cm_event& event);
    int continue_connecting(const rdma_cm_event& event);
    void end(int error);
    int start_connecting(const sockaddr* address);
    Socket* accept_one(const rdma_cm_event& event);
    void flush(Lock& lock);
    void release_connection();

    // --- stream_data.cc
    bool take_completions();
    void take_message(std::uint32_t immediate);
    void take_grant(std::uint32_t value);
    void grant_if_due();
    bool has_slot(std::uint32_t reserved) const;
    std::uint32_t sendable() const;
    int post_write(const void* data, std::uint32_t length, std::uint64_t remote_address,
                   std::uint32_t remote_key, const std::uint32_t* immediate);
    int send_control(stream::Kind kind, std::uint32_t value);
    std::uint32_t send_some(const std::byte* data, std::size_t length);
    ssize_t receive_some(const iovec* pieces, std::size_t count, bool is_peek);
    bool is_readable() const;
    bool is_send_hopeless() const;
    int send_error();
    // --- stream_iomap.cc
    const stream::IomapEntry* find_remote(std::uint64_t offset, std::uint64_t length) const;
    int announce(const Mapping& mapping, std::uint64_t length);
    bool is_offset_taken(std::uint64_t offset, std::uint64_t length) const;
    off_t choose_offset(std::uint64_t length) const;

    State state_ = State::kNew;
    int error_ = 0;  // given by SO_ERROR once
    rdma_event_channel* channel_ = nullptr;
    rdma_cm_id* id_ = nullptr;
    bool is_bound_ = false;

    Buffer receive_ring_, send_ring_, iomap_table_;
    stream::Hello peer_{};
    Way sent_, received_;           // of `received_`, granted: what the peer has been told
    std::uint64_t bytes_read_ = 0;  // by the program
    std::uint64_t send_ring_head_ = 0, send_ring_tail_ = 0;
    std::uint32_t sends_posted_ = 0, sends_max_ = 0;
    bool is_write_shut_ = false, is_read_shut_ = false;
    bool has_peer_shut_ = false;    // no more data from there
    bool has_peer_closed_ = false;  // nor is there anybody to read ours
    std::vector<Mapping> mappings_;
};

}  // namespace rdmalab::rdmacm

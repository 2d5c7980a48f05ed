// What one process holds of a test: protection domain, completion queues, buffers, queue pairs, and
// the steps that join them to those of the peer's process.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "perftest/buffers.h"
#include "perftest/device.h"
#include "perftest/plan.h"

namespace rdmalab::perftest {

// Bytes that a UD receive holds before the payload.
inline constexpr std::uint32_t kGrhBytes = 40;
// In lock-step a peer is at most one iteration ahead, so two messages without data may come at
// once.
inline constexpr std::uint32_t kLockstepReceives = 4;
inline constexpr std::uint32_t kQkey = 0x1111'1111;  // of all UD queue pairs

template <class T, int (*destroy)(T*)>
struct Destroyer {
    void operator()(T* object) const { destroy(object); }
};
template <class T, int (*destroy)(T*)>
using Owned = std::unique_ptr<T, Destroyer<T, destroy>>;

// Where the peer's data goes to, or comes from.
struct RemoteTarget {
    std::uint64_t address = 0;
    std::uint32_t rkey = 0;
};

struct Roles {
    bool requests = false;  // posts operations
    bool responds = false;  // is the target of the peer's
};

// What all endpoints of a process share: the opened device and its protection domain.
struct Adapter {
    // Throws Failure. `core`: the process runs on it.
    Adapter(const Side& side, std::optional<int> core);

    Device device;
    std::optional<int> numa_node;  // of host buffers
    Owned<ibv_pd, ibv_dealloc_pd> pd;
};

class Endpoint {
public:
    // Creates everything up to queue pairs in RESET. Throws Failure with the call and the cause.
    Endpoint(const Plan& plan, const Side& side, Roles roles, std::shared_ptr<Adapter> adapter);

    // For the peer. Call after choose_gid.
    Json describe() const;
    // The client before it knows the server's, the server like the client's.
    void choose_gid(const Json& peer);
    // ECE that this side proposes (client) or has settled (server).
    Json ece() const;
    // Brings the queue pairs to RTS. The server's accepts the client's ECE proposal, the client's
    // verifies the server's answer.
    void connect(const Json& peer, bool is_server);

    const Plan& plan() const { return plan_; }
    ibv_cq* send_cq() const { return send_cq_.get(); }
    ibv_cq* recv_cq() const { return recv_cq_.get(); }
    ibv_qp* qp(std::uint32_t index) const { return qps_[index].get(); }
    const Buffer& local(std::size_t operation) const { return locals_[operation]; }
    const Buffer& target(std::size_t operation) const { return targets_[operation]; }
    const Buffer& receive() const { return receives_.front(); }
    const RemoteTarget& remote(std::size_t operation) const { return remotes_[operation]; }
    const Layout& remote_layout(std::size_t operation) const { return target_layouts_[operation]; }
    ibv_ah* peer_ah() const { return ah_.get(); }
    std::uint32_t peer_qpn(std::uint32_t index) const { return peer_qpns_[index]; }
    std::uint32_t inline_size() const { return inline_size_; }
    std::optional<int> numa_node() const { return adapter_->numa_node; }
    std::uint32_t mtu() const { return mtu_; }

private:
    void make_queues();
    void make_buffers();
    void make_qps();
    Owned<ibv_qp, ibv_destroy_qp> make_qp(std::uint32_t inline_size);
    void settle_mtu(const Json& peer);
    void check_gid(const Json& peer) const;
    void apply_ece(const Json& peer, bool is_server);
    void to_init(ibv_qp* qp);
    void to_ready(std::uint32_t index, const Json& peer);
    ibv_ah_attr path_to(const Json& peer) const;
    [[noreturn]] void fail(const std::string& what, int error) const;

    Plan plan_;
    Side side_;
    Roles roles_;
    std::shared_ptr<Adapter> adapter_;
    const Device& device_;
    Owned<ibv_cq, ibv_destroy_cq> send_cq_, recv_cq_;
    std::vector<Buffer> locals_, targets_, receives_;
    std::vector<Layout> target_layouts_;
    std::vector<RemoteTarget> remotes_;
    std::vector<Owned<ibv_qp, ibv_destroy_qp>> qps_;
    std::vector<std::uint32_t> psns_, peer_qpns_;
    std::vector<ibv_ece> eces_;
    Owned<ibv_ah, ibv_destroy_ah> ah_;
    std::optional<GidChoice> gid_;
    std::uint32_t mtu_ = 0;
    std::uint32_t inline_size_ = 0;
    std::string inline_note_;
};

// What a verbs call failed with, and the state of things that explains it.
std::string completion_error_text(const ibv_wc& completion);

}  // namespace rdmalab::perftest

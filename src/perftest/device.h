// An opened RDMA device: which port, which GID, which limits.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "perftest/plan.h"

namespace rdmalab::perftest {

// A GID as both sides compare and show it.
struct GidChoice {
    std::uint8_t index = 0;
    ibv_gid gid{};
    int family = 0;  // 4 or 6
    bool link_local = false;
    std::string type;  // "RoCE v2", "RoCE v1", "IB"
    std::string text;  // address as people write it

    Json to_json() const;
    // What must be equal on both sides, in words.
    std::string kind() const;
};

struct ContextCloser {
    void operator()(ibv_context* context) const { ibv_close_device(context); }
};

class Device {
public:
    // Throws Failure: no device at all, no such device, no active port.
    explicit Device(const Side& side);

    ibv_context* context() const { return context_.get(); }
    const std::string& name() const { return name_; }
    std::uint8_t port() const { return port_; }
    const ibv_port_attr& port_attr() const { return port_attr_; }
    const ibv_device_attr& attr() const { return attr_; }
    bool is_ethernet() const { return port_attr_.link_layer == IBV_LINK_LAYER_ETHERNET; }
    std::uint32_t mtu() const { return 128u << port_attr_.active_mtu; }

    // The GID to use; `like` is the peer's, whose kind it should have. Nothing on InfiniBand
    // without an index.
    std::optional<GidChoice> choose_gid(const Side& side, std::optional<int> family,
                                        const Json& like) const;

private:
    void find_port(const Side& side);
    std::vector<GidChoice> gids() const;

    std::string name_;
    std::unique_ptr<ibv_context, ContextCloser> context_;
    ibv_device_attr attr_{};
    ibv_port_attr port_attr_{};
    std::uint8_t port_ = 1;
};

// What is known without opening a device: its name or the first one's. Throws Failure when there is
// none. (A process that forks workers must not open devices before.)
std::string device_to_use(const std::string& wanted);

// The message for a machine without devices.
std::string no_device_text();

}  // namespace rdmalab::perftest

// What a card consists of: the result of reading a topology (card/host/topology.h), checked and
// complete. The core trusts it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/units.h"
#include "pcc/settings.h"

namespace rdmalab::card {

// Faults and limits of one direction of a cable. Probabilities are per frame, in [0, 1].
struct Impairments {
    Rate rate;  // 0: not limited
    Duration delay{},
        jitter{};  // each frame waits delay + uniform [0, jitter); jitter keeps the order
    double loss = 0, reorder = 0, duplicate = 0, corrupt = 0;
    double ce = 0;            // frames with ECT whose ECN becomes CE
    bool verify_icrc = true;  // receivers check the CRC of frames from this cable (off: corrupt
                              // payload is delivered)
    bool any() const {
        return !rate.is_unlimited() || delay.ns || jitter.ns || loss > 0 || reorder > 0 ||
               duplicate > 0 || corrupt > 0 || ce > 0;
    }
};

struct PortConfig {
    std::string name;       // p0
    std::string pf_device;  // the PF whose e-switch domain this port belongs to
    // An uplink leads to a network interface of the host: its cable ends in no other port. The PF
    // has the MAC and the addresses of the interface.
    std::string uplink{};   // eth0; empty: none
    bool may_burst = true;  // of an uplink: frames may leave in bursts (wire/burst.h)
};

enum class FunctionKind : std::uint8_t { kPf, kVf, kSf };

struct FunctionConfig {
    FunctionKind kind = FunctionKind::kSf;
    std::string device;       // RDMA device name: mlx5_2
    std::string pf_device;    // owner of the e-switch domain; for a PF its own device
    std::string representor;  // pf0sf0; empty for a PF
    std::string pci;          // 0000:03:00.0
    std::string netns;        // ns0; used only with --netns
    std::string netdev;       // its network interface there: enp3s0f0s0
    MacAddress mac;
    bool flow_steering = true;                 // ibv_create_flow works; otherwise it is ENXIO
    std::vector<Gid> ips;                      // GIDs behind the link-local one, in order
    std::vector<std::uint8_t> prefix_lengths;  // of the networks of `ips`, same order
};

struct CableConfig {
    std::string name;            // cable0
    std::string port_a, port_b;  // port_b of an uplink: the interface
    Impairments a_to_b, b_to_a;
};

struct CardConfig {
    std::string name = "default";
    std::uint64_t seed = 1;
    std::uint32_t port_mtu = 4096;
    std::uint32_t netdev_mtu = 9000;  // of network interfaces; a RoCE frame of MTU 4096 fits
    pcc::Settings congestion;
    bool force_computed_icrc = false;  // every frame crosses its links as bytes with a computed
                                       // ICRC (the slow, literal mode)
    std::vector<PortConfig> ports;
    std::vector<FunctionConfig> functions;  // the order is the device order
    std::vector<CableConfig> cables;
};

}  // namespace rdmalab::card

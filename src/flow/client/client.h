// Owning the switch domain of a PF of a running card.
//
//   auto domain = flow::client::Domain::attach({.pf = "0000:03:00.0"});
//   if (!domain.ok()) ...                      // EBUSY: "mlx5_0 is owned by process 4711
//   (flow_steer)" flow::PipeControl& pipes = (*domain)->pipes(); auto sf0 =
//   pipes.find_port("pf0sf0");
//
// From attach on the domain belongs to this process: without a root pipe it drops everything. When
// the object, its connection or the process ends, the pipes vanish and the default forwarding
// returns; traffic goes on. The connection is closed on exec. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "flow/pipe_control.h"

namespace rdmalab::flow::client {

struct DomainOptions {
    // RDMA device of the PF (mlx5_1) or its PCI address, with or without "pci/" and the PCI domain
    // (pci/0000:03:00.1, 03:00.1). Must not be a VF or SF.
    std::string pf;
    // Socket of the card; empty: by the rule of every client ($RDMALAB_SOCKET, else $RDMALAB_CARD
    // or "default" in the runtime folder).
    std::string socket;
    // Operations that may be under way at one time.
    std::uint32_t queue_depth = 128;
    // Entries with counters that the domain may have in all.
    std::uint32_t counters_max = 4096;
    // Some versions of DOCA Flow let a HASH pipe be the root, some do not.
    bool hash_root_allowed = false;
};

class Domain {
public:
    // ENOENT: no card listens there, or it has no such PF; EBUSY: the domain has an owner; EPERM:
    // the card belongs to another user; EPROTO: the card is of another build.
    static Result<std::unique_ptr<Domain>> attach(const DomainOptions& options);
    virtual ~Domain() = default;

    virtual PipeControl& pipes() = 0;
    virtual const std::string& device() const = 0;  // mlx5_1
    virtual const std::string& card() const = 0;    // its name
    // For poll(2): readable or hung up when the card has gone. Nothing is ever to be read from it.
    virtual int descriptor() const = 0;
};

}  // namespace rdmalab::flow::client

// A packet socket (packet(7)) on a network interface: the wire behind an uplink. It sees a copy of
// what the interface receives, RoCEv2 only, and sends frames as they are.
//
// Frames come and go with a virtio_net_hdr in front, which lets several frames of a flow pass as
// one (UDP segmentation): one system call and one walk through the kernel for up to 64 KiB. A veth
// hands such a burst on whole.
//
// The kernel of the interface gets its own copy of every frame. To whom nobody listens it would
// answer with an ICMP error, so a UDP socket on port 4791 takes them, whose filter drops everything
// before it is queued.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "card/host/descriptor.h"
#include "card/uplink.h"

namespace rdmalab::card::host {

class PacketSocket {
public:
    // EPERM, with a text, without CAP_NET_RAW.
    static Result<PacketSocket> open(const std::string& netdev, int interface);

    int fd() const { return fd_.value(); }

    enum class SendError : std::uint8_t { kNone, kFull, kNoBursts, kDown, kOther };
    // Returns how many bursts are done with, sent or lost; `error` says why it is not all of them.
    std::size_t send(std::span<const UplinkBurst> bursts, SendError& error);

    struct Received {
        ByteView bytes;
        std::uint32_t segment_length = 0;
    };
    // What has come, at most kReceiveMax; valid until the next call.
    std::span<const Received> receive();
    static constexpr std::size_t kReceiveMax = 32;

    // Lost because they were not fetched in time, since the socket is open.
    std::uint64_t count_overruns();
    // A datagram to port 4791 makes the kernel ask for the neighbour (without any rights).
    void nudge(const Gid& address);

private:
    PacketSocket(UniqueFd fd, UniqueFd silencer);
    Status tune(const std::string& netdev, int interface);

    UniqueFd fd_, silencer_;
    int interface_ = 0;
    struct Buffers;
    struct FreeBuffers {
        void operator()(Buffers* buffers) const;
    };
    std::unique_ptr<Buffers, FreeBuffers> buffers_;
    std::uint64_t overruns_ = 0;
};

}  // namespace rdmalab::card::host

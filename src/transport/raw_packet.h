// Raw packet QPs: the application makes whole Ethernet frames and gets whole Ethernet frames.
//
// Sending. The head of a frame (the first Frame::kHeaderMax bytes) is read, parsed and copied to
// the frame's header, because the e-switch steers by it; what follows stays where it is and is
// referred to, as the payload of messages is. Three kinds of frames are read as a whole instead:
// those that are no longer than a head, those whose checksums are to be filled in, and those that
// say that they are RoCEv2, since a receiver of the card relies on what is checked of such frames.
//
// Receiving. The header of a frame, then its payload. Two kinds of frames are read as a whole:
// RoCEv2 frames, which also show their pad and ICRC, otherwise left away; and TCP and UDP over
// IPv4, whose checksums are looked at.
#pragma once

#include "transport/core.h"

namespace rdmalab::transport {

class RawPackets {
public:
    // Ethernet pads what is shorter (IEEE 802.3, 3.2.8; without FCS).
    static constexpr std::uint32_t kFrameMin = 60;
    static bool is_frame_length(std::uint64_t length) {
        return length >= sizeof(wire::EthernetHeader) && length <= limits::kRawFrameMax;
    }

    explicit RawPackets(Core& core) : core_(core) {}

    // The frame of the work, whose SGEs were checked. False: memory of it is not there any more.
    bool emit(const Qp& qp, const SendWork& work, wire::Frame& out);
    void receive(Qp& qp, const wire::Frame& frame);

private:
    bool read_sges(const Qp& qp, const SendWork& work, ByteSpan out);
    bool emit_whole(const Qp& qp, const SendWork& work, wire::Frame& out);
    bool make_bytes(const wire::Frame& frame, PayloadSegment& out);
    static bool is_checked(const wire::Frame& frame);

    Core& core_;
};

}  // namespace rdmalab::transport

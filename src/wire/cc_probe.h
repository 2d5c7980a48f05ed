// RTT probes of congestion control: how long a packet takes to the peer of a QP and back.
//
// A probe is a management datagram (256 bytes, UD SEND to QP 1) of the congestion control class of
// IBTA annex A10, 0x21, method Get, answered by GetResp, with an attribute of our own (0xff00, of
// those left to vendors). It has the addresses and the UDP source port of the QP that it stands
// for, so that it takes the same way.
//
//   0   common MAD header, 24 bytes: transaction id = time of sending by the prober's clock,
//       attribute modifier = flow
//   24  CC_Key, 8 bytes, 0
//   32  32 bytes, 0
//   64  time of sending, 8 bytes, ns
//   72  time of arrival at the peer by the peer's clock, 8 bytes, ns; 0 in a request
//   80  time at which the peer sent the answer, 8 bytes, ns; 0 in a request
//   88  zeros
#pragma once

#include <cstdint>
#include <optional>

#include "wire/frame.h"
#include "wire/headers.h"
#include "wire/mad.h"

namespace rdmalab::wire {

inline constexpr std::uint8_t kMadClassCongestion = 0x21, kMadClassVersionCongestion = 2;
inline constexpr std::uint8_t kMadMethodGet = 0x01, kMadMethodGetResp = 0x81;
inline constexpr std::uint16_t kAttributeRttProbe = 0xff00;

struct CcProbe {
    bool is_response = false;
    std::uint32_t flow = 0;
    std::uint64_t request_sent_ns = 0, request_received_ns = 0, response_sent_ns = 0;
    bool operator==(const CcProbe&) const = default;
};

void emit_probe(const CcProbe& probe, MadBytes& out);
// Nothing when the bytes are no probe.
std::optional<CcProbe> parse_probe(const MadBytes& bytes);

// The bytes of a management datagram to QP 1 that lies in card memory; false when it is none.
bool gather_mad(const Frame& frame, MadBytes& out);
// A management datagram from QP 1 to QP 1. `mad` stays where it is until the frame is placed.
void start_mad_frame(const LowerTemplate& lower, const MadBytes& mad, Frame& out);

}  // namespace rdmalab::wire

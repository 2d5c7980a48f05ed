// What the tests of this room share: frames as programs on the card send them.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "wire/mad.h"

namespace rdmalab::steer::testing {

using Bytes = std::vector<std::byte>;

inline constexpr std::uint32_t kSenderIp = 0x0a000002;
inline constexpr std::uint32_t kBlueIp = 0x0a000001, kGreenIp = 0x0a00000b;

struct Addresses {
    std::uint32_t source = kSenderIp, destination = kBlueIp;
};
// A whole frame with ICRC. The ToS is that of data packets: ECT(0), DSCP 0.
Bytes cm_frame(const Addresses& addresses, const wire::CmMessage& message);
wire::ReqMessage request(std::uint32_t comm_id, Qpn sender);
wire::RepMessage reply(std::uint32_t comm_id, std::uint32_t receiver_comm_id, Qpn receiver);
Bytes write_frame(const Addresses& addresses, Qpn destination, std::size_t payload,
                  std::uint8_t tos = 0x02);
Bytes cnp_frame(const Addresses& addresses, Qpn destination);
Bytes arp_frame();

}  // namespace rdmalab::steer::testing

#include "transport/core.h"

namespace rdmalab::transport {
namespace {

constexpr std::uint64_t kKnownBit = 1ull << 63;
constexpr std::uint64_t kResponderBit = 1ull << 62;

}  // namespace

void Core::stamp_origin(wire::Frame& frame, const Qp& qp, bool is_responder, Psn psn) const {
    frame.origin = kKnownBit | (is_responder ? kResponderBit : 0) |
                   std::uint64_t{config.index} << 48 | std::uint64_t{qp.qpn.value} << 24 |
                   psn.value();
}

Origin origin_from(std::uint64_t packed) {
    return {.is_known = (packed & kKnownBit) != 0,
            .is_responder = (packed & kResponderBit) != 0,
            .engine = static_cast<std::uint8_t>(packed >> 48),
            .qpn = Qpn{static_cast<std::uint32_t>(packed >> 24) & 0xff'ffff},
            .psn = Psn{static_cast<std::uint32_t>(packed)}};
}

CopyOwner owner_of_payload(const wire::Frame& frame) {
    const Origin origin = origin_from(frame.origin);
    return {.qpn = origin.qpn,
            .is_responder = origin.is_responder,
            .engine = origin.engine,
            .source_is_blamed = true,
            .token = origin.psn.value(),
            .origin = frame.origin};
}

}  // namespace rdmalab::transport

// Numbers of <infiniband/verbs.h> (man pages ibv_create_qp(3), ibv_modify_qp(3),
// ibv_get_async_event(3)) that cross the ring ABI, and what they are in the engine's terms. The
// card does not include verbs.h; verbs_values_test.cc compares the two.
#pragma once

#include <cstdint>
#include <optional>

#include "card/ring_abi.h"
#include "transport/types.h"

namespace rdmalab::card {

// enum ibv_qp_type
inline constexpr std::uint32_t kIbvQptRc = 2, kIbvQptUc = 3, kIbvQptUd = 4, kIbvQptRawPacket = 8,
                               kIbvQptXrcSend = 9, kIbvQptXrcRecv = 10;

// enum ibv_port_state
inline constexpr std::uint32_t kIbvPortDown = 1, kIbvPortActive = 4;

// enum ibv_access_flags beyond those of transport::AccessFlags, which have the same values
inline constexpr std::uint32_t kIbvAccessHugetlb = 128;
// Bits 20 to 29 may be ignored by a device that does not know them.
inline constexpr std::uint32_t kIbvAccessOptionalRange = 0x3ff0'0000;

// enum ibv_rereg_mr_flags, enum ibv_mw_type
inline constexpr std::uint32_t kIbvReregTranslation = 1, kIbvReregPd = 2, kIbvReregAccess = 4;
inline constexpr std::uint32_t kIbvMwType1 = 1, kIbvMwType2 = 2;

// enum ibv_event_type
inline constexpr std::uint32_t kIbvEventCqErr = 0, kIbvEventQpFatal = 1, kIbvEventQpReqErr = 2,
                               kIbvEventQpAccessErr = 3, kIbvEventCommEst = 4,
                               kIbvEventSqDrained = 5, kIbvEventPathMig = 6,
                               kIbvEventDeviceFatal = 8, kIbvEventPortActive = 9,
                               kIbvEventPortErr = 10, kIbvEventSrqErr = 14,
                               kIbvEventSrqLimitReached = 15, kIbvEventQpLastWqeReached = 16,
                               kIbvEventGidChange = 18;

std::optional<transport::QpType> qp_type_from_verbs(std::uint32_t type);
std::uint32_t event_to_verbs(transport::AsyncEventType type);

// enum ibv_mtu: 1 is 256 bytes, 5 is 4096.
std::uint32_t mtu_to_verbs(std::uint32_t bytes);
std::optional<std::uint32_t> mtu_from_verbs(std::uint32_t mtu);

transport::AddressVector av_from_abi(const abi::AhAttributes& attributes);

// Attributes of ibv_modify_qp: nothing when a field that `mask` gives has a value outside its enum
// or its bits. The destination address is not resolved.
std::optional<transport::QpAttributes> attributes_from_abi(const abi::QpAttributes& attributes,
                                                           std::uint32_t mask);
abi::QpAttributes attributes_to_abi(const transport::QpAttributes& attributes);

// Access flags of ibv_reg_mr in the engine's terms; nothing when the combination is not allowed.
std::optional<std::uint32_t> mr_access_from_verbs(std::uint32_t access);

}  // namespace rdmalab::card

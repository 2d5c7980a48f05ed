// What the card calls itself, in verbs (ibv_query_device) and in sysfs alike.
#pragma once

#include <cstdint>

namespace rdmalab::identity {

// A vendor id from the locally administered space of IEEE OUIs. A real vendor's would switch on
// that vendor's special cases in perftest, UCX and rdma-core's tests.
inline constexpr std::uint32_t kVendorId = 0x02'72'6c;
inline constexpr std::uint32_t kVendorPartId = 1;

}  // namespace rdmalab::identity

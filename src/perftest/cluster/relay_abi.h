// What the front-end and the relay of the first host agree on, besides messages.
#pragma once

#include <cstdint>

namespace rdmalab::perftest {

// Messages to the relays themselves, not to an agent.
inline constexpr std::uint32_t kRelays = UINT32_MAX;

}  // namespace rdmalab::perftest

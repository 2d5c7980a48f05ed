// The devices of the card that this process can see.
#pragma once

#include <cstddef>

#include "card/ring_abi.h"
#include "verbs/api.h"
#include "verbs/location.h"

namespace rdmalab::verbs {

// The providers of rdma-core (libmlx5, libefa) take any ibv_device for the start of their larger
// struct verbs_device (664 bytes) and look at fields behind it to find out whose it is: they must
// find zeros there.
inline constexpr std::size_t kProviderPeekBytes = 1024;

// Lives as long as the process: programs keep the pointer beyond ibv_free_device_list, and compare
// pointers of two lists.
struct Device : ibv_device {
    Device() : ibv_device{} {}
    std::byte provider_peek[kProviderPeekBytes] = {};
    char socket_path[SocketLocation::kPathMax] = {};
    abi::DeviceInfo info{};
    Device* next = nullptr;
};

// The known device of that name, or null.
Device* find_device(const char* name);
// That of the card at this socket with this index, or null.
Device* find_device(const char* socket_path, std::uint32_t index);

}  // namespace rdmalab::verbs

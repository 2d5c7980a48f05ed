#include "verbs/device.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mutex>
#include <new>

#include "base/limits.h"
#include "verbs/complain.h"
#include "verbs/control.h"
#include "verbs/objects.h"

namespace rdmalab::verbs {

namespace {

constexpr int kListTimeoutSeconds = 10;

std::mutex devices_mutex;
Device* first_device = nullptr;

Device* find_known(const char* socket_path, const char* name) {
    for (Device* d = first_device; d != nullptr; d = d->next) {
        if (strcmp(d->name, name) == 0 && strcmp(d->socket_path, socket_path) == 0) return d;
    }
    return nullptr;
}

void describe(Device& device, const SocketLocation& location, const abi::DeviceInfo& info) {
    device.info = info;
    device.node_type = IBV_NODE_CA;
    device.transport_type = IBV_TRANSPORT_IB;
    memcpy(device.socket_path, location.path, sizeof device.socket_path);
    snprintf(device.name, sizeof device.name, "%s", info.name);
    snprintf(device.dev_name, sizeof device.dev_name, "uverbs%u", info.uverbs_index);
    snprintf(device.dev_path, sizeof device.dev_path, "/sys/class/infiniband_verbs/uverbs%u",
             info.uverbs_index);
    snprintf(device.ibdev_path, sizeof device.ibdev_path, "/sys/class/infiniband/%s", info.name);
}

Device* know(const SocketLocation& location, abi::DeviceInfo info) {
    info.name[sizeof info.name - 1] = '\0';
    Device* device = find_known(location.path, info.name);
    if (device == nullptr) {
        device = new (std::nothrow) Device();
        if (device == nullptr) return nullptr;
        device->next = first_device;
        first_device = device;
    }
    describe(*device, location, info);
    return device;
}

struct Answer {
    abi::DeviceInfo devices[limits::kFunctionMax] = {};
    std::size_t count = 0;
};

// 0 or an errno value; a card that is simply not there is an empty list unless the user named it.
int ask_card(const SocketLocation& location, Answer& answer) {
    auto* connection = new (std::nothrow) Connection();
    if (connection == nullptr) return ENOMEM;
    int status =
        location.is_too_long ? ENAMETOOLONG : connection->open(location.path, kListTimeoutSeconds);
    if (status == ENOENT && !location.is_named) {
        delete connection;
        return 0;
    }
    std::size_t length = 0;
    if (status == 0) {
        status = connection->call(abi::Op::kListDevices, ByteView(),
                                  std::as_writable_bytes(std::span(answer.devices)), &length);
    }
    if (status != 0) {
        const char* reason = connection->error_text();
        if (*reason != '\0') {
            complain_once("the card at %s refuses this process: %s", location.path, reason);
        } else {
            complain_once("no card answers at %s: %s", location.path, strerror(status));
        }
    }
    answer.count = std::min(length / sizeof(abi::DeviceInfo), std::size(answer.devices));
    delete connection;
    return location.is_named ? status : 0;
}

ibv_device** make_list(const SocketLocation& location, const Answer& answer) {
    auto** list = static_cast<ibv_device**>(calloc(answer.count + 1, sizeof(ibv_device*)));
    if (list == nullptr) return nullptr;
    std::lock_guard guard(devices_mutex);
    for (std::size_t i = 0; i < answer.count; ++i) {
        list[i] = know(location, answer.devices[i]);
        if (list[i] == nullptr) {
            free(list);
            return nullptr;
        }
    }
    return list;
}

}  // namespace

Device* find_device(const char* name) {
    std::lock_guard guard(devices_mutex);
    for (Device* d = first_device; d != nullptr; d = d->next) {
        if (strcmp(d->name, name) == 0) return d;
    }
    return nullptr;
}

Device* find_device(const char* socket_path, std::uint32_t index) {
    std::lock_guard guard(devices_mutex);
    for (Device* d = first_device; d != nullptr; d = d->next) {
        if (d->info.index == index && strcmp(d->socket_path, socket_path) == 0) return d;
    }
    return nullptr;
}

}  // namespace rdmalab::verbs

using namespace rdmalab;
using namespace rdmalab::verbs;

extern "C" ibv_device** ibv_get_device_list(int* count) {
    if (count != nullptr) *count = 0;
    SocketLocation location = locate_card();
    Answer answer;
    if (int status = ask_card(location, answer)) return fail(status);
    ibv_device** list = make_list(location, answer);
    if (list == nullptr) return fail(ENOMEM);
    if (count != nullptr) *count = static_cast<int>(answer.count);
    return list;
}

extern "C" void ibv_free_device_list(ibv_device** list) { free(list); }

extern "C" const char* ibv_get_device_name(ibv_device* device) { return device->name; }

extern "C" int ibv_get_device_index(ibv_device* device) {
    return static_cast<int>(static_cast<Device*>(device)->info.index);
}

extern "C" __be64 ibv_get_device_guid(ibv_device* device) {
    return htobe64(static_cast<Device*>(device)->info.node_guid);
}

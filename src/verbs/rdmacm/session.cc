#include "verbs/rdmacm/session.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <new>

#include "verbs/complain.h"
#include "verbs/location.h"
#include "verbs/rdmacm/channel.h"

namespace rdmalab::rdmacm {

namespace {

constexpr int kHandshakeTimeoutSeconds = 10;

std::mutex current_mutex;
Session* current_session = nullptr;

// Adds the device of this name. 0 or an errno value.
int add_device(ibv_device** list, const char* name, std::size_t length, std::uint64_t& devices) {
    for (ibv_device** d = list; *d != nullptr; ++d) {
        const char* known = ibv_get_device_name(*d);
        if (strlen(known) != length || strncmp(known, name, length) != 0) continue;
        devices |= std::uint64_t{1} << ibv_get_device_index(*d);
        return 0;
    }
    verbs::complain_once("RDMALAB_DEVICES names %.*s, and the card has no such device",
                         static_cast<int>(length), name);
    return ENODEV;
}

// The devices that the user allows this process, by $RDMALAB_DEVICES=NAME[,NAME...]; 0: all. It
// decides what a wildcard listens on and which source a connection has that names none.
int allowed_devices(std::uint64_t& devices) {
    devices = 0;
    const char* names = getenv("RDMALAB_DEVICES");
    if (names == nullptr || *names == '\0') return 0;
    ibv_device** list = ibv_get_device_list(nullptr);
    if (list == nullptr) return errno;
    int status = 0;
    while (status == 0 && *names != '\0') {
        std::size_t length = strcspn(names, ",");
        status = add_device(list, names, length, devices);
        names += length + (names[length] == ',' ? 1 : 0);
    }
    ibv_free_device_list(list);
    return status;
}

std::uint8_t clamp_depth(int value) {
    return static_cast<std::uint8_t>(std::clamp(value, 0, RDMA_MAX_RESP_RES - 1));
}

}  // namespace

void Session::before_fork() {
    current_mutex.lock();
    lock_channels();
}

void Session::in_parent() {
    unlock_channels();
    current_mutex.unlock();
}

// The child must not keep the parent's session alive, nor read its events.
void Session::in_child() {
    if (current_session != nullptr) current_session->connection_.close();
    abandon_channels();
    unlock_channels();
    current_mutex.unlock();
}

Session* Session::current(int& status) {
    static std::once_flag registered;
    std::call_once(registered, [] { pthread_atfork(before_fork, in_parent, in_child); });
    std::lock_guard guard(current_mutex);
    if (current_session != nullptr && current_session->connection_.check_dead()) {
        current_session->release();
        current_session = nullptr;
    }
    if (current_session == nullptr) {
        auto* session = new (std::nothrow) Session();
        status = session == nullptr ? ENOMEM : session->open();
        if (status != 0) {
            if (session != nullptr) session->release();
            return nullptr;
        }
        current_session = session;
    }
    current_session->retain();
    status = 0;
    return current_session;
}

void Session::release() {
    if (references_.fetch_sub(1) == 1) delete this;
}

Session::~Session() {
    for (Device& device : devices_) {
        if (device.verbs == nullptr) continue;
        if (device.xrcd != nullptr) ibv_close_xrcd(device.xrcd);
        if (device.pd != nullptr) ibv_dealloc_pd(device.pd);
        // Not the context: programs may hold it since rdma_get_devices.
    }
}

int Session::open() {
    verbs::SocketLocation location = verbs::locate_card();
    if (location.is_too_long) return ENAMETOOLONG;
    int status = connection_.open(location.path, kHandshakeTimeoutSeconds);
    if (status != 0) {
        verbs::complain_once("no card answers at %s: %s", location.path, strerror(status));
        return ENODEV;
    }
    abi::CmOpenRequest request{};
    if (status = allowed_devices(request.devices); status != 0) return status;
    abi::CmOpenReply reply{};
    status = call(abi::CmOp::kOpen, request, reply);
    if (status != 0) {
        verbs::complain_once("the card refuses connections: %s", strerror(status));
        return status;
    }
    visible_ = reply.devices;
    connection_.set_timeout(0);
    return 0;
}

int Session::call(abi::CmOp op, ByteView request, ByteSpan reply, verbs::ReceivedFds* fds,
                  char* text) {
    if (text != nullptr) text[0] = '\0';
    if (is_dead()) return EIO;  // in the child of a fork the lock may be held for ever
    std::lock_guard guard(call_mutex_);
    int status = connection_.call(static_cast<abi::Op>(op), request, reply, nullptr, fds);
    if (text != nullptr) snprintf(text, kTextMax, "%s", connection_.error_text());
    return status;
}

int Session::open_device(std::uint32_t index, Device& device) {
    ibv_device** list = ibv_get_device_list(nullptr);
    if (list == nullptr) return errno;
    int status = ENODEV;
    for (ibv_device** d = list; *d != nullptr; ++d) {
        if (ibv_get_device_index(*d) != static_cast<int>(index)) continue;
        device.verbs = ibv_open_device(*d);
        status = device.verbs == nullptr ? errno : 0;
        break;
    }
    ibv_free_device_list(list);
    if (status != 0) return status;
    ibv_device_attr attributes{};
    status = ibv_query_device(device.verbs, &attributes);
    if (status == 0) {
        device.responder_resources_max = clamp_depth(attributes.max_qp_rd_atom);
        device.initiator_depth_max = clamp_depth(attributes.max_qp_init_rd_atom);
    }
    return status;
}

Device* Session::use_device(std::uint32_t index) {
    if (index >= kDeviceMax) return fail_null(ENODEV);
    std::lock_guard guard(devices_mutex_);
    Device& device = devices_[index];
    if (device.verbs == nullptr) {
        if (int status = open_device(index, device)) return fail_null(status);
    }
    if (device.pd == nullptr) {
        device.pd = ibv_alloc_pd(device.verbs);
        if (device.pd == nullptr) return nullptr;
    }
    ++device.users;
    return &device;
}

void Session::unuse_device(std::uint32_t index) {
    std::lock_guard guard(devices_mutex_);
    Device& device = devices_[index];
    if (--device.users > 0) return;
    if (device.xrcd != nullptr && ibv_close_xrcd(device.xrcd) == 0) device.xrcd = nullptr;
    // With memory regions of the program still in it the protection domain stays for the next user.
    if (device.pd != nullptr && ibv_dealloc_pd(device.pd) == 0) device.pd = nullptr;
}

ibv_context** Session::all_contexts(int* count) {
    auto** list = static_cast<ibv_context**>(calloc(kDeviceMax + 1, sizeof(ibv_context*)));
    if (list == nullptr) return fail_null(ENOMEM);
    std::lock_guard guard(devices_mutex_);
    int found = 0;
    for (std::uint32_t i = 0; i < kDeviceMax; ++i) {
        if ((visible_ >> i & 1) == 0) continue;
        Device& device = devices_[i];
        if (device.verbs == nullptr && open_device(i, device) != 0) continue;
        list[found++] = device.verbs;
    }
    if (count != nullptr) *count = found;
    return list;
}

ibv_xrcd* Session::default_xrcd(Device& device) {
    std::lock_guard guard(devices_mutex_);
    if (device.xrcd == nullptr) {
        ibv_xrcd_init_attr attributes{};
        attributes.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        attributes.fd = -1;
        attributes.oflags = O_CREAT;
        device.xrcd = ibv_open_xrcd(device.verbs, &attributes);
    }
    return device.xrcd;
}

}  // namespace rdmalab::rdmacm

using namespace rdmalab::rdmacm;

extern "C" ibv_context** rdma_get_devices(int* count) {
    if (count != nullptr) *count = 0;
    int status = 0;
    Session* session = Session::current(status);
    if (session == nullptr) return fail_null(status);
    ibv_context** list = session->all_contexts(count);
    session->release();
    return list;
}

extern "C" void rdma_free_devices(ibv_context** list) { free(list); }

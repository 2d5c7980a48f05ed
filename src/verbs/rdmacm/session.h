// The connection of this process to the card's connection manager (card/cm_abi.h, "Session"), and
// the RDMA devices that its ids are bound to.
//
// A process has one current session. It is opened when it is first needed, and again when the old
// one cannot be used any more: because the card has died, or because this is the child of a fork
// (the session is the parent's). What was made in an old session keeps it and gets EIO.
//
// All ids on a device share one ibv_context, and one protection domain for those who bring none.
// A context stays open as long as its session, because rdma_get_devices hands it out for good.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "card/cm_abi.h"
#include "verbs/control.h"
#include "verbs/rdmacm/api.h"

namespace rdmalab::rdmacm {

struct Device {
    ibv_context* verbs = nullptr;
    ibv_pd* pd = nullptr;  // while there are users
    ibv_xrcd* xrcd = nullptr;
    std::uint8_t responder_resources_max = 0, initiator_depth_max = 0;
    unsigned users = 0;
};

class Session {
public:
    static constexpr std::uint32_t kDeviceMax = 64;  // CmOpenReply::devices is a 64-bit set

    // The current session, with a reference for the caller. Null and `status` when there is none.
    static Session* current(int& status);
    void retain() { references_.fetch_add(1); }
    void release();

    // 0 or an errno value. `text` gets the card's explanation of a refusal.
    int call(abi::CmOp op, ByteView request, ByteSpan reply, verbs::ReceivedFds* fds = nullptr,
             char* text = nullptr);
    template <class Request, class Reply>
    int call(abi::CmOp op, const Request& request, Reply& reply) {
        return call(op, std::as_bytes(std::span(&request, 1)),
                    std::as_writable_bytes(std::span(&reply, 1)));
    }
    template <class Request>
    int call(abi::CmOp op, const Request& request) {
        return call(op, std::as_bytes(std::span(&request, 1)), ByteSpan());
    }

    bool is_dead() const { return connection_.is_dead(); }
    void mark_dead() { connection_.mark_dead(); }

    // The opened device; the caller counts as a user until it calls unuse_device. Null and errno.
    Device* use_device(std::uint32_t index);
    void unuse_device(std::uint32_t index);
    // Null-terminated, of all devices that are visible to the session.
    ibv_context** all_contexts(int* count);
    ibv_xrcd* default_xrcd(Device& device);

    static constexpr std::size_t kTextMax = 512;

private:
    Session() = default;
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    int open();
    int open_device(std::uint32_t index, Device& device);
    static void before_fork();
    static void in_parent();
    static void in_child();

    std::atomic<unsigned> references_{1};
    std::mutex call_mutex_;  // makes a call and its error text one
    verbs::Connection connection_;
    std::uint64_t visible_ = 0;
    std::mutex devices_mutex_;
    Device devices_[kDeviceMax];
};

}  // namespace rdmalab::rdmacm

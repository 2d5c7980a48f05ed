// An open device: one attachment to the card (card/ring_abi.h, "Attachment").
//
// The program holds a pointer to `verbs_context::context`, which is the last field of verbs_context
// by law of the ABI; our own fields follow it.
#pragma once

#include <mutex>

#include "verbs/api.h"
#include "verbs/control.h"
#include "verbs/device.h"
#include "verbs/doorbell.h"
#include "verbs/handle_table.h"
#include "verbs/mapping.h"
#include "verbs/mr_table.h"

namespace rdmalab::verbs {

struct Cq;
struct Qp;
struct Srq;
struct Channel;

struct Context : verbs_context {
    Context() : verbs_context{} {}
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    // 0 or an errno value.
    int attach(Device& device);
    // Joins the context whose memory `fd` is, on the card that has that device (ibv_import_device).
    // The descriptor is the context's from then on.
    int join(const Device& any_device, int fd);
    // In the child of a fork the attachment is the parent's and calls answer EIO. After this the
    // child is a member of the parent's context itself. 0 also when there was no fork.
    int rejoin_after_fork();
    // In the child of a fork: the attachment is the parent's. Drops the descriptors, so that the
    // child neither keeps it alive nor takes the parent's events. Locks that other threads of the
    // parent held are free again.
    void abandon();

    bool is_dead() const { return connection.is_dead(); }
    bool is_abandoned = false;

    Connection connection;
    abi::OpenContextReply attributes{};
    int memory_fd = -1;
    int bell_fd = -1;
    Mapping doorbell_area;
    Mapping card_page;
    Doorbell doorbell;

    MrTable mrs;
    HandleTable<Cq> cqs;    // by handle
    HandleTable<Srq> srqs;  // by handle
    HandleTable<Qp> qps;    // by doorbell slot
    // Guards insertions and removals in the tables and lists above and below, and the counts of
    // delivered events.
    std::mutex objects_mutex;
    Qp* first_qp = nullptr;
    Channel* first_channel = nullptr;
    bool fatal_reported = false;

    // All open contexts of the process, for fork.
    Context* next = nullptr;
    Context* previous = nullptr;

private:
    int map_card(ReceivedFds& fds);
    int connect(const char* socket_path);
    void set_up(Device& device);
};

inline Context& context_of(ibv_context* context) {
    return *static_cast<Context*>(verbs_get_ctx(context));
}

// Fills the tables of function pointers (context.cc lists what each program needs).
void install_operations(Context& context);

}  // namespace rdmalab::verbs

// An event channel: the reading end of a pipe in which the card puts one record per event. The
// program holds a pointer to it, polls its fd and may make that non-blocking.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "verbs/rdmacm/session.h"

namespace rdmalab::rdmacm {

struct Id;

// Outlives the channel for a thread that sleeps in rdma_get_cm_event while another one destroys the
// channel, as programs do at their end. With the kernel's connection manager such a thread sleeps
// on; here the card closes the pipe and wakes it, and it must know why.
struct ChannelLife {
    std::atomic<unsigned> references{1};
    std::atomic<bool> is_over{false};
    void retain() { references.fetch_add(1); }
    void release() {
        if (references.fetch_sub(1) == 1) delete this;
    }
};

struct Channel : rdma_event_channel {
    Channel() : rdma_event_channel{} {}

    Session* session = nullptr;
    ChannelLife* life = nullptr;
    std::uint32_t handle = 0;
    // Ids whose events come here; when the card dies each of them gets one last event.
    std::mutex mutex;
    Id* first_id = nullptr;

    // All channels of the process, for fork.
    Channel* next = nullptr;
    Channel* previous = nullptr;
};

inline Channel& channel_of(rdma_event_channel* channel) { return *static_cast<Channel*>(channel); }

// Null and errno when it fails. With a null session the current one is taken.
Channel* create_channel(Session* session);
void destroy_channel(Channel& channel);

void add_to_channel(Id& id, Channel& channel);
void remove_from_channel(Id& id);

void lock_channels();
void unlock_channels();
// In the child of a fork: closes the descriptors, which are the parent's.
void abandon_channels();

}  // namespace rdmalab::rdmacm

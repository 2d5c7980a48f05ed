// A communication identifier and what it owns. The program holds a pointer to the public part.
//
// ## Events and lifetime
// An event names its id by a pointer, so an id must outlive its events. `events_completed` counts
// those that the program has acknowledged (or that never reached it); rdma_destroy_id asks the card
// how many there were and waits for the rest (card/cm_abi.h, "Channels and events").
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "verbs/rdmacm/channel.h"

namespace rdmalab::rdmacm {

struct Id;

// One multicast group that an id has joined, or is about to.
struct Join {
    Id* id = nullptr;
    std::uint32_t handle = 0;
    void* context = nullptr;  // the program's
    abi::CmAddress address{};
    bool is_send_only = false;
    bool is_attached = false;  // the QP to the group
    ibv_gid gid{};
    std::uint32_t events_read = 0, events_completed = 0;  // guarded by the id's mutex
    Join* next = nullptr;
};

struct Id : rdma_cm_id {
    Id() : rdma_cm_id{} {}
    ~Id();

    Session* session = nullptr;
    std::uint32_t handle = 0;
    std::uint32_t device_index = abi::kCmNone;
    Device* device = nullptr;
    bool is_sync = false;
    bool is_connected = false;    // established, and not known to be disconnected
    bool connect_failed = false;  // by this side, after the peer's answer
    bool removal_reported = false;
    std::uint8_t responder_resources = 0, initiator_depth = 0;
    ibv_ece local_ece{}, remote_ece{};
    ibv_sa_path_rec path{};
    std::uint8_t path_mtu = 0;

    // Of rdma_create_ep: what the ids of accepted connections get, and what connecting sends first.
    bool has_qp_attributes = false;
    ibv_qp_init_attr qp_attributes{};
    ibv_pd* qp_pd = nullptr;
    std::uint8_t connect_data[abi::kCmPrivateDataMax] = {};
    std::uint8_t connect_data_length = 0;

    std::mutex mutex;
    std::condition_variable completed;
    std::uint32_t events_read = 0, events_completed = 0;
    Join* first_join = nullptr;

    Id* next_in_channel = nullptr;

    int call(abi::CmOp op) { return session->call(op, abi::HandleRequest{handle}); }
    std::uint64_t cookie() const { return reinterpret_cast<std::uintptr_t>(this); }
};

inline Id& id_of(rdma_cm_id* id) { return *static_cast<Id*>(id); }
inline bool is_datagram(const rdma_cm_id& id) { return id.qp_type == IBV_QPT_UD; }

// An id without a counterpart in the card yet. Null and errno.
Id* make_id(Session& session, rdma_port_space space, ibv_qp_type type);
// Null `channel`: synchronous, on a channel of its own. Null and errno.
Id* create_id(rdma_event_channel* channel, void* context, rdma_port_space space, ibv_qp_type type);

// The id is on this device from now on. 0 or an errno value.
int bind_to_device(Id& id, std::uint32_t index);
// Takes over what the card says about the id. 0 or an errno value.
int apply_info(Id& id, const abi::CmIdInfo& info);
int refresh(Id& id);

// One more event is done with: of a join if there is one, else of the id.
void complete_event(Id& id, Join* join);
// Waits until `count` events of the id are done with.
void wait_for_events(Id& id, std::uint32_t count);
void wait_for_join_events(Id& id, const Join& join, std::uint32_t count);

// For a synchronous id: waits for the event that an operation leads to. 0, or -1 and errno.
int complete(Id& id);
// Ends the access of a synchronous id to its last event.
void drop_event(Id& id);

}  // namespace rdmalab::rdmacm

// What the card holds for each attached client: the shared memory of its rings, its completion
// channels and async pipe, and the way into its process's memory. Carries out what the card core
// asks for through HostPort.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "card/card.h"
#include "card/host/cm_sessions.h"
#include "card/host/memory_port.h"
#include "card/host/poller.h"
#include "card/host/record_pipe.h"
#include "card/host/shared_memory.h"

namespace rdmalab::card::host {

class Captures;
class Network;
class Uplinks;

class Attachments final : public HostPort {
public:
    struct Ids {
        OwnerId owner;
        SpaceId space;
    };

    Attachments(Poller& poller, ProcessMemory& memory) : poller_(poller), memory_(memory) {}
    void set_captures(Captures* captures) { captures_ = captures; }
    void set_network(Network* network) { network_ = network; }  // null: none
    void set_uplinks(Uplinks* uplinks) { uplinks_ = uplinks; }  // null: none

    // Fresh ids, shared memory and an async pipe, whose read end comes back in `async_reader`.
    Result<Ids> create(pid_t pid, UniqueFd& async_reader);
    // After Card::close_context. The memory of the rings goes with the next bury_dead().
    void destroy(OwnerId owner);
    // One more process of an attachment: the owner whose memory the descriptor is, or nothing; its
    // own space and async pipe (every member hears of all events); and its end.
    std::optional<OwnerId> find_by_memory(int fd) const;
    Result<Ids> join(OwnerId owner, pid_t pid, UniqueFd& async_reader);
    void leave(const Ids& ids);
    bool has_others(const Ids& ids) const;
    // Unmaps the rings of closed attachments: between rounds nothing of a round may refer to them.
    void bury_dead() {
        if (!dead_.empty()) dead_.clear();
    }

    int memory_fd(OwnerId owner) const;
    void add_channel(OwnerId owner, std::uint32_t channel, UniqueFd write_end);
    void remove_channel(OwnerId owner, std::uint32_t channel);
    std::size_t count() const { return attachments_.size(); }
    CmSessions& cm_sessions() { return cm_sessions_; }
    std::uint64_t shared_bytes() const;

    Result<MappedRegion> allocate_region(OwnerId owner, std::uint64_t length) override;
    void free_region(OwnerId owner, const MappedRegion& region) override;
    void notify_channel(OwnerId owner, std::uint32_t channel,
                        const abi::CompletionEvent& event) override;
    void notify_async(OwnerId owner, const abi::AsyncEventRecord& event) override;
    void wake(std::atomic<std::uint32_t>& word) override;
    void captured(TapPoint point, const wire::Frame& frame, bool inbound) override;
    bool deliver_to_netdev(std::uint32_t function, const wire::Frame& frame) override;
    std::size_t send_by_uplink(std::uint32_t port, std::span<const UplinkBurst> bursts) override;
    std::optional<Route> find_route(const Gid& peer) override;
    Result<MacAddress> find_neighbour(std::uint32_t function, const Gid& source,
                                      const Gid& peer) override;
    void congestion_process_failed(CongestionProcessId id, pcc::ErrorReason reason) override;
    void notify_cm(CmSessionId session, std::uint32_t channel,
                   const abi::CmEventRecord& record) override;
    std::vector<abi::CmEventRecord> withdraw_cm(CmSessionId session, std::uint32_t channel,
                                                std::uint32_t id) override;

private:
    struct Attachment {
        struct Member {
            SpaceId space;
            std::unique_ptr<RecordPipe<abi::AsyncEventRecord>> async;
        };
        std::vector<Member> members;
        std::unique_ptr<SharedMemory> memory;
        std::unordered_map<std::uint32_t, std::unique_ptr<RecordPipe<abi::CompletionEvent>>>
            channels;
    };
    Attachment* find(OwnerId owner);

    Poller& poller_;
    ProcessMemory& memory_;
    CmSessions cm_sessions_{poller_};
    Captures* captures_ = nullptr;
    Network* network_ = nullptr;
    Uplinks* uplinks_ = nullptr;
    std::uint32_t next_id_ = 1;
    std::unordered_map<OwnerId, Attachment> attachments_;
    std::vector<std::unique_ptr<SharedMemory>> dead_;
};

}  // namespace rdmalab::card::host

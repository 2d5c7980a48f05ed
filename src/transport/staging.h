// What a round has brought about and nobody may see yet. The bytes of the round lie in queued
// copies; completions, events and acknowledgements wait here until the copies are carried out, and
// turn into errors where a copy failed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/ports.h"
#include "transport/qp.h"

namespace rdmalab::transport {

struct StagedCompletion {
    CqId cq;
    Completion completion;
    Psn first_psn;                // of the message
    std::uint32_t psn_count = 0;  // 0: no packet stands behind it
    bool is_silent = false;       // unsignaled: shown only if it becomes an error
};

// Small byte strings that must stay where they are until the round's copies are done (GRHs, results
// of atomics). Memory is kept and reused.
class RoundArena {
public:
    std::byte* allocate(std::size_t bytes);
    void reset() {
        block_ = 0;
        used_ = 0;
    }

private:
    static constexpr std::size_t kBlockSize = 16 * 1024;
    std::vector<std::unique_ptr<std::byte[]>> blocks_;
    std::size_t block_ = 0;
    std::size_t used_ = 0;
};

class Staging {
public:
    void add_send(const Qp& qp, const SendWork& work, WcStatus status);
    // `fields` has what is particular to the message; the QP and the WQE are filled in here.
    void add_recv(const Qp& qp, const RecvWqe& wqe, Completion fields, Psn first_psn,
                  std::uint32_t psn_count);
    void add_event(AsyncEventType type, OwnerId owner, std::uint32_t object) {
        events_.push_back({type, owner, object});
    }
    void add_duty(Qp& qp);

    std::span<StagedCompletion> completions() { return completions_; }
    std::span<const AsyncEvent> events() const { return events_; }
    std::span<const Qpn> duties() const { return duties_; }
    RoundArena& arena() { return arena_; }
    void clear();
    bool empty() const { return completions_.empty() && events_.empty() && duties_.empty(); }

private:
    std::vector<StagedCompletion> completions_;
    std::vector<AsyncEvent> events_;
    std::vector<Qpn> duties_;
    RoundArena arena_;
};

}  // namespace rdmalab::transport

// How a program makes pipes and entries in the switch domain that it owns.
//
// Two implementations: over a pipeline in the same process, for simulations and tests
// (local_control.h), and over a card's socket (client/client.h). Programs take a `PipeControl&`.
//
// ## Asynchronous entries
// Pipes are made at once. Entries are added, updated and removed asynchronously, as in DOCA Flow:
//
//   add_entry(..., Batch::kWait, ...)   queued only
//   add_entry(..., Batch::kFlush, ...)  queued, and all that is queued goes to the card
//   process(timeout, max)               hands out the completions, in the order of the operations
//
// A call returns an error only when it cannot be queued: EAGAIN when the queue is full of
// operations whose completions have not been processed, EINVAL for an id that this control never
// gave out. All else that is wrong with an operation is told by its completion: status kError, with
// an errno value and a text that names pipe, field and rule. A queue full of waiting operations
// flushes itself; `process` does not flush.
//
// ## Updates
// An update puts a new rule in the place of the old one. Packets see the old one or the new one,
// never both, none, or a mixture; counters go on. The new rule is allocated first and the old one
// is retired only when `process` is called after the one that handed out the completion, so a pipe
// needs entries_max above the number of live entries. Without room for the replacement the
// completion is an error: EAGAIN when retired rules wait for `process`, ENOSPC when there are none.
//
// ## Errors
//   EBUSY       the domain has another owner; a pipe is still the target of others
//   EEXIST      a second root; a key, or an index of a HASH pipe, that is taken
//   ENOSPC      capacity of a pipe, number of counters
//   EAGAIN      see above
//   EOPNOTSUPP  an update of an entry of a HASH pipe, or of a forward that is not changeable; a
//   pipe
//               type or algorithm that is not there
//   EINVAL      everything that does not fit: a miss to a port, entries that are no power of two,
//   ... ENOENT      no such pipe or entry EPIPE       (client) the card has gone
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "flow/pipe_types.h"

namespace rdmalab::flow {

enum class Batch : std::uint8_t { kFlush, kWait };
enum class EntryOp : std::uint8_t { kAdd = 0, kRemove = 1, kUpdate = 2 };
enum class EntryStatus : std::uint8_t { kInProcess = 0, kSuccess = 1, kError = 2 };

struct EntryCompletion {
    EntryId entry;
    EntryOp op{};
    EntryStatus status{};
    Error error;                  // of kError
    std::uint64_t user_data = 0;  // given at the addition; updates and removals bring it too
};

class PipeControl {
public:
    virtual ~PipeControl() = default;

    // The ports of the domain: its wires and the vports of its functions. They never change.
    virtual const std::vector<PortInfo>& ports() const = 0;
    // By name ("pf0sf0", "p0") or by device ("mlx5_2"); "wire" is the first wire.
    std::optional<PortId> find_port(std::string_view name) const;

    virtual Result<PipeId> create_pipe(const PipeConfig& config) = 0;
    // With its entries. EBUSY while other pipes or their entries forward to it.
    virtual Status destroy_pipe(PipeId pipe) = 0;
    virtual Status update_miss(PipeId pipe, const Forward& miss) = 0;
    // All pipes. From then on the domain drops everything until there is a root again.
    virtual Status flush_pipes() = 0;

    virtual Result<EntryId> add_entry(PipeId pipe, const BasicEntry& entry, Batch batch,
                                      std::uint64_t user_data = 0) = 0;
    virtual Result<EntryId> add_entry(PipeId pipe, const ControlEntry& entry, Batch batch,
                                      std::uint64_t user_data = 0) = 0;
    virtual Result<EntryId> add_entry(PipeId pipe, const HashEntry& entry, Batch batch,
                                      std::uint64_t user_data = 0) = 0;
    virtual Status update_entry(EntryId entry, const EntryActions& actions, Batch batch) = 0;
    virtual Status remove_entry(EntryId entry, Batch batch) = 0;

    // Appends up to `max` completions to `out` (0: all there are) and lets retired rules go. With
    // nothing outstanding it returns at once, whatever the timeout. Returns how many; an error only
    // when the connection is lost (operations under way are then completed with an error first).
    virtual Result<std::size_t> process(Duration timeout, std::size_t max,
                                        std::vector<EntryCompletion>& out) = 0;
    // kInProcess: not completed; ENOENT: never given out, removed, or failed to be added.
    virtual Result<EntryStatus> entry_status(EntryId entry) const = 0;

    // Counters of live entries that have one, in the order asked for.
    virtual Result<std::vector<FlowCounters>> query_entries(std::span<const EntryId> entries) = 0;
    // Packets that no entry of the pipe took.
    virtual Result<FlowCounters> query_miss(PipeId pipe) = 0;

    // Copies of frames that forwards of kind kRss have put into queues since the last call, in
    // their order, appended to `out`. Returns how many had to be dropped because nobody fetched
    // them.
    virtual Result<std::uint64_t> poll_frames(std::vector<CapturedFrame>& out) = 0;
};

}  // namespace rdmalab::flow

// The part of PipeControl that is the same whether the pipeline is in this process or behind a
// socket: numbers of entries, the queue of operations, batches, completions, retirement.
#pragma once

#include <deque>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "flow/operations.h"
#include "flow/pipe_control.h"

namespace rdmalab::flow {

// Carries commands to a pipeline; errors are its, or EPIPE when it cannot be reached any more.
class CommandPort {
public:
    virtual ~CommandPort() = default;
    virtual const std::vector<PortInfo>& ports() const = 0;
    virtual Result<PipeId> create_pipe(const PipeConfig& config) = 0;
    virtual Status destroy_pipe(PipeId pipe) = 0;
    virtual Status update_miss(PipeId pipe, const Forward& miss) = 0;
    virtual Status flush_pipes() = 0;
    // First lets go what operations up to number `retire_through` have left behind.
    virtual Result<std::vector<OperationResult>> apply(
        std::uint64_t retire_through, std::span<const EntryOperation> operations) = 0;
    virtual Result<std::vector<FlowCounters>> query_entries(std::span<const EntryId> entries) = 0;
    virtual Result<FlowCounters> query_miss(PipeId pipe) = 0;
    virtual Result<std::uint64_t> poll_frames(std::vector<CapturedFrame>& out) = 0;
};

class QueuedPipeControl final : public PipeControl {
public:
    QueuedPipeControl(std::unique_ptr<CommandPort> port, std::uint32_t queue_depth)
        : port_(std::move(port)), queue_depth_(queue_depth) {}

    const std::vector<PortInfo>& ports() const override { return port_->ports(); }
    Result<PipeId> create_pipe(const PipeConfig& config) override;
    Status destroy_pipe(PipeId pipe) override;
    Status update_miss(PipeId pipe, const Forward& miss) override;
    Status flush_pipes() override;
    Result<EntryId> add_entry(PipeId pipe, const BasicEntry& entry, Batch batch,
                              std::uint64_t user_data) override;
    Result<EntryId> add_entry(PipeId pipe, const ControlEntry& entry, Batch batch,
                              std::uint64_t user_data) override;
    Result<EntryId> add_entry(PipeId pipe, const HashEntry& entry, Batch batch,
                              std::uint64_t user_data) override;
    Status update_entry(EntryId entry, const EntryActions& actions, Batch batch) override;
    Status remove_entry(EntryId entry, Batch batch) override;
    Result<std::size_t> process(Duration timeout, std::size_t max,
                                std::vector<EntryCompletion>& out) override;
    Result<EntryStatus> entry_status(EntryId entry) const override;
    Result<std::vector<FlowCounters>> query_entries(std::span<const EntryId> entries) override;
    Result<FlowCounters> query_miss(PipeId pipe) override;
    Result<std::uint64_t> poll_frames(std::vector<CapturedFrame>& out) override;

private:
    struct Known {
        PipeId pipe;
        std::uint64_t user_data = 0;
        std::uint32_t pending = 0;  // operations without a completion
        bool exists = false;        // its addition has succeeded
    };

    template <class EntryType>
    Result<EntryId> add(PipeId pipe, const EntryType& entry, Batch batch, std::uint64_t user_data);
    Status enqueue(EntryOperation operation, Batch batch);
    void flush();
    void complete(const OperationResult& result);
    void settle(const EntryCompletion& completion);

    std::unique_ptr<CommandPort> port_;
    std::uint32_t queue_depth_;
    std::uint32_t next_entry_ = 1;
    std::unordered_map<EntryId, Known> known_;
    std::vector<EntryOperation> waiting_;
    std::deque<EntryCompletion> completed_;
    // Operations are numbered as the pipeline numbers them.
    std::uint64_t handed_out_ = 0;  // completions that the program has got
    std::uint64_t retired_ = 0;     // of these, what the pipeline has let go
    bool is_lost_ = false;
};

}  // namespace rdmalab::flow

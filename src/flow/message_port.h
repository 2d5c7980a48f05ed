// The CommandPort of a pipeline that is reached by messages (flow/commands.h): a card behind a
// socket, or whatever answers requests.
#pragma once

#include <functional>

#include "flow/commands.h"
#include "flow/queued_control.h"

namespace rdmalab::flow {

class MessagePort final : public CommandPort {
public:
    // Takes a request to the pipeline and brings the body of the reply, or the error.
    using Call = std::function<Result<std::vector<std::byte>>(ByteView request)>;

    // The first request: the caller owns the domain of a PF from then on.
    static Result<AttachReply> attach(const Call& call, const AttachCommand& command);

    MessagePort(Call call, std::vector<PortInfo> ports)
        : call_(std::move(call)), ports_(std::move(ports)) {}

    const std::vector<PortInfo>& ports() const override { return ports_; }
    Result<PipeId> create_pipe(const PipeConfig& config) override;
    Status destroy_pipe(PipeId pipe) override;
    Status update_miss(PipeId pipe, const Forward& miss) override;
    Status flush_pipes() override;
    Result<std::vector<OperationResult>> apply(std::uint64_t retire_through,
                                               std::span<const EntryOperation> operations) override;
    Result<std::vector<FlowCounters>> query_entries(std::span<const EntryId> entries) override;
    Result<FlowCounters> query_miss(PipeId pipe) override;
    Result<std::uint64_t> poll_frames(std::vector<CapturedFrame>& out) override;

private:
    template <class... Arguments>
    Status tell(CommandKind kind, const Arguments&... arguments);
    template <class Reply, class... Arguments>
    Status ask(CommandKind kind, Reply& out, const Arguments&... arguments);
    Status apply_some(std::uint64_t retire_through, std::span<const EntryOperation> operations,
                      std::vector<OperationResult>& results);

    Call call_;
    std::vector<PortInfo> ports_;
};

}  // namespace rdmalab::flow

#include "flow/local_control.h"

#include "flow/pipeline.h"
#include "flow/queued_control.h"

namespace rdmalab::flow {
namespace {

class LocalPort final : public CommandPort {
public:
    explicit LocalPort(Pipeline& pipeline) : pipeline_(pipeline) {}

    const std::vector<PortInfo>& ports() const override { return pipeline_.ports(); }
    Result<PipeId> create_pipe(const PipeConfig& config) override {
        return pipeline_.create_pipe(config);
    }
    Status destroy_pipe(PipeId pipe) override { return pipeline_.destroy_pipe(pipe); }
    Status update_miss(PipeId pipe, const Forward& miss) override {
        return pipeline_.update_miss(pipe, miss);
    }
    Status flush_pipes() override {
        pipeline_.flush_pipes();
        return {};
    }
    Result<std::vector<OperationResult>> apply(
        std::uint64_t retire_through, std::span<const EntryOperation> operations) override {
        pipeline_.release_retired(retire_through);
        return pipeline_.apply(operations);
    }
    Result<std::vector<FlowCounters>> query_entries(std::span<const EntryId> entries) override {
        return pipeline_.query_entries(entries);
    }
    Result<FlowCounters> query_miss(PipeId pipe) override { return pipeline_.query_miss(pipe); }
    Result<std::uint64_t> poll_frames(std::vector<CapturedFrame>& out) override {
        while (pipeline_.captured().pop(out, SIZE_MAX)) {
        }
        return pipeline_.captured().take_dropped();
    }

private:
    Pipeline& pipeline_;
};

}  // namespace

std::unique_ptr<PipeControl> make_local_control(Pipeline& pipeline, std::uint32_t queue_depth) {
    return std::make_unique<QueuedPipeControl>(std::make_unique<LocalPort>(pipeline), queue_depth);
}

}  // namespace rdmalab::flow

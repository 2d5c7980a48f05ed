#include "steer/pipe_builder.h"

#include <fmt/format.h>

#include <cerrno>

namespace rdmalab::steer {

namespace {

constexpr int kTurns = 100;  // of `complete`; the card answers in microseconds

}  // namespace

Status complete(flow::PipeControl& control, std::size_t count, Duration patience) {
    Status status;
    std::vector<flow::EntryCompletion> completions;
    const Duration turn{patience.ns / kTurns};
    for (int i = 0; i < kTurns && completions.size() < count; ++i) {
        const Result<std::size_t> got = control.process(turn, 0, completions);
        if (!got.ok()) return got.error();
    }
    for (const flow::EntryCompletion& completion : completions) {
        if (completion.status == flow::EntryStatus::kSuccess) continue;
        return completion.error.code != 0 ? Status(completion.error)
                                          : Status(Error{EIO, "an operation was not completed"});
    }
    if (completions.size() != count) {
        return Error{ETIMEDOUT, fmt::format("{} operations were completed, {} were expected",
                                            completions.size(), count)};
    }
    return {};
}

flow::PipeId PipeBuilder::pipe(const flow::PipeConfig& config) {
    if (!error_.ok()) return {};
    const Result<flow::PipeId> made = control_.create_pipe(config);
    if (!made.ok()) {
        error_ =
            Error{made.error().code, fmt::format("pipe {}: {}", config.name, made.error().text)};
        return {};
    }
    return *made;
}

flow::EntryId PipeBuilder::single(flow::PipeConfig config, flow::PipeId* made) {
    config.entries_max = 1;
    *made = pipe(config);
    return entry(*made, flow::BasicEntry{});
}

void PipeBuilder::collect() {
    constexpr Duration kPatience = seconds(10);
    const Status status = complete(control_, outstanding_, kPatience);
    outstanding_ = 0;
    if (!status.ok()) error_ = status;
}

void PipeBuilder::fail(flow::PipeId pipe, const Error& error) {
    error_ = Error{error.code, fmt::format("entry of pipe {}: {}", pipe.value, error.text)};
}

}  // namespace rdmalab::steer

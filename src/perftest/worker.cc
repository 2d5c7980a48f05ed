#include "perftest/worker.h"

#include "perftest/runner.h"

namespace rdmalab::perftest {

namespace {

struct Task {
    const Plan& plan;
    const Side& side;
    bool is_server;
    std::uint32_t index;
    std::optional<int> core;
};

void work(const Task& task, Channel& main, Board& board) {
    if (task.core) pin_to(*task.core);
    Roles roles = roles_of(task.plan, task.is_server);
    Endpoint endpoint(task.plan, task.side, roles, std::make_shared<Adapter>(task.side, task.core));
    if (!task.is_server) {
        endpoint.choose_gid(Json());
        main.send(MessageType::kResources, endpoint.describe());
    }
    Json peer = await(main, MessageType::kResources);
    if (task.is_server) endpoint.choose_gid(peer);
    endpoint.connect(peer, task.is_server);
    Runner runner(endpoint, roles, board.head(), board.line(task.index));
    runner.prime();
    Json self = task.is_server ? endpoint.describe() : Json{{"mtu", endpoint.mtu()}};
    main.send(task.is_server ? MessageType::kResources : MessageType::kConnected, self);
    Json start = await(main, MessageType::kStart);
    bool begins = !task.is_server || task.plan.bidirectional;
    if (begins) {
        runner.run(start.at("at").get<std::int64_t>());
        main.send(MessageType::kDrained, {{"posted", runner.result().posted}});
    }
    if (task.is_server || task.plan.bidirectional) runner.respond();
    ProcessResult result = runner.result();
    result.is_requester = begins;
    result.process = task.index;
    result.core = task.core;
    main.send(MessageType::kResults, result.to_json());
    // Queue pairs stay until both sides are done.
    await(main, MessageType::kBye);
}

}  // namespace

Roles roles_of(const Plan& plan, bool is_server) {
    if (plan.bidirectional || plan.is_ping_pong() || plan.lockstep) return {true, true};
    return {!is_server, is_server};
}

Work pair_work(const Plan& plan, const Side& side, bool is_server, const Placement& placement) {
    return [&, is_server](std::uint32_t index, Channel& main, Board& board) {
        work({plan, side, is_server, index, placement.cores[index]}, main, board);
    };
}

}  // namespace rdmalab::perftest

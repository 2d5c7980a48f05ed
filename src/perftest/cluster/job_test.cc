#include "perftest/cluster/job.h"

#include <gtest/gtest.h>

#include <set>

namespace rdmalab::perftest {
namespace {

Scenario planned(Request request) {
    request.try_emplace("device", "mlx5_0");
    auto out = plan_scenario(words_of_flags(request));
    return std::get<Scenario>(out);
}

std::size_t links(const Seating& seating) {
    std::size_t sum = 0;
    for (const AgentJob& job : seating.jobs) {
        for (const WorkerJob& worker : job.workers) sum += worker.links.size();
    }
    return sum;
}

TEST(Job, every_process_of_every_endpoint_is_a_worker_of_its_host) {
    Seating seating = seat(planned({{"server", "n[1-3]"},
                                    {"device", "mlx5_[0,1]"},
                                    {"num_processes", "2"},
                                    {"traffic_pattern", "a2a"}}));
    ASSERT_EQ(seating.jobs.size(), 3u);
    for (const AgentJob& job : seating.jobs) {
        EXPECT_EQ(job.workers.size(), 4u);
        std::set<std::pair<std::uint32_t, std::uint32_t>> seats;
        for (const WorkerJob& worker : job.workers) {
            EXPECT_TRUE(seats.emplace(worker.endpoint, worker.process).second);
            EXPECT_EQ(worker.links.size(), 10u);
        }
    }
    EXPECT_EQ(links(seating), 30u * 2 * 2);
}

TEST(Job, the_two_ends_of_a_link_name_each_other) {
    Seating seating =
        seat(planned({{"server", "n[1-4]"}, {"num_processes", "3"}, {"traffic_pattern", "ring"}}));
    for (std::uint32_t a = 0; a < seating.jobs.size(); ++a) {
        for (std::uint32_t w = 0; w < seating.jobs[a].workers.size(); ++w) {
            const WorkerJob& worker = seating.jobs[a].workers[w];
            for (const LinkJob& link : worker.links) {
                const WorkerJob& peer = seating.jobs[link.peer_agent].workers[link.peer_worker];
                EXPECT_EQ(peer.process, worker.process);
                auto back = std::find_if(peer.links.begin(), peer.links.end(), [&](auto& each) {
                    return each.connection == link.connection && each.is_source != link.is_source;
                });
                ASSERT_NE(back, peer.links.end());
                EXPECT_EQ(back->peer_agent, a);
                EXPECT_EQ(back->peer_worker, w);
            }
        }
    }
}

TEST(Job, endpoints_without_connections_have_no_workers) {
    Scenario scenario = planned({{"server", "n[1-2]"},
                                 {"device", "mlx5_[0,1]"},
                                 {"traffic_pattern", "o2o"},
                                 {"traffic_partition", "railed"}});
    scenario.tests[0].connections.pop_back();
    Seating seating = seat(scenario);
    EXPECT_EQ(seating.jobs[0].workers.size(), 1u);
    EXPECT_EQ(seating.jobs[1].workers.size(), 1u);
}

TEST(Job, tests_have_workers_of_their_own_and_connections_are_numbered_through) {
    ScenarioWords words = words_of_json(R"({"testNodes": [{"hostName": "n[1-2]",
        "deviceName": "d"}], "trafficPattern": "O2O", "tests": [{}, {"metric": "lat"}]})",
                                        "s");
    Seating seating = seat(std::get<Scenario>(plan_scenario(words)));
    ASSERT_EQ(seating.jobs[0].workers.size(), 2u);
    EXPECT_EQ(seating.jobs[0].workers[1].test, 1u);
    EXPECT_EQ(seating.jobs[0].workers[1].links[0].connection, 1u);
}

TEST(Job, what_is_sent_is_what_arrives) {
    Seating seating = seat(planned({{"server", "n[1-3]"},
                                    {"gid_index", "3"},
                                    {"cores", "4-5"},
                                    {"msg_size", "4096"},
                                    {"peer_shifting", "true"},
                                    {"traffic_pattern", "a2a"}}));
    EXPECT_EQ(seating.phase_ids, (std::vector<std::uint32_t>{1, 2}));
    const AgentJob& job = seating.jobs[1];
    Result<AgentJob> read = read_job(Json::parse(to_text(to_json(job))));
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(to_text(to_json(*read)), to_text(to_json(job)));
    Planned plan = planned_of(*read, read->workers[1], read->workers[1].links[0]);
    EXPECT_EQ(plan.side.cores, (std::vector<int>{5}));
    EXPECT_EQ(plan.side.gid_index, 3);
    EXPECT_EQ(plan.plan.operations[0].size, 4096u);
    EXPECT_EQ(plan.plan.end_margin_s, 2);
    EXPECT_FALSE(read_job(Json::object()).ok());
    EXPECT_FALSE(
        read_job(Json::parse(R"({"host": "a", "tests": [], "workers": [{"test": 1}]})")).ok());
}

// Whatever a plan says, the agents must be able to make it again from what they are told.
TEST(Job, plans_survive_the_way_to_the_agents) {
    const Request rows[] = {
        {{"metric", "lat"}, {"verb", "send"}, {"msg_size", "8"}, {"lat_threshold", "0.00001"}},
        {{"operations", "write:64k,send:64,atomic_fa:8"}, {"tx_depth", "96"}},
        {{"verb", "send"}, {"validate", "true"}, {"warmup_time", "0"}, {"iterations", "100"}},
        {{"iteration_sync", "true"}, {"iterations", "5"}, {"validate", "true"}, {"qps", "3"}},
        {{"bidirectional", "true"}, {"rate_limit", "0.25"}, {"num_processes", "2"}},
        {{"connection_type", "UD"}, {"verb", "send"}, {"msg_size", "256"}, {"mtu", "1024"}},
        {{"metric", "lat"}, {"verb", "read"}, {"iterations", "7"}, {"qp_histogram", "false"}}};
    for (Request request : rows) {
        request["server"] = "n[1-2]";
        request["traffic_pattern"] = "a2a";
        request.erase("qp_histogram");
        Scenario scenario = planned(request);
        Seating seating = seat(scenario);
        const AgentJob& job = seating.jobs[0];
        Plan plan = planned_of(job, job.workers[0], job.workers[0].links[0]).plan;
        plan.processes = scenario.tests[0].plan.processes;
        EXPECT_EQ(to_text(scenario_json(plan)), to_text(scenario_json(scenario.tests[0].plan)));
    }
}

}  // namespace
}  // namespace rdmalab::perftest

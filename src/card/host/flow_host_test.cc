// Programs that own a switch domain, over the socket of a running card.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "card/host/daemon_fixture.h"
#include "flow/client/client.h"

namespace rdmalab::card::host {
namespace {

using flow::client::Domain;
using Json = nlohmann::json;

class FlowHost : public DaemonTest {
protected:
    Result<std::unique_ptr<Domain>> attach(const std::string& pf = "mlx5_0") const {
        return Domain::attach({.pf = pf, .socket = socket_});
    }
    // The card notices the end of a client a little later.
    std::unique_ptr<Domain> attach_when_free() const {
        for (int i = 0; i < 500; ++i) {
            auto domain = attach();
            if (domain.ok()) return std::move(*domain);
            EXPECT_EQ(domain.error().code, EBUSY);
            ::usleep(10'000);
        }
        return nullptr;
    }
};

TEST_F(FlowHost, a_program_makes_pipes_and_entries_and_reads_counters) {
    const auto domain = attach();
    ASSERT_TRUE(domain.ok()) << domain.error().text;
    EXPECT_EQ((*domain)->device(), "mlx5_0");
    EXPECT_EQ((*domain)->card(), "test");
    flow::PipeControl& pipes = (*domain)->pipes();
    EXPECT_TRUE(pipes.find_port("pf0sf4"));
    flow::PipeConfig root;
    root.name = "root";
    root.is_root = true;
    root.monitor.counter = true;
    root.forward = flow::Forward::to_port(*pipes.find_port("wire"));
    const auto pipe = pipes.create_pipe(root);
    ASSERT_TRUE(pipe.ok()) << pipe.error().text;
    const auto entry = pipes.add_entry(*pipe, flow::BasicEntry{}, flow::Batch::kFlush);
    std::vector<flow::EntryCompletion> done;
    ASSERT_EQ(pipes.process(milliseconds(10), 1, done).value(), 1u);
    EXPECT_EQ(done[0].status, flow::EntryStatus::kSuccess) << done[0].error.text;
    EXPECT_EQ(pipes.query_entries({{*entry}})->front(), flow::FlowCounters{});
    EXPECT_EQ(pipes.create_pipe(root).error().code, EEXIST);
}

TEST_F(FlowHost, a_second_owner_is_told_who_the_first_is) {
    const auto first = attach();
    ASSERT_TRUE(first.ok()) << first.error().text;
    const auto second = attach("0000:03:00.0");
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, EBUSY);
    EXPECT_NE(second.error().text.find("the switch domain of mlx5_0 is owned by process " +
                                       std::to_string(::getpid()) + " ("),
              std::string::npos)
        << second.error().text;
    EXPECT_TRUE(attach("mlx5_1").ok());
}

TEST_F(FlowHost, a_domain_is_free_when_its_owner_lets_it_go_or_is_killed) {
    { ASSERT_TRUE(attach().ok()); }
    ASSERT_TRUE(attach_when_free());
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        const auto domain = attach_when_free();
        const char byte = domain ? 'y' : 'n';
        if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
        ::pause();
        ::_exit(0);
    }
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    EXPECT_EQ(byte, 'y');
    EXPECT_EQ(attach().error().code, EBUSY);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    EXPECT_TRUE(attach_when_free());
    ::close(ready[0]);
    ::close(ready[1]);
}

TEST_F(FlowHost, the_end_of_the_card_is_an_error_and_no_crash) {
    auto domain = attach();
    ASSERT_TRUE(domain.ok());
    end();
    flow::PipeConfig root;
    root.name = "root";
    EXPECT_EQ((*domain)->pipes().create_pipe(root).error().code, EPIPE);
    std::vector<flow::CapturedFrame> frames;
    EXPECT_EQ((*domain)->pipes().poll_frames(frames).error().code, EPIPE);
}

TEST_F(FlowHost, where_no_card_listens_the_error_says_how_to_start_one) {
    const auto domain = Domain::attach({.pf = "mlx5_0", .socket = folder_.path() + "/none.sock"});
    ASSERT_FALSE(domain.ok());
    EXPECT_EQ(domain.error().code, ENOENT);
    EXPECT_NE(domain.error().text.find("rdmalab up"), std::string::npos);
}

TEST_F(FlowHost, pipes_and_their_owner_are_described) {
    ControlClient client = connect();
    auto empty = Json::parse(admin(client, R"({"op":"flow"})").text);
    EXPECT_EQ(empty["domains"].size(), 2u);
    EXPECT_TRUE(empty["domains"][0]["owner"].is_null());
    EXPECT_EQ(admin(client, R"({"op":"flow_trace","pf":"mlx5_0"})").text,
              "no program owns the switch domain of mlx5_0: there are no pipes");

    const auto domain = attach();
    ASSERT_TRUE(domain.ok());
    flow::PipeControl& pipes = (*domain)->pipes();
    flow::PipeConfig root;
    root.name = "INGRESS_PATH_DEMUX";
    root.is_root = true;
    root.monitor.counter = true;
    root.match.l4_type = flow::L4Type::kRoceV2;
    root.match.values = {{flow::Field::kIpv4DscpEcn, 0xff}, {flow::Field::kIpv4Dst, 0x0a000001}};
    root.match_mask =
        flow::FieldValues{{flow::Field::kIpv4DscpEcn, 4}, {flow::Field::kIpv4Dst, 0xffffffff}};
    root.actions.push_back(
        {{{flow::Field::kIpv4DscpEcn, 3}}, flow::FieldValues{{flow::Field::kIpv4DscpEcn, 7}}, {}});
    root.forward = flow::Forward::to_port(*pipes.find_port("pf0sf0"));
    const auto pipe = pipes.create_pipe(root);
    ASSERT_TRUE(pipe.ok()) << pipe.error().text;
    const flow::BasicEntry entry{{{flow::Field::kIpv4DscpEcn, 4}}, {}};
    ASSERT_TRUE(pipes.add_entry(*pipe, entry, flow::Batch::kFlush).ok());
    const Json found = Json::parse(admin(client, R"({"op":"flow"})").text)["domains"][0];
    EXPECT_NE(found["owner"].get<std::string>().find(std::to_string(::getpid())),
              std::string::npos);
    const Json shown = found["pipes"][0];
    EXPECT_EQ(shown["name"], "INGRESS_PATH_DEMUX");
    EXPECT_EQ(shown["match"], Json::parse(R"(["l4_type=roce_v2","outer.ipv4.dst_ip=10.0.0.1",
                                             "outer.ipv4.dscp_ecn=*/0x4"])"));
    EXPECT_EQ(shown["forward"], Json::parse(R"({"kind":"port","name":"pf0sf0"})"));
    EXPECT_EQ(shown["entries"][0]["match"], Json::parse(R"(["outer.ipv4.dscp_ecn=0x4"])"));
    EXPECT_EQ(shown["entries"][0]["actions"], Json::parse(R"(["outer.ipv4.dscp_ecn=0x3/0x7"])"));
    EXPECT_EQ(shown["entries"][0]["counter"], Json::parse(R"({"packets":0,"bytes":0})"));

    const auto trace = R"({"op":"flow_trace","pf":"03:00.0","l4_type":"roce_v2","count":3,
                           "match":{"outer.ipv4.dst_ip":"10.0.0.1",
                                    "outer.ipv4.dscp_ecn":"0x04/0x04"}})";
    EXPECT_EQ(admin(client, trace).status, 0);
    const Json read = Json::parse(admin(client, R"({"op":"flow_trace_read","pf":"mlx5_0"})").text);
    EXPECT_EQ(read["remaining"], 3);
    EXPECT_EQ(read["packets"], Json::array());
    EXPECT_EQ(
        admin(client, R"({"op":"flow_trace","pf":"mlx5_0","match":{"outer.ipv4.ttl":"300"}})").text,
        "\"outer.ipv4.ttl\": expected VALUE or VALUE/MASK of at most 8 bits, found \"300\"");
    EXPECT_EQ(admin(client, R"({"op":"flow_trace","pf":"mlx5_0","match":{"ttl":"3"}})").text,
              "\"match\": expected a field such as outer.ipv4.dst_ip, found \"ttl\"");
}

TEST_F(FlowHost, a_connection_is_for_one_purpose) {
    ControlClient client = connect();
    ASSERT_EQ(open_device(client, 0).status, 0);
    const std::uint32_t flush = 5;
    client.send(abi::Op::kFlow, flush);
    EXPECT_EQ(client.receive().status, EBUSY);
    ControlClient other = connect();
    other.send(abi::Op::kFlow, bytes_of("x"));
    EXPECT_EQ(other.receive().status, EINVAL);
    EXPECT_EQ(admin(other, R"({"op":"status"})").status, 0);
}

}  // namespace
}  // namespace rdmalab::card::host

// A program owns the switch domain of a PF of a card: what happens to traffic.
#include "card/card_fixture.h"
#include "flow/message_port.h"

namespace rdmalab::card {
namespace {

using namespace testing;
using transport::WcStatus;

// A program with a session of its own.
class Program {
public:
    Program(Card& card, std::uint32_t session, const std::string& pf)
        : card_(card), session_{session} {
        const auto call = [this](ByteView request) -> Result<std::vector<std::byte>> {
            ControlReply reply = card_.handle_flow_request(
                session_, "process " + std::to_string(session_.value), request);
            if (reply.status != 0) return Error{reply.status, reply.text};
            return std::move(reply.body);
        };
        auto attached = flow::MessagePort::attach(call, {pf, 64, false});
        if (!attached.ok()) {
            refusal = attached.error();
            return;
        }
        pipes = std::make_unique<flow::QueuedPipeControl>(
            std::make_unique<flow::MessagePort>(call, attached->ports), 64);
    }
    ~Program() { card_.close_flow_session(session_); }
    Program(const Program&) = delete;

    flow::PortId port(const std::string& name) const { return pipes->find_port(name).value(); }
    void add(flow::PipeId pipe, const flow::BasicEntry& entry) const {
        ASSERT_TRUE(pipes->add_entry(pipe, entry, flow::Batch::kFlush).ok());
        std::vector<flow::EntryCompletion> done;
        ASSERT_TRUE(pipes->process({}, 0, done).ok());
        ASSERT_EQ(done.back().status, flow::EntryStatus::kSuccess) << done.back().error.text;
    }
    // Wire and the function's port, joined; `actions` for what leaves by the wire.
    void join(const std::string& function, std::vector<flow::ActionTemplate> actions = {}) const {
        flow::PipeConfig out;
        out.name = "OUT";
        out.actions = std::move(actions);
        out.forward = flow::Forward::to_port(port("wire"));
        const flow::PipeId out_pipe = pipes->create_pipe(out).value();
        add(out_pipe, {});
        flow::PipeConfig root;
        root.name = "PORT_DEMUX";
        root.is_root = true;
        root.match.values.set_all_ones(flow::Field::kParserPort);
        const flow::PipeId pipe = pipes->create_pipe(root).value();
        flow::BasicEntry entry;
        entry.match = {{flow::Field::kParserPort, port("wire").value}};
        entry.actions.forward = flow::Forward::to_port(port(function));
        add(pipe, entry);
        entry.match = {{flow::Field::kParserPort, port(function).value}};
        entry.actions.forward = flow::Forward::to_pipe(out_pipe);
        add(pipe, entry);
    }

    std::unique_ptr<flow::PipeControl> pipes;
    Error refusal;

private:
    Card& card_;
    FlowSessionId session_;
};

class FlowCard : public CardTest {
protected:
    bool arrives() {
        b_memory.assign(b_memory.size(), 'b');
        a.post_send(a_qp, write(++wr_id_, 100));
        setting.settle();
        return b_memory[99] == 'a';
    }
    // Lets the requester send again what was lost.
    WcStatus outcome() {
        setting.run_for(seconds(2));
        WcStatus last = WcStatus::kGeneralErr;
        while (const auto wc = a.poll(a_cq)) last = wc->status;
        return last;
    }
    std::uint64_t wr_id_ = 0;
};

TEST_F(FlowCard, an_owned_domain_without_pipes_drops_and_default_forwarding_returns) {
    EXPECT_TRUE(arrives());
    {
        Program program(setting.card, 1, "mlx5_0");
        ASSERT_TRUE(program.pipes) << program.refusal.text;
        EXPECT_FALSE(arrives());
        EXPECT_GT(setting.card.vport_counters(2).dropped, 0u);
    }
    EXPECT_EQ(outcome(), WcStatus::kSuccess);
    EXPECT_TRUE(arrives());
}

TEST_F(FlowCard, pipes_forward_between_wire_and_function) {
    Program program(setting.card, 1, "mlx5_0");
    program.join("pf0sf0");
    EXPECT_TRUE(arrives());
    EXPECT_EQ(outcome(), WcStatus::kSuccess);
    EXPECT_GT(setting.card.vport_counters(2).rx_frames, 0u);
}

TEST_F(FlowCard, a_rewrite_of_the_tos_arrives_and_one_of_the_udp_port_is_dropped) {
    {
        Program program(setting.card, 1, "mlx5_0");
        program.join("pf0sf0", {{{{flow::Field::kIpv4DscpEcn, 0x04}},
                                 flow::FieldValues{{flow::Field::kIpv4DscpEcn, 0x04}},
                                 {}}});
        EXPECT_TRUE(arrives());
        EXPECT_EQ(outcome(), WcStatus::kSuccess);
    }
    const auto errors = setting.card.engine(3).counters().rx_icrc_errors;
    {
        Program program(setting.card, 2, "mlx5_0");
        program.join("pf0sf0", {{{{flow::Field::kUdpSrc, 0x1234}}, std::nullopt, {}}});
        EXPECT_FALSE(arrives());
        EXPECT_GT(setting.card.engine(3).counters().rx_icrc_errors, errors);
    }
    EXPECT_EQ(outcome(), WcStatus::kSuccess);
}

TEST_F(FlowCard, a_domain_has_one_owner_and_only_a_pf_has_one) {
    Program first(setting.card, 1, "pci/0000:03:00.0");
    ASSERT_TRUE(first.pipes) << first.refusal.text;
    const Program second(setting.card, 2, "mlx5_0");
    EXPECT_EQ(second.refusal.code, EBUSY);
    EXPECT_EQ(second.refusal.text, "the switch domain of mlx5_0 is owned by process 1");
    const Program other(setting.card, 3, "mlx5_1");
    EXPECT_TRUE(other.pipes);
    EXPECT_EQ(Program(setting.card, 4, "mlx5_2").refusal.text,
              "\"mlx5_2\": expected a PF, found a function of mlx5_0");
    EXPECT_EQ(Program(setting.card, 5, "mlx5_9").refusal.text,
              "there is no PF \"mlx5_9\": expected one of mlx5_0, mlx5_1 or its PCI address");
    const auto domains = setting.card.flow_domains();
    ASSERT_EQ(domains.size(), 2u);
    EXPECT_EQ(domains[0].owner, "process 1");
    EXPECT_EQ(domains[1].owner, "process 3");
}

TEST_F(FlowCard, ports_are_the_wire_and_the_functions_with_their_addresses) {
    Program program(setting.card, 1, "mlx5_0");
    const auto& ports = program.pipes->ports();
    ASSERT_GE(ports.size(), 4u);
    EXPECT_EQ(ports[0].name, "p0");
    EXPECT_EQ(ports[0].kind, flow::PortKind::kWire);
    const auto sf0 = program.pipes->find_port("pf0sf0");
    ASSERT_TRUE(sf0);
    EXPECT_EQ(ports[sf0->value].device, "mlx5_2");
    ASSERT_FALSE(ports[sf0->value].addresses.empty());
    EXPECT_EQ(ports[sf0->value].addresses[0].to_string(), "10.0.0.1");
    EXPECT_EQ(program.pipes->find_port("mlx5_2"), sf0);
    EXPECT_FALSE(program.pipes->find_port("pf1sf0"));
    EXPECT_EQ(program.pipes->find_port("mlx5_0")->value, 1u);
}

TEST_F(FlowCard, copies_of_frames_reach_the_owner_whole) {
    Program program(setting.card, 1, "mlx5_0");
    flow::PipeConfig root;
    root.name = "root";
    root.is_root = true;
    root.forward = flow::Forward::to_queue(5);
    program.add(program.pipes->create_pipe(root).value(), {});
    EXPECT_FALSE(arrives());
    std::vector<flow::CapturedFrame> frames;
    EXPECT_EQ(program.pipes->poll_frames(frames).value(), 0u);
    ASSERT_EQ(frames.size(), 1u);
    EXPECT_EQ(frames[0].queue, 5);
    EXPECT_EQ(frames[0].port, program.port("pf0sf0"));
    const auto& bytes = frames[0].bytes;
    EXPECT_EQ(bytes.size(), 14u + 20 + 8 + 12 + 16 + 100 + 4);
    EXPECT_EQ(bytes[14 + 20 + 8 + 12 + 16], std::byte{'a'});
    wire::Frame parsed;
    EXPECT_EQ(wire::parse_frame(bytes, {}, parsed), wire::ParseError::kNone);
}

TEST_F(FlowCard, a_session_that_owns_nothing_has_no_pipes) {
    flow::Writer request;
    request(flow::CommandKind::kFlushPipes);
    const ControlReply reply =
        setting.card.handle_flow_request(FlowSessionId{9}, "process 9", request.bytes());
    EXPECT_EQ(reply.status, EINVAL);
    EXPECT_EQ(setting.card.trace_flow("mlx5_0", {}, std::nullopt, 1).code(), EINVAL);
}

}  // namespace
}  // namespace rdmalab::card

// What a program puts into its domain, packet by packet, and what happens when an update fails.
#include "steer/switch_program.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "steer/simulation_fixture.h"

namespace rdmalab::steer {
namespace {

using testing::Addresses;
using testing::Bytes;
using testing::kBlueIp;
using testing::kGreenIp;
using testing::kSenderIp;
using testing::RecordingConsole;

// A control whose updates fail when the test says so.
class FlakyControl : public flow::PipeControl {
public:
    explicit FlakyControl(flow::PipeControl& inner) : inner_(inner) {}
    std::optional<std::uint32_t> updates_until_failure;

    const std::vector<flow::PortInfo>& ports() const override { return inner_.ports(); }
    Result<flow::PipeId> create_pipe(const flow::PipeConfig& config) override {
        names.push_back(config.name);
        return inner_.create_pipe(config);
    }
    Status destroy_pipe(flow::PipeId pipe) override { return inner_.destroy_pipe(pipe); }
    Status update_miss(flow::PipeId pipe, const flow::Forward& miss) override {
        return inner_.update_miss(pipe, miss);
    }
    Status flush_pipes() override { return inner_.flush_pipes(); }
    Result<flow::EntryId> add_entry(flow::PipeId pipe, const flow::BasicEntry& entry,
                                    flow::Batch batch, std::uint64_t user_data) override {
        return inner_.add_entry(pipe, entry, batch, user_data);
    }
    Result<flow::EntryId> add_entry(flow::PipeId pipe, const flow::ControlEntry& entry,
                                    flow::Batch batch, std::uint64_t user_data) override {
        return inner_.add_entry(pipe, entry, batch, user_data);
    }
    Result<flow::EntryId> add_entry(flow::PipeId pipe, const flow::HashEntry& entry,
                                    flow::Batch batch, std::uint64_t user_data) override {
        return inner_.add_entry(pipe, entry, batch, user_data);
    }
    Status update_entry(flow::EntryId entry, const flow::EntryActions& actions,
                        flow::Batch batch) override {
        if (updates_until_failure && (*updates_until_failure)-- == 0) {
            updates_until_failure.reset();
            return Error{EAGAIN, "no room for the replacement"};
        }
        ++updates;
        return inner_.update_entry(entry, actions, batch);
    }
    Status remove_entry(flow::EntryId entry, flow::Batch batch) override {
        return inner_.remove_entry(entry, batch);
    }
    Result<std::size_t> process(Duration timeout, std::size_t max,
                                std::vector<flow::EntryCompletion>& out) override {
        return inner_.process(timeout, max, out);
    }
    Result<flow::EntryStatus> entry_status(flow::EntryId entry) const override {
        return inner_.entry_status(entry);
    }
    Result<std::vector<flow::FlowCounters>> query_entries(
        std::span<const flow::EntryId> entries) override {
        return inner_.query_entries(entries);
    }
    Result<flow::FlowCounters> query_miss(flow::PipeId pipe) override {
        return inner_.query_miss(pipe);
    }
    Result<std::uint64_t> poll_frames(std::vector<flow::CapturedFrame>& out) override {
        return inner_.poll_frames(out);
    }
    int updates = 0;
    std::vector<std::string> names;

private:
    flow::PipeControl& inner_;
};

constexpr flow::PortId kWire{0}, kFirst{1}, kSecond{2}, kStranger{3};

class SwitchProgramTest : public ::testing::Test, public flow::PacketSink {
protected:
    SwitchProgramTest()
        : pipeline(make_ports(), {}),
          local(flow::make_local_control(pipeline, 2 * kBucketMax)),
          control(*local) {}

    static std::vector<flow::PortInfo> make_ports() {
        std::vector<flow::PortInfo> ports(4);
        const char* const names[] = {"p0", "pf0sf0", "pf0sf4", "pf0sf9"};
        for (std::uint16_t i = 0; i < ports.size(); ++i) {
            ports[i].id = flow::PortId{i};
            ports[i].kind = i == 0 ? flow::PortKind::kWire : flow::PortKind::kVport;
            ports[i].name = names[i];
        }
        return ports;
    }
    static SwitchOptions options_of(Role role) {
        SwitchOptions options;
        options.role = role;
        options.role_text = "test";
        options.common.paths.resize(2);
        options.common.paths[0].ip = kBlueIp;
        options.common.paths[1].ip = kGreenIp;
        options.functions = {"pf0sf0", "pf0sf4"};
        if (role == Role::kEgress) options.functions.resize(1);
        return options;
    }
    SwitchProgram& start(const SwitchOptions& options) {
        program = std::make_unique<SwitchProgram>(control, options, console);
        const Status status = program->start();
        EXPECT_TRUE(status.ok()) << status.error().text;
        return *program;
    }
    // Ports that the frame left by, in order; `tos` of the last.
    std::vector<flow::PortId> send(flow::PortId from, const Bytes& bytes) {
        left.clear();
        wire::Frame frame;
        EXPECT_EQ(wire::parse_frame(
                      bytes, {kCardSpace, 0, reinterpret_cast<std::uint64_t>(bytes.data())}, frame),
                  wire::ParseError::kNone);
        pipeline.process(from, frame, *this);
        return left;
    }
    void to_port(flow::PortId port, wire::Frame& frame) override {
        left.push_back(port);
        if (frame.l3_offset != 0) tos = wire::traffic_class(frame);
        EXPECT_TRUE(frame.icrc_state == wire::IcrcState::kNone ||
                    wire::invariants_unchanged(frame));
    }
    void to_queue(std::uint16_t, flow::PortId, const wire::Frame&) override { ++copies; }

    flow::Pipeline pipeline;
    std::unique_ptr<flow::PipeControl> local;
    FlakyControl control;
    RecordingConsole console;
    std::unique_ptr<SwitchProgram> program;
    std::vector<flow::PortId> left;
    std::uint8_t tos = 0;
    int copies = 0;
};
using Ports = std::vector<flow::PortId>;

constexpr Addresses kToBlue{kSenderIp, kBlueIp}, kToGreen{kSenderIp, kGreenIp};
constexpr Addresses kFromBlue{kBlueIp, kSenderIp};
constexpr Qpn kSomeQp{0x123};

TEST_F(SwitchProgramTest, ingress_delivers_by_address_and_clears_only_the_private_bit) {
    SwitchOptions options = options_of(Role::kIngress);
    options.common.paths[0].percent = options.common.paths[1].percent = 0;
    start(options);
    EXPECT_EQ(send(kWire, testing::write_frame(kToBlue, kSomeQp, 64, 0xfe)), Ports{kFirst});
    EXPECT_EQ(tos, 0xfa);
    EXPECT_EQ(send(kWire, testing::write_frame(kToGreen, kSomeQp, 64, 0x06)), Ports{kSecond});
    EXPECT_EQ(tos, 0x02);
    EXPECT_EQ(send(kWire, testing::write_frame({kSenderIp, 0x0a0000ff}, kSomeQp, 64)),
              Ports{kFirst});
    EXPECT_EQ(send(kFirst, testing::write_frame(kFromBlue, kSomeQp, 64, 0x06)), Ports{kWire});
    EXPECT_EQ(tos, 0x06) << "what receivers send is left alone";
}

TEST_F(SwitchProgramTest, ingress_marks_the_probe_of_each_path_only) {
    start(options_of(Role::kIngress));  // 100 %
    const auto sent_tos = [&](const Addresses& addresses, std::uint8_t before) {
        send(kWire, testing::write_frame(addresses, kSomeQp, 64, before));
        return tos;
    };
    EXPECT_EQ(sent_tos(kToBlue, 0x82), 0x83) << "path 0 marks blue";
    EXPECT_EQ(sent_tos(kToGreen, 0x82), 0x82);
    EXPECT_EQ(sent_tos(kToBlue, 0x86), 0x82) << "path 1 does not";
    EXPECT_EQ(sent_tos(kToGreen, 0x86), 0x83);
    EXPECT_TRUE(program->end_interval({}).ok());
    EXPECT_TRUE(console.has("ingress newly CE-marked: path0=1 (+1, 1/s) path1=1 (+1, 1/s)"));
}

TEST_F(SwitchProgramTest, arp_is_flooded_and_management_packets_are_copied) {
    start(options_of(Role::kIngress));
    EXPECT_EQ(send(kWire, testing::arp_frame()), (Ports{kFirst, kSecond}));
    EXPECT_EQ(send(kSecond, testing::arp_frame()), Ports{kWire});
    EXPECT_EQ(copies, 0);
    EXPECT_EQ(send(kWire, testing::cm_frame(kToGreen, testing::request(7, kSomeQp))),
              Ports{kSecond});
    EXPECT_EQ(copies, 1);
    EXPECT_EQ(send(kFirst, testing::cm_frame(kFromBlue, testing::reply(7, 9, kSomeQp))),
              Ports{kWire});
    EXPECT_EQ(copies, 2);
}

TEST_F(SwitchProgramTest, ports_that_were_not_named_are_cut_off) {
    start(options_of(Role::kIngress));
    EXPECT_EQ(send(kStranger, testing::write_frame(kToBlue, kSomeQp, 64)), Ports{});
}

TEST_F(SwitchProgramTest, egress_writes_only_the_private_bit_and_spreads_roce_alone) {
    start(options_of(Role::kEgress));
    int marked = 0;
    for (int i = 0; i < 2000; ++i) {
        ASSERT_EQ(send(kFirst, testing::write_frame(kToBlue, kSomeQp, 64, 0xfa)), Ports{kWire});
        ASSERT_EQ(tos & ~0x04, 0xfa);
        marked += (tos & 0x04) != 0 ? 1 : 0;
    }
    EXPECT_NEAR(marked, 1000, 150);
    EXPECT_EQ(send(kFirst, testing::arp_frame()), Ports{kWire});
    EXPECT_EQ(send(kWire, testing::cnp_frame(kFromBlue, kSomeQp)), Ports{kFirst});
    EXPECT_TRUE(program->end_interval({}).ok());
    EXPECT_TRUE(console.has(" ratio=32:32 buckets"));
}

TEST_F(SwitchProgramTest, both_roles_live_in_one_domain) {
    start(options_of(Role::kBoth));
    EXPECT_EQ(send(kFirst, testing::write_frame(kToGreen, kSomeQp, 64)), Ports{kWire});
    EXPECT_EQ(send(kWire, testing::write_frame(kToGreen, kSomeQp, 64, 0x06)), Ports{kSecond});
    EXPECT_EQ(tos, 0x03) << "marked, since 100 % is the default, and cleared";
    EXPECT_EQ(send(kWire, testing::arp_frame()), (Ports{kFirst, kSecond}));
}

TEST_F(SwitchProgramTest, a_forced_path_needs_no_classifier) {
    SwitchOptions options = options_of(Role::kEgress);
    options.common.force_path = 1;
    start(options);
    for (int i = 0; i < 20; ++i) {
        send(kFirst, testing::write_frame(kToBlue, kSomeQp, 64, 0x02));
        ASSERT_EQ(tos, 0x06);
    }
    EXPECT_EQ(std::ranges::count(control.names, "EGRESS_CLASSIFY"), 0);
    EXPECT_FALSE(console.has("ready"));
}

TEST_F(SwitchProgramTest, sixteen_paths_use_four_bits) {
    SwitchOptions options = options_of(Role::kEgress);
    options.common.paths.resize(16);
    for (std::uint32_t i = 0; i < 16; ++i) options.common.paths[i].ip = kBlueIp + i;
    options.common.buckets = 1024;
    start(options);
    std::set<std::uint8_t> seen;
    for (int i = 0; i < 1000; ++i) {
        send(kFirst, testing::write_frame(kToBlue, kSomeQp, 64, 0xc2));
        ASSERT_EQ(tos & ~0x3c, 0xc2);
        seen.insert(tos);
    }
    EXPECT_EQ(seen.size(), 16u);
}

TEST_F(SwitchProgramTest, a_failed_update_is_said_and_retried_and_nothing_else_is_touched) {
    SwitchProgram& running = start(options_of(Role::kEgress));
    ASSERT_TRUE(running.set_shares({32}).ok());
    EXPECT_EQ(control.updates, 0);
    control.updates_until_failure = 8;
    EXPECT_FALSE(running.set_shares({48}).ok());
    EXPECT_EQ(control.updates, 8);
    EXPECT_EQ(running.egress()->snapshot().applied.share(0), 32u);
    ASSERT_TRUE(running.set_shares({48}).ok());
    EXPECT_EQ(control.updates, 16) << "the eight that had moved are not moved again";
    ASSERT_TRUE(running.set_shares({48}).ok());
    EXPECT_EQ(control.updates, 16);
    EXPECT_EQ(console.count("PCC path share applied: path0 32->48/64 path1=16/64"), 1u);
}

TEST_F(SwitchProgramTest, the_controller_reports_a_failed_update_and_retries_it) {
    SwitchOptions options = options_of(Role::kEgress);
    options.steers = true;
    SwitchProgram& running = start(options);
    EgressController& controller = *running.egress();
    controller.handle_frame(testing::cm_frame(kToBlue, testing::request(1, Qpn{0x10})), false);
    controller.handle_frame(testing::cm_frame(kToGreen, testing::request(2, Qpn{0x11})), false);
    controller.report(Qpn{0x10}, 3000);
    controller.report(Qpn{0x11}, 1000);
    control.updates_until_failure = 8;
    ASSERT_TRUE(running.end_interval({}).ok());
    EXPECT_TRUE(
        console.has("path-share update failed at bucket 40 (no room for the replacement); "
                    "will retry"));
    EXPECT_TRUE(console.has("egress assigned counters: path0=0 path1=0 ratio=32:32 buckets"));
    ASSERT_TRUE(running.end_interval({}).ok());
    EXPECT_TRUE(console.has("PCC path share applied: path0 32->48/64 path1=16/64"));
    EXPECT_EQ(controller.snapshot().failures_total, 1u);
    EXPECT_EQ(controller.snapshot().updates_total, 16u);
}

TEST_F(SwitchProgramTest, unknown_representors_and_ports_are_named) {
    SwitchOptions options = options_of(Role::kIngress);
    options.functions[1] = "pf0sf7";
    Status status = SwitchProgram(control, options, console).start();
    EXPECT_EQ(status.code(), EINVAL);
    EXPECT_EQ(status.error().text,
              "the switch has no port or representor 'pf0sf7'; it has: p0, pf0sf0, pf0sf4, pf0sf9");
    options = options_of(Role::kIngress);
    options.common.paths[0].port = "p0";
    options.common.paths[1].port = "pf0sf9";
    status = SwitchProgram(control, options, console).start();
    EXPECT_EQ(status.error().text,
              "'pf0sf9' is a function, not a port of the card that could be a next hop");
}

TEST_F(SwitchProgramTest, a_receiver_must_have_the_address_of_its_path) {
    std::vector<flow::PortInfo> ports = make_ports();
    ports[1].addresses = {*Gid::parse("fd00::1"), *Gid::parse("10.0.0.77")};
    flow::Pipeline other(ports, {});
    const auto other_control = flow::make_local_control(other);
    const Status status =
        SwitchProgram(*other_control, options_of(Role::kIngress), console).start();
    EXPECT_EQ(status.error().text,
              "--path0-ip: 10.0.0.1 is not an address of pf0sf0, which has fd00::1, 10.0.0.77");
}

TEST_F(SwitchProgramTest, a_path_does_not_end_on_the_senders_side) {
    std::vector<flow::PortInfo> ports = make_ports();
    ports[1].addresses = {Gid::from_ipv4(kSenderIp), *Gid::parse("10.0.0.11")};
    flow::Pipeline other(ports, {});
    const auto other_control = flow::make_local_control(other);
    const Status status = SwitchProgram(*other_control, options_of(Role::kEgress), console).start();
    EXPECT_EQ(status.code(), EINVAL);
    EXPECT_EQ(status.error().text,
              "--path1-ip: 10.0.0.11 is an address of pf0sf0, on the sender's side; expected that "
              "of a receiver behind the wire");
}

TEST_F(SwitchProgramTest, several_senders_get_back_what_is_theirs) {
    std::vector<flow::PortInfo> ports = make_ports();
    ports[1].addresses = {Gid::from_ipv4(kSenderIp)};
    ports[2].addresses = {Gid::from_ipv4(kSenderIp + 1)};
    flow::Pipeline other(ports, {});
    const auto other_control = flow::make_local_control(other);
    SwitchOptions options = options_of(Role::kEgress);
    options.functions = {"pf0sf0", "pf0sf4"};
    SwitchProgram two_senders(*other_control, options, console);
    ASSERT_TRUE(two_senders.start().ok());
    const auto receive = [&](std::uint32_t destination) {
        left.clear();
        const Bytes bytes = testing::cnp_frame({kBlueIp, destination}, kSomeQp);
        wire::Frame frame;
        wire::parse_frame(bytes, {kCardSpace, 0, reinterpret_cast<std::uint64_t>(bytes.data())},
                          frame);
        other.process(kWire, frame, *this);
        return left;
    };
    EXPECT_EQ(receive(kSenderIp), Ports{kFirst});
    EXPECT_EQ(receive(kSenderIp + 1), Ports{kSecond});
    EXPECT_EQ(receive(kSenderIp + 2), Ports{kFirst});
}

TEST_F(SwitchProgramTest, stopping_takes_the_pipes_away) {
    SwitchProgram& running = start(options_of(Role::kIngress));
    running.stop();
    EXPECT_TRUE(pipeline.pipes().empty());
}

}  // namespace
}  // namespace rdmalab::steer

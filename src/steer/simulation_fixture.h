// The whole experiment in virtual time: two switch domains with the pipes that the programs make,
// the cable between them, senders that post at a steady rate, receivers that answer CE marks with
// CNPs, the congestion control algorithm in its runtime, and the controller. Everything but sender,
// receiver and cable is the code that runs in production.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/prng.h"
#include "flow/local_control.h"
#include "flow/pipeline.h"
#include "pcc/host/algorithm.h"
#include "pcc/runtime.h"
#include "steer/switch_program.h"
#include "steer/testing.h"
#include "wire/headers.h"
#include "wire/icrc.h"

namespace rdmalab::steer::testing {

class RecordingConsole : public Console {
public:
    void line(LogLevel, const std::string& text) override { lines.push_back(text); }
    void record(const nlohmann::json& object) override { records.push_back(object); }
    bool has(const std::string& part) const { return count(part) > 0; }
    std::size_t count(const std::string& part) const {
        return static_cast<std::size_t>(std::ranges::count_if(
            lines, [&](const std::string& text) { return text.find(part) != std::string::npos; }));
    }
    std::vector<std::string> lines;
    std::vector<nlohmann::json> records;
};

struct SimulationOptions {
    std::uint32_t paths = 2, buckets = 64;
    Compat compat = Compat::k3_4;
    std::vector<double> percents = {0.2, 0.4};
    bool real_next_hops = false;  // a cable per path
    double loss = 0;              // of each cable, each way
    std::uint64_t seed = 1;
    double packets_per_second = 20'000;  // of each flow
    std::uint32_t packets_per_tx_event = 1;
    Role egress_role = Role::kEgress;
};

// One domain: a pipeline and, when no program owns it, the default forwarding.
class Domain : public flow::PacketSink {
public:
    Domain(std::vector<flow::PortInfo> ports, std::uint64_t seed,
           std::function<void(flow::PortId, wire::Frame&)> out)
        : pipeline_(std::move(ports), {.seed = seed}), out_(std::move(out)) {}

    void own(SwitchOptions options) {
        control_ = flow::make_local_control(pipeline_, 2 * kBucketMax);
        program_ = std::make_unique<SwitchProgram>(*control_, std::move(options), console);
        const Status status = program_->start();
        ASSERT_TRUE(status.ok()) << status.error().text;
    }
    // kill -9: nobody says farewell, the card takes the pipes away.
    void kill() {
        program_.reset();
        control_.reset();
        pipeline_.flush_pipes();
    }
    bool is_owned() const { return program_ != nullptr; }
    SwitchProgram& program() { return *program_; }
    flow::PipeControl& control() { return *control_; }
    flow::Pipeline& pipeline() { return pipeline_; }

    // False: the packet was dropped.
    bool send(flow::PortId ingress, wire::Frame& frame) {
        return pipeline_.process(ingress, frame, *this);
    }
    void to_port(flow::PortId port, wire::Frame& frame) override { out_(port, frame); }
    void to_queue(std::uint16_t queue, flow::PortId ingress, const wire::Frame& frame) override {
        const ByteView payload =
            frame.segment_count == 0
                ? ByteView()
                : ByteView(reinterpret_cast<const std::byte*>(frame.segments[0].address),
                           frame.payload_length);
        const ByteSpan room = pipeline_.captured().push(queue, ingress, wire::wire_length(frame));
        if (!room.empty()) wire::write_frame(frame, payload, room);
    }

    RecordingConsole console;

private:
    flow::Pipeline pipeline_;
    std::function<void(flow::PortId, wire::Frame&)> out_;
    std::unique_ptr<flow::PipeControl> control_;
    std::unique_ptr<SwitchProgram> program_;
};

class Simulation {
public:
    explicit Simulation(SimulationOptions options)
        : options_(std::move(options)),
          random_(options_.seed),
          sender_(sender_ports(), options_.seed * 2 + 1,
                  [this](flow::PortId port, wire::Frame& frame) { leave_sender(port, frame); }),
          receiver_(receiver_ports(), options_.seed * 2 + 2,
                    [this](flow::PortId port, wire::Frame& frame) { leave_receiver(port, frame); }),
          flows_(options_.paths) {
        for (std::uint32_t i = 0; i < options_.paths; ++i) {
            flows_[i].sender = Qpn{0x100 + i};
            flows_[i].receiver = Qpn{0x200 + i};
        }
    }

    // --- Programs
    void start_ingress() {
        SwitchOptions options;
        options.role = Role::kIngress;
        options.role_text = "ingress";
        options.common = common();
        for (std::uint32_t i = 0; i < options_.paths; ++i) {
            options.functions.push_back("pf0sf" + std::to_string(i));
        }
        receiver_.own(options);
    }
    void start_pcc() {
        SwitchOptions options;
        options.common = common();
        options.functions = {"pf1sf0"};
        options.steers = true;
        sender_.own(options);
        auto algorithm = pcc::host::Algorithm::load(RDMALAB_PCC_ALGORITHMS "/pure_ecn.so");
        ASSERT_TRUE(algorithm.ok()) << algorithm.error().text;
        algorithm_ = std::move(*algorithm);
        pcc::RuntimeOptions runtime;
        runtime.trace_layout =
            options_.compat == Compat::k3_4 ? pcc::TraceLayout::k3_4 : pcc::TraceLayout::k3_1;
        runtime.trace_capacity = 1u << 20;
        runtime_ = std::make_unique<pcc::Runtime>(algorithm_->entry(), std::move(runtime));
        ASSERT_TRUE(runtime_->start().ok());
    }
    void kill_ingress() { receiver_.kill(); }
    void kill_pcc() {
        sender_.kill();
        runtime_.reset();
        algorithm_.reset();
    }

    // --- Traffic
    // Each flow connects to its own receiver: REQ, REP, as the programs see them.
    void connect() {
        for (std::uint32_t i = 0; i < options_.paths; ++i) connect(i);
    }
    void connect(std::uint32_t i) {
        Flow& flow = flows_[i];
        const Addresses there{kSenderIp, ip(i)}, back{ip(i), kSenderIp};
        const std::uint32_t comm_id = 1000 + i;
        send_bytes(cm_frame(there, request(comm_id, flow.sender)), true, i);
        send_bytes(cm_frame(back, reply(comm_id, 2000 + i, flow.receiver)), false, i);
        flow.is_connected = true;
        if (sender_.is_owned()) poll();
    }
    // Virtual seconds with traffic; the programs report and decide at the end of each.
    void run(int seconds_count) {
        for (int i = 0; i < seconds_count; ++i) {
            run_second();
            end_interval();
        }
    }

    // --- What happened
    std::uint32_t share(std::uint32_t path = 0) {
        return sender_.program().egress()->snapshot().applied.share(path);
    }
    // Mean share of path `path` over so many further seconds.
    double mean_share(int seconds_count, std::uint32_t path = 0) {
        double sum = 0;
        for (int i = 0; i < seconds_count; ++i) {
            run(1);
            sum += share(path);
        }
        return sum / seconds_count;
    }
    struct Totals {
        std::uint64_t sent = 0, received = 0, lost = 0, dropped = 0, cnps = 0, marks = 0;
        std::uint64_t marker_left = 0;  // packets that reached a receiver with a private bit
    };
    const Totals& totals() const { return totals_; }
    Domain& sender() { return sender_; }
    Domain& receiver() { return receiver_; }
    std::uint64_t received_by(std::uint32_t flow) const { return flows_[flow].received; }

    static std::uint32_t ip(std::uint32_t path) {
        return path == 0 ? kBlueIp : kGreenIp + path - 1;
    }

private:
    struct Flow {
        Qpn sender, receiver;
        bool is_connected = false;
        std::uint64_t sent = 0, received = 0, cnp_ready_ns = 0;
        std::uint32_t packets_in_event = 0;
        wire::Frame frame;
        bool has_frame = false;
    };
    static constexpr std::uint32_t kPayload = 1024;
    static constexpr std::uint64_t kCnpIntervalNs = 4'000, kSecondNs = 1'000'000'000;
    static constexpr std::uint16_t kFirstFunction = 100;

    std::uint32_t cables() const { return options_.real_next_hops ? options_.paths : 1; }
    std::vector<flow::PortInfo> ports(const std::string& pf, const std::string& wire,
                                      std::uint32_t functions) const {
        std::vector<flow::PortInfo> result;
        for (std::uint32_t i = 0; i < cables(); ++i) {
            flow::PortInfo port;
            port.id = flow::PortId{static_cast<std::uint16_t>(i)};
            port.kind = flow::PortKind::kWire;
            port.name = wire + std::to_string(i);
            result.push_back(port);
        }
        for (std::uint32_t i = 0; i < functions; ++i) {
            flow::PortInfo port;
            port.id = flow::PortId{static_cast<std::uint16_t>(kFirstFunction + i)};
            port.name = pf + "sf" + std::to_string(i);
            port.device = "mlx5_" + std::to_string(i);
            result.push_back(port);
        }
        return result;
    }
    std::vector<flow::PortInfo> sender_ports() const { return ports("pf1", "p", 1); }
    std::vector<flow::PortInfo> receiver_ports() const { return ports("pf0", "p", options_.paths); }
    CommonOptions common() const {
        CommonOptions common;
        common.buckets = options_.buckets;
        common.compat = options_.compat;
        for (std::uint32_t i = 0; i < options_.paths; ++i) {
            PathOptions path;
            path.ip = ip(i);
            path.percent = options_.percents[i];
            if (options_.real_next_hops) path.port = "p" + std::to_string(i);
            common.paths.push_back(path);
        }
        return common;
    }

    // --- The way of a packet
    void send_from_sender(wire::Frame& frame) {
        const flow::PortId function{kFirstFunction};
        if (!sender_.is_owned()) {
            cross(frame, flow::PortId{0}, true);
        } else if (!sender_.send(function, frame)) {
            ++totals_.dropped;
        }
    }
    void send_from_receiver(std::uint32_t path, wire::Frame& frame) {
        const flow::PortId function{static_cast<std::uint16_t>(kFirstFunction + path)};
        if (!receiver_.is_owned()) {
            cross(frame, flow::PortId{0}, false);
        } else if (!receiver_.send(function, frame)) {
            ++totals_.dropped;
        }
    }
    void leave_sender(flow::PortId port, wire::Frame& frame) {
        if (port.value >= kFirstFunction) {
            arrive_at_sender(frame);
        } else {
            cross(frame, port, true);
        }
    }
    void leave_receiver(flow::PortId port, wire::Frame& frame) {
        if (port.value >= kFirstFunction) {
            arrive_at_receiver(port.value - kFirstFunction, frame);
        } else {
            cross(frame, port, false);
        }
    }
    void cross(wire::Frame& frame, flow::PortId cable, bool to_receiver) {
        if (random_.chance(options_.loss)) {
            ++totals_.lost;
            return;
        }
        Domain& domain = to_receiver ? receiver_ : sender_;
        if (domain.is_owned()) {
            if (!domain.send(cable, frame)) ++totals_.dropped;
            return;
        }
        if (!to_receiver) return arrive_at_sender(frame);
        for (std::uint32_t i = 0; i < options_.paths; ++i) {
            if (wire::destination_gid(frame).ipv4() == ip(i)) arrive_at_receiver(i, frame);
        }
    }
    void arrive_at_receiver(std::uint32_t path, wire::Frame& frame) {
        const auto* bth = wire::header_at<wire::Bth>(frame, frame.bth_offset);
        Flow& flow = flows_[path];
        if (Qpn{bth->destination_qp} != flow.receiver) return;
        ++totals_.received;
        ++flow.received;
        const std::uint8_t tos = wire::traffic_class(frame);
        if ((tos & ~wire::kEcnMask) != kOtherDscpBits) ++totals_.marker_left;
        if ((tos & wire::kEcnMask) != wire::kEcnCe) return;
        ++totals_.marks;
        if (now_ns_ < flow.cnp_ready_ns) return;
        flow.cnp_ready_ns = now_ns_ + kCnpIntervalNs;
        wire::Frame cnp;
        wire::Path back;
        back.source = Gid::from_ipv4(ip(path));
        back.destination = Gid::from_ipv4(kSenderIp);
        wire::emit_cnp(cnp, wire::make_lower_template(back), flow.sender);
        send_from_receiver(path, cnp);
    }
    void arrive_at_sender(wire::Frame& frame) {
        const auto* bth = wire::header_at<wire::Bth>(frame, frame.bth_offset);
        if (bth->opcode != wire::kOpcodeCnp) return;
        ++totals_.cnps;
        for (std::uint32_t i = 0; i < flows_.size(); ++i) {
            if (flows_[i].sender != Qpn{bth->destination_qp}) continue;
            pcc::Event event;
            event.type = pcc::EventType::kCnp;
            event.feedback = {
                .first_timestamp_ns = now_ns_, .first_sn = 0, .coalesced = 1, .reserved = 0};
            give(i, event);
        }
    }
    void send_bytes(const Bytes& bytes, bool from_sender, std::uint32_t path) {
        wire::Frame frame;
        const wire::PayloadSegment where{kCardSpace, 0,
                                         reinterpret_cast<std::uint64_t>(bytes.data())};
        ASSERT_EQ(wire::parse_frame(bytes, where, frame), wire::ParseError::kNone);
        if (from_sender) {
            send_from_sender(frame);
        } else {
            send_from_receiver(path, frame);
        }
    }

    // --- Time
    void run_second() {
        const auto count = static_cast<std::uint64_t>(options_.packets_per_second);
        const std::uint64_t gap = kSecondNs / count;
        for (std::uint64_t n = 0; n < count; ++n) {
            now_ns_ += gap;
            // In an order by chance: with a fixed one, each thousandth event would always be of the
            // same flow.
            const std::uint64_t first = random_.below(flows_.size());
            for (std::uint64_t i = 0; i < flows_.size(); ++i) {
                const auto flow = static_cast<std::uint32_t>((first + i) % flows_.size());
                if (flows_[flow].is_connected) send_one(flow);
            }
            if (n % (count / 100) == 0) poll();
        }
    }
    // The programs look for copied frames a hundred times a second.
    void poll() {
        for (Domain* domain : {&sender_, &receiver_}) {
            if (!domain->is_owned()) continue;
            ASSERT_TRUE(domain->program().poll().ok());
        }
    }
    void send_one(std::uint32_t i) {
        Flow& flow = flows_[i];
        if (!flow.has_frame) make_frame(flow, i);
        wire::Frame frame = flow.frame;
        ++flow.sent;
        ++totals_.sent;
        send_from_sender(frame);
        if (++flow.packets_in_event < options_.packets_per_tx_event) return;
        pcc::Event event;
        event.type = pcc::EventType::kTx;
        event.tx = {.first_timestamp_ns = now_ns_,
                    .sent_bytes = flow.packets_in_event * kPayload,
                    .sent_packets = flow.packets_in_event,
                    .reserved = 0};
        flow.packets_in_event = 0;
        give(i, event);
        if (flow.sent % kPacketsPerAck == 0) send_ack(i);
    }
    void send_ack(std::uint32_t i) {
        wire::Path back;
        back.source = Gid::from_ipv4(ip(i));
        back.destination = Gid::from_ipv4(kSenderIp);
        wire::Frame ack;
        wire::start_roce(ack, wire::make_lower_template(back), *wire::find_opcode(kOpcodeAck));
        wire::header_at<wire::Bth>(ack, ack.bth_offset)->destination_qp = flows_[i].sender.value;
        wire::finish_roce(ack);
        send_from_receiver(i, ack);
    }
    void make_frame(Flow& flow, std::uint32_t i) {
        const Bytes bytes = write_frame({kSenderIp, ip(i)}, flow.receiver, kPayload,
                                        kOtherDscpBits | wire::kEcnEct0);
        memory_.push_back(bytes);
        const wire::PayloadSegment where{kCardSpace, 0,
                                         reinterpret_cast<std::uint64_t>(memory_.back().data())};
        ASSERT_EQ(wire::parse_frame(memory_.back(), where, flow.frame), wire::ParseError::kNone);
        flow.has_frame = true;
    }
    void give(std::uint32_t i, pcc::Event& event) {
        if (!runtime_) return;
        event.flow = i + 1;
        event.qpn = flows_[i].sender.value;
        event.timestamp_ns = now_ns_;
        const pcc::RateAnswer answer = runtime_->handle(0, event);
        EXPECT_EQ(answer.rate, pcc::kRateMax) << "rates are reported, never enforced";
    }
    void end_interval() {
        const Interval interval{static_cast<double>(now_ns_) / 1e9, 1};
        if (sender_.is_owned()) take_reports();
        for (Domain* domain : {&sender_, &receiver_}) {
            if (!domain->is_owned()) continue;
            ASSERT_TRUE(domain->program().end_interval(interval).ok());
        }
    }
    void take_reports() {
        EgressController& controller = *sender_.program().egress();
        if (options_.compat == Compat::k2_9) {
            const auto answer =
                runtime_->mailbox(pcc::flow_report_request(), pcc::kMailboxResponseSize);
            ASSERT_TRUE(answer.ok());
            const auto reports = pcc::parse_flow_reports(*answer);
            ASSERT_TRUE(reports);
            for (const auto& one : reports->flows) controller.report(Qpn{one.qpn}, one.rate);
            return;
        }
        const auto layout =
            options_.compat == Compat::k3_4 ? pcc::TraceLayout::k3_4 : pcc::TraceLayout::k3_1;
        std::vector<pcc::TraceRecord> records(1024);
        while (const std::size_t got = runtime_->poll_trace(records)) {
            for (std::size_t i = 0; i < got; ++i) {
                const auto one = pcc::flow_report(pcc::decode_trace(records[i], layout));
                if (one) controller.report(Qpn{one->qpn}, one->rate);
            }
        }
    }

    static constexpr std::uint8_t kOtherDscpBits = 0x80;  // must survive both pipelines
    static constexpr std::uint8_t kOpcodeAck = 0x11;
    static constexpr std::uint64_t kPacketsPerAck = 16;

    SimulationOptions options_;
    Prng random_;
    Domain sender_, receiver_;
    std::vector<Flow> flows_;
    std::deque<Bytes> memory_;
    std::unique_ptr<pcc::host::Algorithm> algorithm_;
    std::unique_ptr<pcc::Runtime> runtime_;
    std::uint64_t now_ns_ = kSecondNs;
    Totals totals_;
};

}  // namespace rdmalab::steer::testing

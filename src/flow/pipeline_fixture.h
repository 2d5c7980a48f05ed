// A domain with a wire and two vports, frames to send through it, and short words for making pipes.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "flow/local_control.h"
#include "flow/pipeline.h"
#include "wire/headers.h"
#include "wire/icrc.h"

namespace rdmalab::flow {

inline constexpr PortId kWire{0}, kSf0{1}, kSf4{2};

inline std::vector<PortInfo> test_ports() {
    return {{kWire, PortKind::kWire, "p0", ""},
            {kSf0, PortKind::kVport, "pf0sf0", "mlx5_2"},
            {kSf4, PortKind::kVport, "pf0sf4", "mlx5_4"}};
}

// Collects what leaves, in order.
class Collector final : public PacketSink {
public:
    struct Left {
        PortId port;
        bool is_queue = false;
        std::uint16_t queue = 0;
        wire::Frame frame;
    };
    void to_port(PortId port, wire::Frame& frame) override {
        left.push_back({port, false, 0, frame});
    }
    void to_queue(std::uint16_t queue, PortId ingress, const wire::Frame& frame) override {
        left.push_back({ingress, true, queue, frame});
    }
    std::vector<Left> left;
};

struct RoceOptions {
    std::string destination = "10.0.0.1";
    std::string source = "10.0.0.2";
    std::uint8_t opcode = 0x0a;  // RC RDMA WRITE Only
    std::uint32_t destination_qp = 0x102;
    std::uint8_t traffic_class = 0x02;
    std::uint32_t payload = 0;
};

inline wire::Frame roce_frame(const RoceOptions& options = {}) {
    wire::Path path;
    path.source = *Gid::parse(options.source);
    path.destination = *Gid::parse(options.destination);
    path.source_mac = {{2, 0, 0, 0, 0, 9}};
    path.destination_mac = {{2, 0, 0, 0, 0, 1}};
    path.traffic_class = options.traffic_class;
    wire::Frame frame;
    wire::start_roce(frame, wire::make_lower_template(path), *wire::find_opcode(options.opcode));
    wire::header_at<wire::Bth>(frame, frame.bth_offset)->destination_qp = options.destination_qp;
    if (options.payload != 0) frame.add_segment({SpaceId{1}, options.payload, 0x1000});
    wire::finish_roce(frame);
    return frame;
}

inline wire::Frame arp_frame() {
    wire::Frame frame;
    frame.header_length = sizeof(wire::EthernetHeader);
    frame.icrc_state = wire::IcrcState::kNone;
    *wire::header_at<wire::EthernetHeader>(frame, 0) = {
        MacAddress::broadcast().bytes, {2, 0, 0, 0, 0, 9}, wire::kEtherTypeArp};
    return frame;
}

class PipelineTest : public ::testing::Test {
protected:
    explicit PipelineTest(const PipelineOptions& options = {})
        : pipeline_(test_ports(), options), control_(make_local_control(pipeline_)) {}

    PipeId create(const PipeConfig& config) {
        auto made = control_->create_pipe(config);
        EXPECT_TRUE(made.ok()) << made.error().text;
        return made.ok() ? *made : PipeId{};
    }
    // The text of the error; "" when there was none.
    std::string refusal(const PipeConfig& config) {
        auto made = control_->create_pipe(config);
        return made.ok() ? "" : made.error().text;
    }
    template <class EntryType>
    EntryId add(PipeId pipe, const EntryType& entry) {
        auto id = control_->add_entry(pipe, entry, Batch::kFlush);
        EXPECT_TRUE(id.ok());
        expect_success();
        return *id;
    }
    template <class EntryType>
    Error refused(PipeId pipe, const EntryType& entry) {
        EXPECT_TRUE(control_->add_entry(pipe, entry, Batch::kFlush).ok());
        return last_completion().error;
    }
    void expect_success() {
        const EntryCompletion completion = last_completion();
        EXPECT_EQ(completion.status, EntryStatus::kSuccess) << completion.error.text;
    }
    EntryCompletion last_completion() {
        std::vector<EntryCompletion> completions;
        EXPECT_TRUE(control_->process({}, 0, completions).ok());
        EXPECT_FALSE(completions.empty());
        return completions.empty() ? EntryCompletion{} : completions.back();
    }
    FlowCounters counters(EntryId entry) { return control_->query_entries({{entry}}).value()[0]; }

    // Where the frame leaves: "p0", "queue 3", "drop", several with commas.
    std::string send(wire::Frame frame, PortId ingress = kSf0) {
        sink_.left.clear();
        pipeline_.process(ingress, frame, sink_);
        if (sink_.left.empty()) return "drop";
        std::string text;
        for (const auto& left : sink_.left) {
            if (!text.empty()) text += ", ";
            text += left.is_queue ? "queue " + std::to_string(left.queue)
                                  : test_ports()[left.port.value].name;
        }
        return text;
    }
    const wire::Frame& sent() const { return sink_.left.back().frame; }

    // A pipe that every packet of it leaves by `port`.
    PipeId deliver(const std::string& name, PortId port) {
        PipeConfig config;
        config.name = name;
        config.forward = Forward::to_port(port);
        const PipeId pipe = create(config);
        add(pipe, BasicEntry{});
        return pipe;
    }

    Pipeline pipeline_;
    std::unique_ptr<PipeControl> control_;
    Collector sink_;
};

}  // namespace rdmalab::flow

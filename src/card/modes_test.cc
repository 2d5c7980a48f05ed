// The two ways a frame crosses a cable, by reference with its ICRC elided and as bytes with a
// computed one, must not be told apart: the same traffic gives the same frames, completions and
// memory, and a field that is rewritten on the way has the same effect.
#include <gtest/gtest.h>

#include <sstream>

#include "base/prng.h"
#include "card/test_client.h"
#include "wire/headers.h"
#include "wire/icrc.h"
#include "wire/print.h"

namespace rdmalab::card {
namespace {

using namespace testing;

// A pair of connected clients whose traffic is written down. Memory is registered under fixed
// addresses, so that two runs are equal to the byte.
class Traffic {
public:
    static constexpr std::uint64_t kIova = 0x10'0000;
    static constexpr std::size_t kLength = 64 * 1024;

    explicit Traffic(bool computed) : setting(config(computed)) {
        a_keys = reg(a, a_memory);
        b_keys = reg(b, b_memory);
        a_qp = a.create_qp(a_cq);
        b_qp = b.create_qp(b_cq);
        EXPECT_EQ(a.connect(a_qp, b, b_qp) + b.connect(b_qp, a, a_qp), 0);
        setting.host.on_capture = [this](TapPoint point, wire::Frame& frame, bool inbound) {
            if (rewrite && point == TapPoint{false, 2}) return rewrite(frame, inbound);
            if (!rewrite) record(point, frame, inbound);
        };
    }
    void tap_ports() {
        setting.card.set_tap({true, 0}, true);
        setting.card.set_tap({true, 1}, true);
    }
    void tap_sender() { setting.card.set_tap({false, 2}, true); }

    // One random operation; everything that comes of it is in the log.
    void step(Prng& prng) {
        for (char& byte : a_memory) byte = static_cast<char>(prng.next());
        const auto length =
            static_cast<std::uint32_t>(prng.chance(0.5) ? prng.below(100) : prng.below(kLength));
        const std::vector<abi::Sge> sges{{kIova, length / 2, a_keys.lkey},
                                         {kIova + length / 2, length - length / 2, a_keys.lkey}};
        SendOptions options{.wr_id = prng.below(1'000), .sges = sges, .remote_address = kIova};
        options.rkey = b_keys.rkey;
        options.immediate = 0x0102'0304;
        switch (prng.below(5)) {
            case 0:
                options.opcode = abi::SendOpcode::kWrite;
                break;
            case 1:
                options.opcode = abi::SendOpcode::kRead;
                break;
            case 2:
                options.opcode = abi::SendOpcode::kFetchAdd;
                options.sges = {{kIova, 8, a_keys.lkey}};
                break;
            case 3:
                options.opcode = abi::SendOpcode::kSend;
                options.flags |= abi::kSendInline;
                options.payload = a_memory.substr(0, prng.below(65));
                post_recv();
                break;
            default:
                options.opcode = abi::SendOpcode::kSendImm;
                post_recv();
        }
        a.post_send(a_qp, options);
        setting.settle();
        note_completions();
    }
    void post_recv() { b.post_recv(b_qp.recv, 77, {{kIova, kLength, b_keys.lkey}}); }
    void note_completions() {
        while (const auto wc = a.poll(a_cq)) note("a", *wc);
        while (const auto wc = b.poll(b_cq, &b_qp.recv)) note("b", *wc);
    }

    TestCard setting;
    TestClient a{setting, 2}, b{setting, 3};
    std::string a_memory = std::string(kLength, 'a'), b_memory = std::string(kLength, 'b');
    abi::RegMrReply a_keys, b_keys;
    TestCq a_cq = a.create_cq(64), b_cq = b.create_cq(64);
    TestQp a_qp, b_qp;
    std::vector<std::string> log;
    std::function<void(wire::Frame&, bool inbound)> rewrite;

private:
    static CardConfig config(bool computed) {
        CardConfig config = loopback_config();
        config.force_computed_icrc = computed;
        return config;
    }
    abi::RegMrReply reg(TestClient& client, std::string& memory) {
        setting.memory.add(client.space, bytes_of(memory));
        client.iova_distance = address_of(memory) - kIova;
        client.call(abi::Op::kRegMr,
                    abi::RegMrRequest{client.pd, 15, address_of(memory), kLength, kIova});
        return client.reply_as<abi::RegMrReply>();
    }
    void record(TapPoint point, const wire::Frame& frame, bool inbound) {
        std::vector<std::byte> payload(frame.payload_length), bytes(wire::wire_length(frame));
        std::size_t filled = 0;
        for (unsigned i = 0; i < frame.segment_count; ++i) {
            const auto& segment = frame.segments[i];
            ASSERT_TRUE(setting.memory.read(segment.space, segment.address,
                                            ByteSpan(payload).subspan(filled, segment.length)));
            filled += segment.length;
        }
        ASSERT_EQ(wire::write_frame(frame, payload, bytes), bytes.size());
        std::ostringstream line;
        line << 'p' << point.index << (inbound ? " in " : " out ") << wire::print(frame) << ' '
             << std::hash<std::string_view>{}(
                    {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        log.push_back(line.str());
    }
    void note(const char* who, const TestWc& wc) {
        std::ostringstream line;
        line << who << ' ' << wc.wr_id << ' ' << static_cast<int>(wc.status) << ' '
             << static_cast<int>(wc.opcode) << ' ' << wc.flags << ' ' << wc.byte_length << ' '
             << wc.immediate;
        log.push_back(line.str());
    }
};

TEST(Modes, the_same_traffic_gives_the_same_frames_completions_and_memory) {
    Traffic elided(false), computed(true);
    elided.tap_ports();
    computed.tap_ports();
    Prng for_elided(11), for_computed(11);
    for (int i = 0; i < 200; ++i) {
        elided.step(for_elided);
        computed.step(for_computed);
        ASSERT_EQ(elided.log, computed.log) << "step " << i;
        ASSERT_EQ(elided.a_memory, computed.a_memory) << "step " << i;
        ASSERT_EQ(elided.b_memory, computed.b_memory) << "step " << i;
        ASSERT_FALSE(elided.log.empty());
        elided.log.clear();
        computed.log.clear();
    }
}

// Rewrites of one frame on its way; those of invariant fields must make the receiver drop it.
struct Rewrite {
    const char* what;
    bool is_invariant;
    void (*apply)(wire::Frame& frame);
};

wire::Bth& bth(wire::Frame& frame) {
    frame.keep_emitted_header();
    return *wire::header_at<wire::Bth>(frame, frame.bth_offset);
}

const Rewrite kRewrites[] = {
    {"nothing", false, [](wire::Frame&) {}},
    {"traffic class", false, [](wire::Frame& f) { wire::set_traffic_class(f, 0x2a); }},
    {"CE mark", false, [](wire::Frame& f) { wire::set_ecn(f, wire::kEcnCe); }},
    {"FECN and BECN", false, [](wire::Frame& f) { bth(f).resv8a = 0xc0; }},
    {"a value and back", false,
     [](wire::Frame& f) {
         bth(f).psn = bth(f).psn + 1;
         bth(f).psn = bth(f).psn - 1;
     }},
    {"PSN", true, [](wire::Frame& f) { bth(f).psn = bth(f).psn + 1; }},
    {"destination QP", true, [](wire::Frame& f) { bth(f).destination_qp = 0xabcdef; }},
    {"partition", true, [](wire::Frame& f) { bth(f).pkey = 0x8000; }},
    {"solicited event", true,
     [](wire::Frame& f) { bth(f).flags = static_cast<std::uint8_t>(bth(f).flags ^ 0x80); }},
    {"ACK request", true, [](wire::Frame& f) { bth(f).ack_request ^= 0x80; }},
    {"UDP source port", true,
     [](wire::Frame& f) {
         f.keep_emitted_header();
         wire::header_at<wire::UdpHeader>(f, f.l4_offset)->source_port = 0xc123;
     }},
    {"remote key", true,
     [](wire::Frame& f) {
         f.keep_emitted_header();
         auto& reth = *wire::header_at<wire::Reth>(f, f.bth_offset + sizeof(wire::Bth));
         reth.rkey = reth.rkey ^ 1;
     }},
};

class Rewriting : public ::testing::TestWithParam<bool> {};

TEST_P(Rewriting, of_an_invariant_field_drops_the_frame_and_of_another_does_not) {
    for (const Rewrite& rewrite : kRewrites) {
        SCOPED_TRACE(rewrite.what);
        Traffic run(GetParam());
        int outbound = 0;
        run.rewrite = [&](wire::Frame& frame, bool inbound) {
            if (!inbound && ++outbound == 1) rewrite.apply(frame);
        };
        run.tap_sender();
        run.a.post_send(run.a_qp, {.wr_id = 1,
                                   .opcode = abi::SendOpcode::kWrite,
                                   .sges = {{Traffic::kIova, 100, run.a_keys.lkey}},
                                   .remote_address = Traffic::kIova,
                                   .rkey = run.b_keys.rkey});
        run.setting.settle();
        const bool arrived = run.b_memory[99] == 'a';
        EXPECT_EQ(arrived, !rewrite.is_invariant);
        EXPECT_EQ(run.setting.card.engine(3).counters().rx_icrc_errors,
                  rewrite.is_invariant ? 1u : 0u);
        // The frame is sent again, and then it is right.
        run.setting.run_for(seconds(1));
        const auto wc = run.a.poll(run.a_cq);
        ASSERT_TRUE(wc);
        EXPECT_EQ(wc->status, transport::WcStatus::kSuccess);
        EXPECT_EQ(run.b_memory[99], 'a');
    }
}

INSTANTIATE_TEST_SUITE_P(Modes, Rewriting, ::testing::Values(false, true),
                         [](const auto& mode) { return mode.param ? "computed" : "elided"; });

}  // namespace
}  // namespace rdmalab::card

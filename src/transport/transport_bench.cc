// What the engine costs per packet and per message, without memory traffic: requester and responder
// of one connection, joined by a function call, over ports that do nothing.
#include <benchmark/benchmark.h>

#include "transport/engine.h"

namespace rdmalab::transport {
namespace {

constexpr OwnerId kOwner{1};
constexpr SpaceId kSpace{1};
constexpr std::uint64_t kBase = 0x10'0000;

struct NullMemory : MemoryPort {
    void copy(SpaceId, std::uint64_t, const PayloadSegment& source, CopyOwner) override {
        bytes += source.length;
    }
    bool read(SpaceId, std::uint64_t, ByteSpan) override { return true; }
    bool write(SpaceId, std::uint64_t, ByteView) override { return true; }
    void flush(std::vector<CopyFault>&) override {}
    std::uint64_t bytes = 0;
};

// Gives out the same WQE `left` times.
struct Side : WorkPort, OutcomePort {
    bool fetch_send(Qpn, SendWqe& out) override {
        if (left == 0) return false;
        --left;
        out.wr_id = wqe.wr_id;
        out.opcode = wqe.opcode;
        out.signaled = wqe.signaled;
        out.sge_count = wqe.sge_count;
        out.sges[0] = wqe.sges[0];
        out.remote_address = wqe.remote_address;
        out.rkey = wqe.rkey;
        out.length = wqe.length;
        return true;
    }
    bool fetch_recv(Qpn, RecvWqe& out) override {
        out.sge_count = 1;
        out.sges[0] = wqe.sges[0];
        return true;
    }
    bool fetch_srq(SrqId, RecvWqe&) override { return false; }
    std::uint32_t srq_depth(SrqId) override { return 0; }
    bool push_completion(CqId, const Completion&) override { return ++completions != 0; }
    void push_event(const AsyncEvent&) override {}
    SendWqe wqe;
    std::uint64_t left = 0;
    std::uint64_t completions = 0;
};

struct Loop {
    Loop() : a(config(0), memory, side_a, side_a), b(config(1), memory, side_b, side_b) {
        const Gid gid_a = Gid::from_ipv4(0x0a00'0001), gid_b = Gid::from_ipv4(0x0a00'0002);
        qa = create(a, gid_a, side_a);
        qb = create(b, gid_b, side_b);
        std::swap(side_a.wqe.rkey, side_b.wqe.rkey);
        connect(a, qa, qb, gid_b);
        connect(b, qb, qa, gid_a);
    }
    static EngineConfig config(std::uint8_t index) {
        EngineConfig config;
        config.index = index;
        config.seed = index;
        return config;
    }
    static Qpn create(Engine& engine, const Gid& gid, Side& side) {
        engine.set_gid(0, gid);
        QpInit init;
        init.owner = kOwner;
        init.space = kSpace;
        init.pd = *engine.create_pd(kOwner);
        init.send_cq = init.recv_cq = *engine.create_cq(kOwner, 64);
        init.caps = {1024, 1024, 1, 1, 0};
        const auto keys =
            engine.register_mr({kOwner, kSpace, init.pd, kBase, 1 << 20, kBase,
                                kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead});
        side.wqe.sge_count = 1;
        side.wqe.sges[0] = {kBase, 0, keys->lkey};
        side.wqe.rkey = keys->rkey;
        side.wqe.remote_address = kBase;
        return *engine.create_qp(init);
    }
    void connect(Engine& engine, Qpn own, Qpn peer, const Gid& gid) {
        QpAttributes attributes;
        attributes.access = kAccessRemoteWrite | kAccessRemoteRead;
        attributes.path_mtu = 4096;
        attributes.destination_qpn = peer;
        attributes.av.destination = gid;
        attributes.av.is_global = true;
        attributes.responder_resources = attributes.reads_outstanding = 16;
        attributes.timeout = 14;
        attributes.retry_count = attributes.rnr_retry = 7;
        const auto modify = [&](QpState state, std::uint32_t mask) {
            attributes.state = state;
            if (engine.modify_qp(kOwner, own, attributes, kQpState | mask, now) != 0) std::abort();
        };
        modify(QpState::kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags);
        modify(QpState::kRtr,
               kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer);
        modify(QpState::kRts, kQpSqPsn | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic);
    }
    // Runs `count` work requests of this kind to the end; returns the frames that it took.
    std::uint64_t run(WrOpcode opcode, std::uint32_t length, std::uint64_t count) {
        const std::uint64_t before = a.counters().tx_frames + b.counters().tx_frames;
        side_a.wqe.opcode = opcode;
        side_a.wqe.length = side_a.wqe.sges[0].length = length;
        side_b.wqe.sges[0].length = length;
        side_a.left = count;
        a.handle_doorbell(qa);
        while (round()) {
        }
        return a.counters().tx_frames + b.counters().tx_frames - before;
    }
    bool round() {
        bool any = false;
        now = now + microseconds(1);
        for (int i = 0; i < 64 && a.poll_frame(now, frame); ++i, any = true)
            b.handle_frame(frame, now);
        for (int i = 0; i < 64 && b.poll_frame(now, frame); ++i, any = true)
            a.handle_frame(frame, now);
        a.commit({}, now);
        b.commit({}, now);
        return any || a.has_work() || b.has_work();
    }

    NullMemory memory;
    Side side_a, side_b;
    Engine a, b;
    Qpn qa, qb;
    Instant now{1};
    wire::Frame frame;
};

// Messages of 64 KiB at MTU 4096: the time per item is that of one packet, both sides together.
void packet(benchmark::State& state, WrOpcode opcode) {
    Loop loop;
    std::uint64_t frames = 0;
    for (auto _ : state) frames += loop.run(opcode, 64 * 1024, 64);
    state.SetItemsProcessed(static_cast<std::int64_t>(frames));
}
BENCHMARK_CAPTURE(packet, write, WrOpcode::kWrite);
BENCHMARK_CAPTURE(packet, send, WrOpcode::kSend);
BENCHMARK_CAPTURE(packet, read, WrOpcode::kRead);

// Messages of 8 bytes: the time per item is that of one message, both sides together.
void message(benchmark::State& state, WrOpcode opcode) {
    Loop loop;
    std::int64_t messages = 0;
    for (auto _ : state) {
        loop.run(opcode, 8, 1024);
        messages += 1024;
    }
    state.SetItemsProcessed(messages);
}
BENCHMARK_CAPTURE(message, write, WrOpcode::kWrite);
BENCHMARK_CAPTURE(message, send, WrOpcode::kSend);
BENCHMARK_CAPTURE(message, read, WrOpcode::kRead);

}  // namespace
}  // namespace rdmalab::transport

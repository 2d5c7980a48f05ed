// What pipes cost a packet: chains of 1, 4 and 8 pipes, one pipe with few and with many entries,
// and the egress pipeline of path steering, as its program makes it. Pipes are made once, not once
// for each of the library's trial runs, so that counted instructions are those of packets.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>

#include "flow/local_control.h"
#include "flow/pipeline.h"
#include "wire/headers.h"

namespace rdmalab::flow {
namespace {

constexpr PortId kWire{0}, kSf{1};

class Nowhere final : public PacketSink {
public:
    void to_port(PortId port, wire::Frame&) override { benchmark::DoNotOptimize(port); }
    void to_queue(std::uint16_t, PortId, const wire::Frame&) override {}
};

class Bench {
public:
    Bench()
        : pipeline_({{kWire, PortKind::kWire, "p1", ""}, {kSf, PortKind::kVport, "pf1sf0", ""}},
                    {}),
          control_(make_local_control(pipeline_, 1u << 17)) {
        wire::Path path;
        path.source = Gid::from_ipv4(0x0a00'0002);
        path.destination = Gid::from_ipv4(0x0a00'0001);
        path.traffic_class = 0x02;
        wire::start_roce(frame_, wire::make_lower_template(path), *wire::find_opcode(0x07));
        wire::header_at<wire::Bth>(frame_, frame_.bth_offset)->destination_qp = 0x102;
        frame_.add_segment({SpaceId{1}, 4096, 0x1000});
        wire::finish_roce(frame_);
    }
    PipeId create(const PipeConfig& config) { return checked(control_->create_pipe(config)); }
    template <class EntryType>
    EntryId add(PipeId pipe, const EntryType& entry) {
        const EntryId id = checked(control_->add_entry(pipe, entry, Batch::kFlush));
        std::vector<EntryCompletion> done;
        checked(control_->process({}, 0, done));
        if (done.back().status != EntryStatus::kSuccess) fail(done.back().error);
        return id;
    }
    void run(benchmark::State& state) {
        Nowhere sink;
        for (auto _ : state) pipeline_.process(kSf, frame_, sink);
        state.SetItemsProcessed(state.iterations());
    }

private:
    [[noreturn]] static void fail(const Error& error) {
        std::fprintf(stderr, "%s\n", error.text.c_str());
        std::abort();
    }
    template <class T>
    static T checked(Result<T> result) {
        if (!result.ok()) fail(result.error());
        return *result;
    }

    Pipeline pipeline_;
    std::unique_ptr<PipeControl> control_;
    wire::Frame frame_;
};

PipeConfig named(const std::string& name) {
    PipeConfig config;
    config.name = name;
    return config;
}
BasicEntry entry_to(const FieldValues& match, const Forward& forward) {
    BasicEntry entry;
    entry.match = match;
    entry.actions.forward = forward;
    return entry;
}

// Runs on what `make` has made at the first time for this argument.
template <class Make>
void run_made(benchmark::State& state, std::int64_t argument, Make make) {
    static std::map<std::int64_t, std::unique_ptr<Bench>> made;
    std::unique_ptr<Bench>& bench = made[argument];
    if (!bench) {
        bench = std::make_unique<Bench>();
        make(*bench, argument);
    }
    bench->run(state);
}

// Each pipe matches the destination and the QP.
void make_chain(Bench& bench, std::int64_t length) {
    Forward next = Forward::to_port(kWire);
    for (std::int64_t depth = length; depth > 0; --depth) {
        PipeConfig config = named("P" + std::to_string(depth));
        config.is_root = depth == 1;
        config.match.values.set_all_ones(Field::kIpv4Dst).set_all_ones(Field::kBthDestQp);
        config.forward = next;
        const PipeId pipe = bench.create(config);
        bench.add(pipe,
                  BasicEntry{{{Field::kIpv4Dst, 0x0a00'0001}, {Field::kBthDestQp, 0x102}}, {}});
        next = Forward::to_pipe(pipe);
    }
}
void chain(benchmark::State& state) {
    run_made(state, state.range(0), [](Bench& bench, std::int64_t n) { make_chain(bench, n); });
}
BENCHMARK(chain)->ArgName("pipes")->Arg(1)->Arg(4)->Arg(8);

// One look-up, however many entries.
void make_entries(Bench& bench, std::int64_t count) {
    PipeConfig config = named("TABLE");
    config.is_root = true;
    config.entries_max = 100'000;
    config.match.values.set_all_ones(Field::kIpv4Dst).set_all_ones(Field::kBthDestQp);
    config.forward = Forward::to_port(kWire);
    const PipeId pipe = bench.create(config);
    for (std::uint32_t i = 0; i < count; ++i) {
        bench.add(pipe, BasicEntry{{{Field::kIpv4Dst, 0x0a00'0001 + i / 256},
                                    {Field::kBthDestQp, 0x102 + i % 256}},
                                   {}});
    }
}
void entries(benchmark::State& state) {
    run_made(state, state.range(0), [](Bench& bench, std::int64_t n) { make_entries(bench, n); });
}
BENCHMARK(entries)->ArgName("entries")->Arg(1)->Arg(1'000)->Arg(100'000);

PipeId make_dispatch(Bench& bench, const Forward& wire) {
    PipeId paths[2];
    for (const std::uint64_t path : {0u, 1u}) {
        PipeConfig rewrite = named("EGRESS_PATH" + std::to_string(path) + "_REWRITE");
        rewrite.actions.push_back(
            {{{Field::kIpv4DscpEcn, path * 4}}, FieldValues{{Field::kIpv4DscpEcn, 4}}, {}});
        rewrite.monitor.counter = true;
        rewrite.forward = wire;
        paths[path] = bench.create(rewrite);
        bench.add(paths[path], BasicEntry{});
    }
    PipeConfig dispatch = named("EGRESS_BUCKET_DISPATCH");
    dispatch.entries_max = 128;
    dispatch.match.values.set_all_ones(Field::kMetaU32_4);
    dispatch.match_mask = FieldValues{{Field::kMetaU32_4, 0xffff'ffff}};
    dispatch.forward = Forward::changeable();
    const PipeId pipe = bench.create(dispatch);
    for (std::uint64_t i = 0; i < 64; ++i) {
        bench.add(pipe,
                  entry_to({{Field::kMetaU32_4, i}}, Forward::to_pipe(paths[i < 32 ? 0 : 1])));
    }
    return pipe;
}

PipeId make_classifier(Bench& bench, PipeId dispatch) {
    PipeConfig classify = named("EGRESS_CLASSIFY");
    classify.type = PipeType::kHash;
    classify.algorithms = HashAlgorithm::kRandom;
    classify.entries_max = 64;
    classify.actions.resize(1);
    classify.actions[0].values.set_all_ones(Field::kMetaU32_4);
    classify.forward = Forward::to_pipe(dispatch);
    const PipeId pipe = bench.create(classify);
    for (std::uint32_t i = 0; i < 64; ++i) {
        HashEntry entry{i, {}};
        entry.actions.values = {{Field::kMetaU32_4, i}};
        bench.add(pipe, entry);
    }
    return pipe;
}

// Root -> QP 1 check -> RoCE check -> random HASH of 64 buckets -> dispatch -> rewrite with a
// counter -> wire.
void make_egress(Bench& bench) {
    PipeConfig deliver = named("DELIVER_WIRE");
    deliver.forward = Forward::to_port(kWire);
    const PipeId wire = bench.create(deliver);
    bench.add(wire, BasicEntry{});
    const PipeId dispatch = make_dispatch(bench, Forward::to_pipe(wire));
    PipeConfig roce = named("EGRESS_ROCE_CHECK");
    roce.match.l3_type = L3Type::kIpv4;
    roce.match.values = {{Field::kUdpDst, wire::kRoceUdpPort}};
    roce.forward = Forward::to_pipe(make_classifier(bench, dispatch));
    roce.miss = Forward::to_pipe(wire);
    const PipeId roce_check = bench.create(roce);
    bench.add(roce_check, BasicEntry{});
    PipeConfig qp1 = named("QP1_CHECK");
    qp1.match.values = {{Field::kBthDestQp, 1}};
    qp1.forward = Forward::to_queue(0);
    qp1.miss = Forward::to_pipe(roce_check);
    const PipeId qp1_check = bench.create(qp1);
    bench.add(qp1_check, BasicEntry{});
    PipeConfig root = named("PORT_DEMUX");
    root.is_root = true;
    root.match.values.set_all_ones(Field::kParserPort);
    const PipeId demux = bench.create(root);
    bench.add(demux, entry_to({{Field::kParserPort, kSf.value}}, Forward::to_pipe(qp1_check)));
    bench.add(demux, entry_to({{Field::kParserPort, kWire.value}}, Forward::to_port(kSf)));
}
void egress_chain(benchmark::State& state) {
    run_made(state, 0, [](Bench& bench, std::int64_t) { make_egress(bench); });
}
BENCHMARK(egress_chain);

}  // namespace
}  // namespace rdmalab::flow

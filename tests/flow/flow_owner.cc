// A program for tests that owns the switch domain of a PF: it puts the pipes of path steering there
// and holds them until it is ended.
//
//   flow_owner egress|ingress [churn]
//
// egress is PF1 with the sender pf1sf0: packets get one of 64 random buckets, buckets are
// dispatched to two paths, and the path is written into the TOS. ingress is PF0 with the receivers:
// packets are counted by path, the mark is cleared, and the destination address says where they go.
// With "churn" the dispatch entries of egress change all the time. It prints "ready", and once a
// second "path0=N path1=N frames=N updates=N"; frames are copies of management packets.

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "flow/client/client.h"

namespace {

using namespace rdmalab;
using namespace rdmalab::flow;

volatile std::sig_atomic_t stopped = 0;

[[noreturn]] void fail(const Error& error) {
    std::fprintf(stderr, "flow_owner: %s\n", error.text.c_str());
    std::exit(1);
}
template <class T>
T checked(Result<T> result) {
    if (!result.ok()) fail(result.error());
    return std::move(*result);
}

class Owner {
public:
    explicit Owner(const std::string& pf) : domain_(attach(pf)), pipes_(domain_->pipes()) {}

    void make_egress() {
        const PortId sender = port("pf1sf0");
        const PipeId wire = deliver("DELIVER_WIRE", port("wire"));
        const PipeId local = deliver("DELIVER_SF0", sender);
        for (const std::uint64_t path : {0u, 1u}) paths_.push_back(make_rewrite(path, wire));
        make_dispatch();
        const PipeId classify = make_classify();
        PipeConfig roce = named("EGRESS_ROCE_CHECK");
        roce.match.l4_type = L4Type::kRoceV2;
        roce.forward = Forward::to_pipe(classify);
        roce.miss = Forward::to_pipe(wire);
        const PipeId roce_check = only_entry(roce);
        const PipeId flood = make_flood(roce_check);
        PipeConfig qp1 = named("QP1_CHECK");
        qp1.match.values = {{Field::kBthDestQp, 1}};
        qp1.forward = Forward::to_pipe(flood);
        qp1.miss = Forward::to_pipe(roce_check);
        const PipeId qp1_check = only_entry(qp1);
        make_root({{sender, qp1_check}, {port("wire"), local}});
    }

    void make_ingress() {
        const PipeId wire = deliver("DELIVER_WIRE", port("wire"));
        PipeConfig demux = named("RECEIVER_IP_DEMUX");
        demux.match.values.set_all_ones(Field::kIpv4Dst);
        demux.miss = Forward::to_pipe(deliver("DELIVER_SF0", port("pf0sf0")));
        const PipeId receivers = checked(pipes_.create_pipe(demux));
        for (const char* name : {"pf0sf0", "pf0sf4"}) {
            BasicEntry entry;
            entry.match = {{Field::kIpv4Dst, address_of(name)}};
            entry.actions.forward = Forward::to_port(port(name));
            add(receivers, entry);
        }
        PipeConfig clear = named("INGRESS_CLEAR_PATH");
        clear.actions.push_back(
            {{{Field::kIpv4DscpEcn, 0}}, FieldValues{{Field::kIpv4DscpEcn, 4}}, {}});
        clear.forward = Forward::to_pipe(receivers);
        PipeConfig paths = named("INGRESS_PATH_DEMUX");
        paths.match.values.set_all_ones(Field::kIpv4DscpEcn);
        paths.match_mask = FieldValues{{Field::kIpv4DscpEcn, 4}};
        paths.monitor.counter = true;
        paths.forward = Forward::to_pipe(only_entry(clear));
        paths.miss = Forward::to_pipe(receivers);
        const PipeId path_demux = checked(pipes_.create_pipe(paths));
        for (const std::uint64_t mark : {0u, 4u}) {
            counted_.push_back(add(path_demux, BasicEntry{{{Field::kIpv4DscpEcn, mark}}, {}}));
        }
        make_root({{port("wire"), path_demux}, {port("pf0sf0"), wire}, {port("pf0sf4"), wire}});
    }

    void run(bool churn) {
        std::puts("ready");
        for (std::uint64_t tick = 1; stopped == 0; ++tick) {
            if (churn) {
                move_buckets();
            } else {
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
            }
            const bool is_due = tick % (churn ? 20 : 100) == 0;
            checked(pipes_.poll_frames(frames_));
            if (is_due) report();
        }
        report();
    }

private:
    static std::unique_ptr<client::Domain> attach(const std::string& pf) {
        client::DomainOptions options;
        options.pf = pf;
        return checked(client::Domain::attach(options));
    }
    static PipeConfig named(const std::string& name) {
        PipeConfig config;
        config.name = name;
        return config;
    }
    PortId port(const std::string& name) const {
        const auto found = pipes_.find_port(name);
        if (!found) fail({ENOENT, "no port " + name});
        return *found;
    }
    FieldValue address_of(const std::string& name) const {
        for (const PortInfo& info : pipes_.ports()) {
            if (info.name == name && !info.addresses.empty()) {
                return FieldValue::of(info.addresses.front());
            }
        }
        fail({ENOENT, "no address of " + name});
    }
    void finish() {
        std::vector<EntryCompletion> done;
        checked(pipes_.process(milliseconds(10), 0, done));
        for (const EntryCompletion& completion : done) {
            if (completion.status != EntryStatus::kSuccess) fail(completion.error);
        }
    }
    template <class EntryType>
    EntryId add(PipeId pipe, const EntryType& entry) {
        const EntryId id = checked(pipes_.add_entry(pipe, entry, Batch::kFlush));
        finish();
        return id;
    }
    PipeId only_entry(const PipeConfig& config) {
        const PipeId pipe = checked(pipes_.create_pipe(config));
        add(pipe, BasicEntry{});
        return pipe;
    }
    PipeId deliver(const std::string& name, PortId to) {
        PipeConfig config = named(name);
        config.forward = Forward::to_port(to);
        return only_entry(config);
    }
    PipeId make_rewrite(std::uint64_t path, PipeId wire) {
        PipeConfig config = named("EGRESS_PATH" + std::to_string(path) + "_REWRITE");
        config.actions.push_back(
            {{{Field::kIpv4DscpEcn, 4 * path}}, FieldValues{{Field::kIpv4DscpEcn, 4}}, {}});
        config.monitor.counter = true;
        config.forward = Forward::to_pipe(wire);
        const PipeId pipe = checked(pipes_.create_pipe(config));
        counted_.push_back(add(pipe, BasicEntry{}));
        return pipe;
    }
    void make_dispatch() {
        PipeConfig config = named("EGRESS_BUCKET_DISPATCH");
        config.entries_max = 128;
        config.match.values.set_all_ones(Field::kMetaU32_4);
        config.match_mask = FieldValues{{Field::kMetaU32_4, 0xffff'ffff}};
        config.forward = Forward::changeable();
        dispatch_ = checked(pipes_.create_pipe(config));
        for (std::uint64_t bucket = 0; bucket < 64; ++bucket) {
            BasicEntry entry;
            entry.match = {{Field::kMetaU32_4, bucket}};
            entry.actions.forward = Forward::to_pipe(paths_[bucket < 32 ? 0 : 1]);
            buckets_.push_back(add(dispatch_, entry));
        }
    }
    PipeId make_classify() {
        PipeConfig config = named("EGRESS_CLASSIFY");
        config.type = PipeType::kHash;
        config.algorithms = HashAlgorithm::kRandom;
        config.entries_max = 64;
        config.actions.resize(1);
        config.actions[0].values.set_all_ones(Field::kMetaU32_4);
        config.forward = Forward::to_pipe(dispatch_);
        const PipeId pipe = checked(pipes_.create_pipe(config));
        for (std::uint32_t bucket = 0; bucket < 64; ++bucket) {
            HashEntry entry;
            entry.index = bucket;
            entry.actions.values = {{Field::kMetaU32_4, bucket}};
            const Batch batch = bucket == 63 ? Batch::kFlush : Batch::kWait;
            checked(pipes_.add_entry(pipe, entry, batch));
        }
        finish();
        return pipe;
    }
    // The normal way, and a copy for us.
    PipeId make_flood(PipeId onward) {
        PipeConfig config = named("QP1_FLOOD");
        config.type = PipeType::kHash;
        config.algorithms = HashAlgorithm::kFlooding;
        config.entries_max = 2;
        const PipeId pipe = checked(pipes_.create_pipe(config));
        HashEntry entry;
        entry.actions.forward = Forward::to_pipe(onward);
        add(pipe, entry);
        entry.index = 1;
        entry.actions.forward = Forward::to_queue(0);
        add(pipe, entry);
        return pipe;
    }
    void make_root(const std::vector<std::pair<PortId, PipeId>>& ways) {
        PipeConfig config = named("PORT_DEMUX");
        config.is_root = true;
        config.match.values.set_all_ones(Field::kParserPort);
        const PipeId pipe = checked(pipes_.create_pipe(config));
        for (const auto& [from, to] : ways) {
            BasicEntry entry;
            entry.match = {{Field::kParserPort, from.value}};
            entry.actions.forward = Forward::to_pipe(to);
            add(pipe, entry);
        }
    }
    // Every bucket to the other path, one by one; as many on each as before.
    void move_buckets() {
        is_swapped_ = !is_swapped_;
        for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
            EntryActions actions;
            actions.forward = Forward::to_pipe(paths_[(bucket < 32) == is_swapped_ ? 1 : 0]);
            const Status queued = pipes_.update_entry(buckets_[bucket], actions, Batch::kFlush);
            if (!queued) fail(queued.error());
            finish();
            ++updates_;
        }
    }
    void report() {
        const auto counters = checked(pipes_.query_entries(counted_));
        std::printf("path0=%llu path1=%llu frames=%zu updates=%llu\n",
                    static_cast<unsigned long long>(counters[0].packets),
                    static_cast<unsigned long long>(counters[1].packets), frames_.size(),
                    static_cast<unsigned long long>(updates_));
    }

    std::unique_ptr<client::Domain> domain_;
    PipeControl& pipes_;
    std::vector<PipeId> paths_;
    PipeId dispatch_;
    std::vector<EntryId> buckets_, counted_;
    std::vector<CapturedFrame> frames_;
    bool is_swapped_ = false;
    std::uint64_t updates_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
    const std::string role = argc > 1 ? argv[1] : "";
    if (role != "egress" && role != "ingress") {
        fail({EINVAL, "usage: flow_owner egress|ingress [churn]"});
    }
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::signal(SIGTERM, [](int) { stopped = 1; });
    Owner owner(role == "egress" ? "mlx5_1" : "mlx5_0");
    if (role == "egress") {
        owner.make_egress();
    } else {
        owner.make_ingress();
    }
    owner.run(argc > 2 && std::string(argv[2]) == "churn");
    return 0;
}

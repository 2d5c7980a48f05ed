#include "steer/path_emulator.h"

#include <fmt/format.h>

namespace rdmalab::steer {

using flow::Field;
using flow::FieldValues;
using flow::Forward;
using flow::PipeConfig;
using flow::PipeId;

namespace {

constexpr std::uint16_t kRoceUdpPort = 4791;
constexpr Duration kPatience = seconds(2);

flow::ActionTemplate rewrite_tos(std::uint8_t value, std::uint8_t mask) {
    flow::ActionTemplate action;
    action.values.set(Field::kIpv4DscpEcn, value);
    action.mask.emplace();
    action.mask->set(Field::kIpv4DscpEcn, mask);
    return action;
}

}  // namespace

PathEmulator::PathEmulator(flow::PipeControl& control, EmulatorOptions options)
    : control_(control),
      options_(std::move(options)),
      marker_(options_.ports.empty()
                  ? PathMarker(static_cast<std::uint32_t>(options_.receiver_ips.size()))
                  : PathMarker::none()),
      paths_(options_.receiver_ips.size()) {}

PipeId PathEmulator::build(PipeBuilder& builder) {
    PipeConfig deliver;
    deliver.name = "RECEIVER_IP_DEMUX";
    deliver.entries_max = static_cast<std::uint32_t>(paths_.size());
    deliver.match.l3_type = flow::L3Type::kIpv4;
    deliver.match.values.set_all_ones(Field::kIpv4Dst);
    deliver.miss = Forward::to_pipe(options_.receivers.front());
    const PipeId by_ip = builder.pipe(deliver);
    for (std::size_t path = 0; path < paths_.size(); ++path) {
        flow::BasicEntry entry;
        entry.match.set(Field::kIpv4Dst, options_.receiver_ips[path]);
        entry.actions.forward = Forward::to_pipe(options_.receivers[path]);
        builder.entry(by_ip, entry);
    }

    clear_ = by_ip;
    if (marker_.mask() != 0) {
        PipeConfig clear;
        clear.name = "INGRESS_CLEAR_PATH";
        clear.match.l3_type = flow::L3Type::kIpv4;
        clear.actions = {rewrite_tos(0, marker_.mask())};
        clear.forward = clear.miss = Forward::to_pipe(by_ip);
        builder.single(clear, &clear_);
    }

    for (std::uint32_t path = 0; path < paths_.size(); ++path) build_path(builder, path, by_ip);
    PipeId demux;
    build_demux(builder, &demux);

    PipeConfig check;
    check.name = "INGRESS_ROCE_CHECK";
    check.match.l3_type = flow::L3Type::kIpv4;
    check.match.l4_type = flow::L4Type::kUdp;
    check.match.values.set(Field::kUdpDst, kRoceUdpPort);
    check.forward = Forward::to_pipe(demux);
    check.miss = Forward::to_pipe(by_ip);
    PipeId head;
    builder.single(check, &head);
    return head;
}

void PathEmulator::build_path(PipeBuilder& builder, std::uint32_t path, PipeId deliver) {
    Path& made = paths_[path];
    PipeConfig mark;
    mark.name = fmt::format("PATH{}_CE_MARK", path);
    mark.match.l3_type = flow::L3Type::kIpv4;
    mark.actions = {rewrite_tos(kCe, marker_.mask() | kCe)};
    mark.monitor.counter = true;
    mark.forward = Forward::to_pipe(deliver);
    made.mark_entry = builder.single(mark, &made.mark);

    const Forward probe = sampling(builder, path, options_.percents[path], &made.sampler);
    PipeConfig match;
    match.name = fmt::format("PATH{}_IP_MATCH", path);
    match.entries_max = 2;  // one live entry, and its replacement during an update
    match.match.l3_type = flow::L3Type::kIpv4;
    match.match.values.set(Field::kIpv4Dst, options_.receiver_ips[path]);
    match.forward = Forward::changeable();
    match.miss = Forward::to_pipe(clear_);
    made.ip_match = builder.pipe(match);
    flow::BasicEntry entry;
    entry.actions.forward = probe;
    made.ip_entry = builder.entry(made.ip_match, entry);
}

void PathEmulator::build_demux(PipeBuilder& builder, PipeId* made) {
    const bool by_port = marker_.mask() == 0;
    const Field field = by_port ? Field::kParserPort : Field::kIpv4DscpEcn;
    PipeConfig demux;
    demux.name = "INGRESS_PATH_DEMUX";
    demux.entries_max = static_cast<std::uint32_t>(paths_.size());
    demux.match.values.set_all_ones(field);
    demux.match_mask.emplace();
    if (by_port) {
        demux.match_mask->set_all_ones(field);
    } else {
        demux.match.l3_type = flow::L3Type::kIpv4;
        demux.match_mask->set(field, marker_.mask());
    }
    demux.monitor.counter = true;
    demux.miss = Forward::to_pipe(clear_);
    *made = builder.pipe(demux);
    for (std::uint32_t path = 0; path < paths_.size(); ++path) {
        flow::BasicEntry entry;
        entry.match.set(field, by_port ? options_.ports[path].value : marker_.value(path));
        entry.actions.forward = Forward::to_pipe(paths_[path].ip_match);
        paths_[path].demux_entry = builder.entry(*made, entry);
    }
}

Forward PathEmulator::sampling(PipeBuilder& builder, std::uint32_t path, double percent,
                               PipeId* made) {
    const Sampler sampler = make_sampler(selected_percent(percent, paths()));
    *made = PipeId{};
    switch (sampler.kind) {
        case Sampler::Kind::kAlways:
            return Forward::to_pipe(paths_[path].mark);
        case Sampler::Kind::kNever:
            return Forward::to_pipe(clear_);
        case Sampler::Kind::kRandom:
            break;
    }
    PipeConfig config;
    config.name = fmt::format("RANDOM_SAMPLE_P{}", path);
    config.match_mask.emplace();
    config.match_mask->set(Field::kParserRandom, sampler.mask(has_native_random(options_.compat)));
    config.forward = Forward::to_pipe(paths_[path].mark);
    config.miss = Forward::to_pipe(clear_);
    builder.single(config, made);
    return Forward::to_pipe(*made);
}

Status PathEmulator::set_percent(std::uint32_t path, double percent) {
    Path& made = paths_[path];
    PipeBuilder builder(control_);
    PipeId sampler;
    const Forward probe = sampling(builder, path, percent, &sampler);
    if (Status status = builder.finish(); !status.ok()) return status;
    flow::EntryActions actions;
    actions.forward = probe;
    Status status = control_.update_entry(made.ip_entry, actions, flow::Batch::kFlush);
    if (status.ok()) status = complete(control_, 1, kPatience);
    if (!status.ok()) {
        if (sampler.value != 0) (void)control_.destroy_pipe(sampler);
        return status;
    }
    // The replaced rule goes, and with it the last use of the old sampler.
    std::vector<flow::EntryCompletion> none;
    (void)control_.process(Duration{}, 0, none);
    if (made.sampler.value != 0) status = control_.destroy_pipe(made.sampler);
    made.sampler = sampler;
    options_.percents[path] = percent;
    return status;
}

Result<std::vector<PathCounters>> PathEmulator::read() {
    std::vector<flow::EntryId> entries;
    for (const Path& path : paths_) {
        entries.push_back(path.demux_entry);
        entries.push_back(path.mark_entry);
    }
    const Result<std::vector<flow::FlowCounters>> counted = control_.query_entries(entries);
    if (!counted.ok()) return counted.error();
    std::vector<PathCounters> counters;
    for (std::size_t path = 0; path < paths_.size(); ++path) {
        const flow::FlowCounters& all = (*counted)[2 * path];
        counters.push_back({all.packets, all.bytes, (*counted)[2 * path + 1].packets});
    }
    return counters;
}

}  // namespace rdmalab::steer

#include "steer/egress_steering.h"

#include <fmt/format.h>

#include <cerrno>

#include "steer/port_stages.h"

namespace rdmalab::steer {

using flow::Field;
using flow::Forward;
using flow::PipeConfig;
using flow::PipeId;

namespace {

constexpr std::uint16_t kRoceUdpPort = 4791;
constexpr std::uint8_t kOpcodeCnp = 0x81;
constexpr Field kBucket = flow::meta_u32(4);
// A card in software may share its processor with the traffic: an answer takes microseconds, at
// worst a few time slices.
constexpr Duration kPatience = seconds(1);

}  // namespace

EgressSteering::EgressSteering(flow::PipeControl& control, EgressOptions options)
    : control_(control),
      options_(std::move(options)),
      marker_(options_.wires.size() == 1 ? PathMarker(options_.paths) : PathMarker::none()),
      state_(options_.force_path
                 ? BucketSplit::only(*options_.force_path, options_.paths, options_.buckets)
                 : BucketSplit::even(options_.paths, options_.buckets)),
      cnps_gone_(options_.paths) {}

PipeId EgressSteering::build(PipeBuilder& builder) {
    build_rewrites(builder);
    PipeId first;
    if (options_.force_path) {
        first = rewrites_[*options_.force_path];
    } else {
        first = build_classifier(builder, build_dispatch(builder));
    }
    PipeConfig check;
    check.name = "EGRESS_ROCE_CHECK";
    check.match.l3_type = flow::L3Type::kIpv4;
    check.match.l4_type = flow::L4Type::kUdp;
    check.match.values.set(Field::kUdpDst, kRoceUdpPort);
    check.forward = Forward::to_pipe(first);
    check.miss = Forward::to_pipe(options_.wires.front());
    PipeId head;
    builder.single(check, &head);
    return head;
}

void EgressSteering::build_rewrites(PipeBuilder& builder) {
    for (std::uint32_t path = 0; path < options_.paths; ++path) {
        PipeConfig rewrite;
        rewrite.name = fmt::format("EGRESS_PATH{}_REWRITE", path);
        rewrite.monitor.counter = true;
        if (marker_.mask() != 0) {
            rewrite.match.l3_type = flow::L3Type::kIpv4;
            flow::ActionTemplate action;
            action.values.set(Field::kIpv4DscpEcn, marker_.value(path));
            action.mask.emplace();
            action.mask->set(Field::kIpv4DscpEcn, marker_.mask());
            rewrite.actions = {action};
        }
        rewrite.forward = Forward::to_pipe(options_.wires.size() == 1 ? options_.wires.front()
                                                                      : options_.wires[path]);
        PipeId made;
        rewrite_entries_.push_back(builder.single(rewrite, &made));
        rewrites_.push_back(made);
    }
}

PipeId EgressSteering::build_dispatch(PipeBuilder& builder) {
    PipeConfig dispatch;
    dispatch.name = "EGRESS_BUCKET_DISPATCH";
    dispatch.entries_max = 2 * options_.buckets;
    dispatch.match.values.set_all_ones(kBucket);
    dispatch.match_mask.emplace();
    dispatch.match_mask->set_all_ones(kBucket);
    dispatch.forward = Forward::changeable();
    const PipeId pipe = builder.pipe(dispatch);
    for (std::uint32_t bucket = 0; bucket < options_.buckets; ++bucket) {
        flow::BasicEntry entry;
        entry.match.set(kBucket, bucket);
        entry.actions.forward = Forward::to_pipe(rewrites_[state_.recorded_path(bucket)]);
        dispatch_entries_.push_back(builder.entry(pipe, entry));
    }
    return pipe;
}

PipeId EgressSteering::build_classifier(PipeBuilder& builder, PipeId dispatch) {
    const bool native = has_native_random(options_.compat);
    PipeConfig classify;
    classify.type = flow::PipeType::kHash;
    classify.entries_max = options_.buckets;
    flow::ActionTemplate action;
    action.values.set_all_ones(kBucket);
    classify.actions = {action};
    classify.forward = Forward::to_pipe(dispatch);
    if (native) {
        classify.name = "EGRESS_CLASSIFY";
        classify.algorithms = flow::HashAlgorithm::kRandom;
    } else {
        classify.name =
            fmt::format("EGRESS_RANDOM_PATH_HASH_{}BIT", std::countr_zero(options_.buckets));
        classify.algorithms = flow::HashAlgorithm::kHash;
        classify.match.values.set_all_ones(Field::kParserRandom);
        classify.match_mask.emplace();
        classify.match_mask->set_all_ones(Field::kParserRandom);
    }
    const PipeId pipe = builder.pipe(classify);
    for (std::uint32_t bucket = 0; bucket < options_.buckets; ++bucket) {
        flow::HashEntry entry;
        entry.index = bucket;
        entry.actions.values.set(kBucket, bucket);
        builder.entry(pipe, entry,
                      bucket + 1 == options_.buckets ? flow::Batch::kFlush : flow::Batch::kWait);
    }
    return pipe;
}

PipeId EgressSteering::build_return(PipeBuilder& builder, PipeId next) {
    if (!has_native_random(options_.compat)) return next;
    PipeConfig count;
    count.name = "EGRESS_CNP_COUNT";
    count.entries_max = kCnpCounterMax;
    count.match.l4_type = flow::L4Type::kRoceV2;
    count.match.values.set(Field::kBthOpcode, kOpcodeCnp).set_all_ones(Field::kBthDestQp);
    count.monitor.counter = true;
    count.forward = count.miss = Forward::to_pipe(next);
    cnp_pipe_ = builder.pipe(count);
    return cnp_pipe_;
}

ApplyResult EgressSteering::apply(const BucketSplit& wanted) {
    if (!has_classifier()) return {};
    return state_.apply(wanted, *this);
}

Status EgressSteering::update_bucket(std::uint32_t bucket, std::uint32_t path) {
    flow::EntryActions actions;
    actions.forward = Forward::to_pipe(rewrites_[path]);
    // An answer that came too late for the last attempt must not pass for this one's.
    drain();
    Status status = control_.update_entry(dispatch_entries_[bucket], actions, flow::Batch::kFlush);
    return status.ok() ? complete(control_, 1, kPatience) : status;
}

void EgressSteering::drain() {
    std::vector<flow::EntryCompletion> late;
    (void)control_.process(Duration{}, 0, late);
}

Result<bool> EgressSteering::add_cnp_counter(const CmConnection& connection) {
    if (cnp_pipe_.value == 0 || cnp_counters_.contains(connection.sender) ||
        cnp_counters_.size() == kCnpCounterMax) {
        return false;
    }
    PipeBuilder builder(control_);
    flow::BasicEntry entry;
    entry.match.set(Field::kBthDestQp, connection.sender.value);
    const flow::EntryId made = builder.entry(cnp_pipe_, entry);
    if (Status status = builder.finish(); !status.ok()) return status.error();
    cnp_counters_[connection.sender] = {made, connection.path};
    return true;
}

Status EgressSteering::remove_cnp_counter(Qpn sender) {
    const auto found = cnp_counters_.find(sender);
    if (found == cnp_counters_.end()) return {};
    const CnpCounter counter = found->second;
    cnp_counters_.erase(found);
    const auto counted = control_.query_entries(std::span(&counter.entry, 1));
    if (!counted.ok()) return counted.error();
    cnps_gone_[counter.path] += counted->front().packets;
    Status status = control_.remove_entry(counter.entry, flow::Batch::kFlush);
    return status.ok() ? complete(control_, 1, kPatience) : status;
}

Result<EgressSteering::Counters> EgressSteering::read() {
    std::vector<flow::EntryId> entries = rewrite_entries_;
    for (const auto& [qpn, counter] : cnp_counters_) entries.push_back(counter.entry);
    const Result<std::vector<flow::FlowCounters>> counted = control_.query_entries(entries);
    if (!counted.ok()) return counted.error();
    Counters counters;
    for (std::uint32_t path = 0; path < options_.paths; ++path) {
        counters.packets.push_back((*counted)[path].packets);
        counters.bytes.push_back((*counted)[path].bytes);
    }
    if (cnp_pipe_.value == 0) return counters;
    counters.cnps = cnps_gone_;
    std::size_t at = options_.paths;
    for (const auto& [qpn, counter] : cnp_counters_) {
        counters.cnps[counter.path] += (*counted)[at++].packets;
    }
    return counters;
}

}  // namespace rdmalab::steer

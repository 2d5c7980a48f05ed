#include "steer/port_stages.h"

#include <algorithm>
#include <bit>

namespace rdmalab::steer {

using flow::Field;
using flow::FieldValues;
using flow::Forward;
using flow::PipeConfig;
using flow::PipeId;
using flow::PipeType;

namespace {

constexpr std::uint16_t kEtherTypeArp = 0x0806, kRoceUdpPort = 4791;
constexpr std::uint32_t kQp1 = 1;

}  // namespace

PipeId PortStages::deliver(flow::PortId port, const std::string& name) {
    auto [at, is_new] = deliver_.try_emplace(port);
    if (is_new) {
        PipeConfig config;
        config.name = "DELIVER_" + name;
        config.forward = Forward::to_port(port);
        builder_.single(config, &at->second);
    }
    return at->second;
}

PipeId PortStages::deliver_to_all(const std::vector<PipeId>& targets, const std::string& name) {
    if (targets.size() == 1) return targets.front();
    PipeConfig config;
    config.name = name;
    config.type = PipeType::kHash;
    config.algorithms = flow::HashAlgorithm::kFlooding;
    config.entries_max = std::bit_ceil(static_cast<std::uint32_t>(targets.size()));
    const PipeId pipe = builder_.pipe(config);
    for (std::uint32_t i = 0; i < config.entries_max; ++i) {
        flow::HashEntry entry;
        entry.index = i;
        entry.actions.forward = i < targets.size() ? Forward::to_pipe(targets[i]) : Forward::drop();
        builder_.entry(pipe, entry);
    }
    return pipe;
}

PipeId PortStages::copy_and_go_on(const std::string& name, PipeId next) {
    PipeConfig config;
    config.name = name;
    config.type = PipeType::kHash;
    config.algorithms = flow::HashAlgorithm::kFlooding;
    config.entries_max = 2;
    const PipeId pipe = builder_.pipe(config);
    flow::HashEntry onward, copy;
    onward.actions.forward = Forward::to_pipe(next);
    copy.index = 1;
    copy.actions.forward = Forward::to_queue(kCmQueue);
    builder_.entry(pipe, onward);
    builder_.entry(pipe, copy);
    return pipe;
}

PipeId PortStages::checks(const std::string& side, PipeId arp, PipeId next, Copying copying) {
    PipeId head = next;
    if (copying != Copying::kNothing) {
        PipeConfig config;
        config.name = "QP1_CHECK_" + side;
        config.entries_max = 1;
        if (copying == Copying::kManagement) {
            config.match.l4_type = flow::L4Type::kRoceV2;
            config.match.values.set(Field::kBthDestQp, kQp1);
        } else {
            config.match.l4_type = flow::L4Type::kUdp;
            config.match.values.set(Field::kUdpDst, kRoceUdpPort);
        }
        config.forward = Forward::to_pipe(copy_and_go_on("QP1_FLOOD_" + side, next));
        config.miss = Forward::to_pipe(next);
        head = builder_.pipe(config);
        builder_.entry(head, flow::BasicEntry{});
    }
    PipeConfig config;
    config.name = "ARP_CHECK_" + side;
    config.entries_max = 1;
    config.match.values.set(Field::kEthType, kEtherTypeArp);
    config.forward = Forward::to_pipe(arp);
    config.miss = Forward::to_pipe(head);
    const PipeId check = builder_.pipe(config);
    builder_.entry(check, flow::BasicEntry{});
    return check;
}

PipeId PortStages::sample(const std::string& name, unsigned bits, PipeId next) {
    PipeConfig config;
    config.name = name;
    config.match_mask.emplace();
    config.match_mask->set(Field::kParserRandom, (1u << bits) - 1);
    config.forward = Forward::to_pipe(copy_and_go_on(name + "_FLOOD", next));
    config.miss = Forward::to_pipe(next);
    PipeId made;
    builder_.single(config, &made);
    return made;
}

void PortStages::demux(const std::map<flow::PortId, PipeId>& heads) {
    PipeConfig config;
    config.name = "PORT_DEMUX";
    config.is_root = true;
    config.entries_max = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(heads.size()));
    config.match.values.set_all_ones(Field::kParserPort);
    config.match_mask.emplace();
    config.match_mask->set_all_ones(Field::kParserPort);
    config.miss = Forward::drop();
    const PipeId root = builder_.pipe(config);
    std::size_t left = heads.size();
    for (const auto& [port, head] : heads) {
        flow::BasicEntry entry;
        entry.match.set(Field::kParserPort, port.value);
        entry.actions.forward = Forward::to_pipe(head);
        --left;
        builder_.entry(root, entry, left == 0 ? flow::Batch::kFlush : flow::Batch::kWait);
    }
}

}  // namespace rdmalab::steer

// Any bytes as commands to a pipeline that has some pipes, with packets in between.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "flow/message_port.h"
#include "flow/pipeline.h"
#include "wire/headers.h"

namespace {

using namespace rdmalab;
using namespace rdmalab::flow;

class Nowhere final : public PacketSink {
public:
    void to_port(PortId, wire::Frame&) override {}
    void to_queue(std::uint16_t, PortId, const wire::Frame&) override {}
};

void make_pipes(Pipeline& pipeline) {
    PipeConfig config;
    config.name = "table";
    config.is_root = true;
    config.match.values.set_all_ones(Field::kIpv4Dst);
    config.actions.push_back({{{Field::kIpv4Ttl, 3}}, std::nullopt, {}});
    config.forward = Forward::changeable();
    const auto pipe = pipeline.create_pipe(config);
    EntryOperation add{EntryId{1}, *pipe, BasicEntry{{{Field::kIpv4Dst, 0x0a00'0001}}, {}}};
    std::get<BasicEntry>(add.what).actions.forward = Forward::to_port(PortId{0});
    pipeline.apply({&add, 1});
}

void send(Pipeline& pipeline) {
    wire::Path path;
    path.source = Gid::from_ipv4(0x0a00'0002);
    path.destination = Gid::from_ipv4(0x0a00'0001);
    wire::Frame frame;
    wire::start_roce(frame, wire::make_lower_template(path), *wire::find_opcode(0x04));
    wire::finish_roce(frame);
    Nowhere sink;
    pipeline.process(PortId{1}, frame, sink);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Pipeline pipeline(
        {{PortId{0}, PortKind::kWire, "p0", ""}, {PortId{1}, PortKind::kVport, "sf", ""}},
        {.hash_root_allowed = true});
    make_pipes(pipeline);
    ByteView rest = std::as_bytes(std::span(data, size));
    while (rest.size() > 1) {
        // A length, a kind, and what the kind wants or not.
        const std::size_t length =
            std::min<std::size_t>(std::to_integer<unsigned>(rest[0]), rest.size() - 1);
        std::vector<std::byte> command(4);
        command[0] = static_cast<std::byte>(std::to_integer<unsigned>(rest[1]) % 11);
        command.insert(command.end(), rest.begin() + 1,
                       rest.begin() + 1 + static_cast<std::ptrdiff_t>(length));
        (void)execute(pipeline, command);
        send(pipeline);
        rest = rest.subspan(1 + length);
    }
    return 0;
}

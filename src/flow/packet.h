// A packet on its way through the pipes: the frame, where its headers begin, which it has, and the
// notes that pipes leave on it for the pipes behind them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "flow/field_layout.h"
#include "flow/pipe_types.h"
#include "wire/frame.h"

namespace rdmalab::flow {

// meta.* and parser_meta.*, laid out like a header.
struct PacketNotes {
    Be32 pkt_meta;
    Be32 mark;
    std::array<Be32, 10> u32;
    Be16 port;
    Be16 random;
    std::uint8_t l2_type;
    std::uint8_t l3_type;
    std::uint8_t l4_type;
    std::uint8_t ip_fragmented;
    std::uint8_t l3_ok;
    std::uint8_t ipv4_checksum_ok;
    std::uint8_t l4_ok;
    std::array<std::uint8_t, 13> rest;  // fields are read in words of 8 bytes
};
static_assert(sizeof(PacketNotes) == 72);

struct Packet {
    Packet() {}  // NOLINT(modernize-use-equals-default): made for every packet, filled by start
    // The bytes of `frame` that every pipe looks at. `length` is that on the wire.
    void start(wire::Frame& frame_in, PortId port, std::size_t wire_length, bool with_types);
    // A copy of the packet with a frame of its own (flooding).
    void start_copy(const Packet& original, wire::Frame& copied);

    std::byte* base(Base which) { return bases[static_cast<std::size_t>(which)]; }
    const std::byte* base(Base which) const { return bases[static_cast<std::size_t>(which)]; }

    wire::Frame* frame;
    std::array<std::byte*, kBaseCount> bases;
    std::uint32_t layers;
    std::uint32_t length;
    PortId ingress;
    PacketNotes notes;

private:
    void set_bases(std::size_t l2_length) {
        std::byte* const header = frame->header.data();
        bases = {header, header + l2_length, header + frame->l4_offset, header + frame->bth_offset,
                 reinterpret_cast<std::byte*>(&notes)};
    }
    [[gnu::noinline]] void set_types();  // few pipelines ask for them
};

// The value of a field of a packet that has its layers.
FieldValue read_field(const Packet& packet, Field field);

}  // namespace rdmalab::flow

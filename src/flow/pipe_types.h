// What a pipe is made of, in the terms of DOCA Flow (doca_flow_pipe_cfg and friends).
//
// ## Template and entries
// The match and the actions of a pipe are *templates*. Of each field:
//   value all ones  -> each entry supplies its own value;
//   another value   -> a constant, the same for all entries;
//   zero            -> without a mask: not looked at; with a mask: the constant zero.
// With a mask (`match_mask`, `ActionTemplate::mask`) the mask says which bits are compared or
// changed; a value without one is refused, and a field whose mask is zero is not looked at. meta.*
// is matched under a mask only. `l3_type` and `l4_type` are structural: they are never per entry.
// A field of a header demands that header: outer.ipv4.dst_ip matches IPv4 packets only. A pipe that
// matches parser_meta.random cannot rewrite headers.
//
// ## Order
// match -> actions -> counter -> forward. What a pipe writes is seen by the next pipe.
// A packet that no entry takes goes to `miss`; kNone there means drop.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "flow/fields.h"

namespace rdmalab::flow {

using PipeId = StrongId<struct PipeIdTag>;    // 0 is no pipe
using EntryId = StrongId<struct EntryIdTag>;  // 0 is no entry
using PortId = VportId;                       // a port of the switch domain

enum class PipeType : std::uint8_t {
    kBasic = 0,    // one template for all entries: one hash look-up
    kControl = 1,  // each entry has its own fields, masks and priority
    kHash = 6,     // the packet picks the entry by number
};

// How a packet picks an entry of a HASH pipe of n entries; flags, so that a pipe can offer several
// (the forward to it then chooses one).
enum class HashAlgorithm : std::uint8_t {
    kNone = 0,
    kHash = 1,        // hash of the matched fields, modulo n
    kRandom = 2,      // drawn per packet, uniform
    kIdentity = 4,    // the masked value of the matched fields, modulo n
    kRoundRobin = 8,  // one after the other
    kFlooding = 16,   // a copy to every entry
};
constexpr HashAlgorithm operator|(HashAlgorithm a, HashAlgorithm b) {
    return static_cast<HashAlgorithm>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr bool has_flag(HashAlgorithm set, HashAlgorithm flag) {
    return (static_cast<unsigned>(set) & static_cast<unsigned>(flag)) != 0;
}

enum class L3Type : std::uint8_t { kNone = 0, kIpv4 = 1, kIpv6 = 2 };
enum class L4Type : std::uint8_t {
    kNone = 0,
    kTcp = 1,
    kUdp = 2,
    kIcmp = 3,
    kIcmp6 = 4,
    kTransport = 5,  // TCP or UDP
    kRoceV2 = 6,     // UDP to port 4791 with a BTH
};

enum class ForwardKind : std::uint8_t {
    kNone = 0,  // in a pipe: each entry has its own, which stays. In an entry: that of the pipe.
    kRss = 1,   // to a queue of the program that owns the domain (PipeControl::poll_frames)
    kPort = 2,
    kPipe = 3,
    kDrop = 4,
    kHashPipe = 7,      // into a HASH pipe by one of its algorithms
    kChangeable = 100,  // in a pipe: each entry has its own, and an update may change it
};
struct Forward {
    ForwardKind kind = ForwardKind::kNone;
    PortId port;                                     // kPort
    PipeId pipe;                                     // kPipe, kHashPipe
    HashAlgorithm algorithm = HashAlgorithm::kNone;  // kHashPipe
    std::vector<std::uint16_t> queues;               // kRss; more than one: spread by L3/L4 hash

    static Forward to_port(PortId port);
    static Forward to_pipe(PipeId pipe);
    static Forward to_hash_pipe(PipeId pipe, HashAlgorithm algorithm);
    static Forward to_queue(std::uint16_t queue);
    static Forward to_queues(std::vector<std::uint16_t> queues);
    static Forward drop();
    static Forward changeable();
    bool operator==(const Forward&) const = default;
};

struct Match {
    L3Type l3_type = L3Type::kNone;
    L4Type l4_type = L4Type::kNone;
    FieldValues values;
};

// Beyond writing values: arithmetic on a field, or a copy between two. Runs after the writes.
enum class DescriptorKind : std::uint8_t { kAdd = 1, kCopy = 2 };
struct ActionDescriptor {
    DescriptorKind kind = DescriptorKind::kAdd;
    Field destination{};
    std::uint8_t destination_bit = 0;  // offset from the least significant bit of the field
    std::uint64_t addend = 0;          // kAdd: modulo the width of the field (TTL - 1 is + 0xff)
    Field source{};                    // kCopy
    std::uint8_t source_bit = 0;
    std::uint8_t width = 0;  // kCopy: bits, at most 32
    bool operator==(const ActionDescriptor&) const = default;
};

// One set of changes that entries may pick by number (action_index). Writable are: Ethernet
// addresses, VLAN TCIs, IP addresses, DSCP/ECN and traffic class, flow label, TTL and hop limit,
// ports, metadata. IPv4, UDP and TCP checksums are kept right. Rewriting what the ICRC covers
// (addresses, ports) makes the receiver of a RoCE packet drop it, as on the wire.
struct ActionTemplate {
    FieldValues values;
    std::optional<FieldValues> mask;
    std::vector<ActionDescriptor> descriptors;
};

struct Monitor {
    bool counter = false;  // each entry counts packets and bytes (counter_type NON_SHARED)
};

struct PipeConfig {
    std::string name;
    PipeType type = PipeType::kBasic;
    bool is_root = false;
    // Entries that exist at one time, replacements that an update has left behind included. A HASH
    // pipe: exactly how many, a power of two.
    std::uint32_t entries_max = 8192;
    Match match;                            // BASIC, and HASH by kHash or kIdentity
    std::optional<FieldValues> match_mask;  // absent: no mask at all
    std::vector<ActionTemplate> actions;
    Monitor monitor;
    HashAlgorithm algorithms = HashAlgorithm::kNone;  // HASH
    Forward forward;
    Forward miss;  // kPipe, kDrop or kNone only
};

// The part of an entry that an update replaces.
struct EntryActions {
    std::uint8_t action_index = 0;
    FieldValues values;  // those that the action template leaves to entries
    Monitor monitor;     // counts if the pipe or the entry says so
    Forward forward;
};
struct BasicEntry {
    FieldValues match;  // those that the match template leaves to entries
    EntryActions actions;
};
struct ControlEntry {
    std::uint32_t priority = 0;  // 0 is searched first; equal ones in the order of their addition
    Match match;
    std::optional<FieldValues> mask;
    // Of the pipe's templates, or, when it has none, `own_actions`.
    EntryActions actions;
    std::optional<ActionTemplate> own_actions;
};
struct HashEntry {
    std::uint32_t index = 0;
    EntryActions actions;
};

struct FlowCounters {
    std::uint64_t packets = 0, bytes = 0;  // bytes on the wire with ICRC, without FCS
    bool operator==(const FlowCounters&) const = default;
};

enum class PortKind : std::uint8_t { kWire, kVport };
struct PortInfo {
    PortId id;
    PortKind kind = PortKind::kVport;
    std::string name;    // wire: that of the card's port (p0); vport: representor (pf0sf0), or of
                         // the PF itself its device
    std::string device;  // vport: the RDMA device behind it (mlx5_2)
    std::vector<Gid> addresses = {};  // vport: the IP addresses of the function
};

// A copy of a frame that kRss has sent to a queue.
struct CapturedFrame {
    std::uint16_t queue = 0;
    PortId port;                   // where it came into the domain
    std::vector<std::byte> bytes;  // a whole Ethernet frame with ICRC, without FCS
};

}  // namespace rdmalab::flow

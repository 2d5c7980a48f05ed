// Memory of client processes through process_vm_readv and process_vm_writev.
//
// ## How copies become system calls
// One call costs about 1 us whatever it moves, and every scattered piece about 0.4 us more, so
// copies are queued and carried out in batches of up to kBatchCopies copies and kBatchBytes bytes:
//
//   1. *Queue*: packets of one QP that continue each other on both sides become one copy, so that a
//      64 KiB message is one piece of a call. Each packet keeps its owner in case it fails.
//   2. *Gather*: the sources that lie in client processes are read into the arena, one call per
//      source process. Sources in this process (inline data, small payload) are used in place.
//   3. *Scatter*: one call per target process, whose local pieces point into the arena or at the
//      sources used in place. Targets in this process (small areas of shared rings) are memcpy'd.
//
// The arena is reused from its start for every batch and stays in the second-level cache: what the
// gather writes, the scatter reads from there.
//
// Bytes of this process that the very next copy overwrites are not placed at all (a stream of
// inline writes to one address); such a copy shares the outcome of the next one.
//
// ## Order
// Copies behave as if they were carried out one after the other. Within a batch all reads come
// before all writes, and processes are served one after the other. That is only visible when a copy
// reads what an earlier one of the batch writes, or when both touch memory of this process; such a
// copy ends the batch (`depends_on_batch`). Two spaces of one process (a program that opened two
// devices) are the same memory and are compared by process.
//
// ## Faults
// The kernel stops a call at the first page that is not there and returns the bytes before it. The
// copy that holds the next byte is the one that failed; the others of the call go on without it. If
// it stands for several packets, the whole batch is first taken apart into packets (`split_batch`)
// and the step repeated, so that exactly the packets that failed are blamed.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/ports.h"

namespace rdmalab::card::host {

class ProcessMemory final : public transport::MemoryPort {
public:
    static constexpr std::uint32_t kBatchBytes = 256 * 1024;
    static constexpr std::size_t kBatchCopies = 512;  // below the 1024 pieces of one call

    struct Counters {
        std::uint64_t flushes = 0;  // that had something to do
        std::uint64_t batches = 0, copies = 0, bytes = 0, read_calls = 0, write_calls = 0,
                      faults = 0;
    };

    ProcessMemory();

    void add_process(SpaceId space, pid_t pid);
    // Addresses of a direct space are pointers of this process.
    void add_direct(SpaceId space);
    // What is still queued for the space fails.
    void remove(SpaceId space);

    void copy(SpaceId target, std::uint64_t target_address, const wire::PayloadSegment& source,
              transport::CopyOwner owner) override;
    bool read(SpaceId space, std::uint64_t address, ByteSpan out) override;
    bool write(SpaceId space, std::uint64_t address, ByteView bytes) override;
    void flush(std::vector<transport::CopyFault>& faults) override;

    const Counters& counters() const { return counters_; }

private:
    static constexpr pid_t kHere = 0;      // this process
    static constexpr pid_t kNowhere = -1;  // the space is gone

    struct Packet {
        std::uint32_t length;
        transport::CopyOwner owner;
    };
    struct Range {  // what is to be moved; one packet or several of one QP
        std::uint64_t source_address, target_address;
        std::uint32_t length;
        std::uint32_t first_packet, packet_count;  // in packets_
    };
    struct Copy : Range {
        SpaceId source, target;
        bool superseded;  // by the next copy
    };
    enum class Outcome : std::uint8_t { kOk, kSourceFault, kTargetFault };
    struct Item : Range {        // a copy of the running batch
        const std::byte* bytes;  // once gathered
        pid_t source, target;
        Outcome outcome;
        bool superseded;
        bool done;             // placed, superseded or failed
        bool is_gone = false;  // failed, because the process has ended
    };
    // The hull of address ranges in one process.
    struct Hull {
        pid_t process;
        std::uint64_t begin, end;
    };
    enum class Step : std::uint8_t { kDone, kRepeat };

    bool join_last(SpaceId target, std::uint64_t target_address, const wire::PayloadSegment& source,
                   const transport::CopyOwner& owner);
    pid_t resolve(SpaceId space, std::size_t cache_slot);
    void run_queue();
    void run_batch();
    std::size_t collect(std::size_t first);
    Item make_item(const Copy& copy);
    bool depends_on_batch(const Item& item) const;
    void note_hulls(const Item& item);
    Step gather();
    Step scatter();
    void select_sources(std::size_t first);
    void select_targets(std::size_t first);
    Step read_group();
    Step write_group();
    Step settle_group(ssize_t moved, Outcome fault, std::size_t& first);
    void split_batch();
    void report_faults();

    struct FreeArena {
        void operator()(std::byte* arena) const { std::free(arena); }
    };
    std::unique_ptr<std::byte[], FreeArena> arena_;
    std::size_t arena_used_ = 0;
    std::unordered_map<SpaceId, pid_t> processes_;
    struct CachedSpace {
        SpaceId space;
        pid_t process = kHere;
    };
    std::array<CachedSpace, 2> cache_;  // of the last source and the last target
    std::vector<Copy> queue_;
    std::vector<Packet> packets_;
    std::vector<Item> batch_, split_;
    bool is_split_ = false;
    std::vector<Item*> group_;  // items of one call
    std::vector<Hull> target_hulls_, here_hulls_;
    std::vector<iovec> local_, remote_;
    std::vector<transport::CopyFault> faults_;
    Counters counters_;
};

}  // namespace rdmalab::card::host

// One pipe: its templates, its entries, and how a packet finds one of them.
//
// Entries live in slots. An update takes a free slot, fills it, and turns the key (or the place in
// the priority order) over to it in one step; the old slot is retired and becomes free when the
// owner has processed the completion. So a packet meets the old rule or the new one, and a pipe
// whose slots are all in use cannot be updated.
#pragma once

#include <memory>
#include <vector>

#include "base/prng.h"
#include "flow/action_program.h"
#include "flow/key_table.h"
#include "flow/match_plan.h"
#include "flow/pipe_control.h"

namespace rdmalab::flow {

class Pipe;

// A forward with its names resolved.
struct Target {
    ForwardKind kind = ForwardKind::kDrop;
    HashAlgorithm algorithm = HashAlgorithm::kNone;
    std::uint16_t number = 0;  // port or queue
    Pipe* pipe = nullptr;
    const std::vector<std::uint16_t>* queues = nullptr;  // more than one
};

struct Entry {
    FlowCounters counters;
    Target target;
    bool counts = false;
    std::unique_ptr<const ActionProgram> program;  // nullptr: it changes nothing
};

class Pipe {
public:
    // What an operation on an entry brings, its forward resolved. `forward` is the one in force,
    // be it the entry's or the pipe's.
    struct Rule {
        EntryId id;
        EntryActions actions;
        Forward forward;
        Target target;
    };
    enum class SlotState : std::uint8_t { kFree, kLive, kRetired };
    // What the data path does not need to know of an entry.
    struct Record {
        SlotState state = SlotState::kFree;
        EntryId id;
        EntryActions actions;
        std::unique_ptr<Forward> forward;  // in force; Target::queues points into it
        FieldValues match;
        std::unique_ptr<MatchPlan> plan;  // CONTROL
        L3Type l3_type = L3Type::kNone;
        L4Type l4_type = L4Type::kNone;
        std::optional<FieldValues> mask;
        std::optional<ActionTemplate> own_actions;
        std::uint32_t order = 0;  // CONTROL: priority; HASH: index
    };

    // Checks everything but the forwards, which the pipeline resolves.
    static Result<std::unique_ptr<Pipe>> make(PipeId id, const PipeConfig& config);

    PipeId id() const { return id_; }
    const PipeConfig& config() const { return config_; }
    const std::string& name() const { return config_.name; }
    const MatchPlan& match() const { return match_; }
    bool is_control() const { return config_.type == PipeType::kControl; }
    bool is_hash() const { return config_.type == PipeType::kHash; }

    // --- Control. Slots are numbers that stay until the entry is gone.
    Result<std::uint32_t> add(const BasicEntry& entry, Rule rule);
    Result<std::uint32_t> add(const ControlEntry& entry, Rule rule);
    Result<std::uint32_t> add(const HashEntry& entry, Rule rule);
    // The slot of the replacement; the old one is retired.
    Result<std::uint32_t> update(std::uint32_t slot, Rule rule);
    void remove(std::uint32_t slot);  // it is retired
    void release(std::uint32_t retired_slot);
    void set_miss(const Forward& forward, const Target& target);
    void set_forward(const Forward& forward, const Target& target);

    const Entry& entry(std::uint32_t slot) const { return entries_[slot]; }
    const Record& record(std::uint32_t slot) const { return records_[slot]; }
    std::uint32_t slots() const { return static_cast<std::uint32_t>(records_.size()); }
    std::uint32_t live() const { return live_; }
    std::uint32_t retired() const { return retired_; }
    const Forward& miss_forward() const { return config_.miss; }
    const Target& forward_target() const { return forward_target_; }
    // Slots of live entries in the order in which they are searched, or by index, or as they came.
    std::vector<std::uint32_t> live_slots() const;
    // Whether the miss, the pipe's or an entry's forward leads to `pipe`.
    bool leads_to(const Pipe& pipe) const;
    std::string describe(std::uint32_t slot) const;  // entry 7 (meta.u32[4]=5)

    // --- Data path.
    // The entry that takes the packet; nullptr: none does. Not for kFlooding.
    Entry* pick(Packet& packet, HashAlgorithm algorithm, Prng& random) {
        switch (config_.type) {
            case PipeType::kBasic:
                return pick_by_key(packet, random);
            case PipeType::kHash:
                return pick_by_hash(packet, algorithm, random);
            case PipeType::kControl:
                break;
        }
        return pick_by_order(packet, random);
    }
    // HASH: by index; nullptr: nothing there.
    Entry* at_index(std::uint32_t index) {
        const std::uint32_t slot = by_index_[index];
        return slot == KeyTable::kNone ? nullptr : &entries_[slot];
    }
    EntryId id_of(const Entry& entry) const {
        return records_[static_cast<std::size_t>(&entry - entries_.data())].id;
    }
    // CONTROL: priority; HASH: index.
    std::uint32_t order_of(const Entry& entry) const {
        return records_[static_cast<std::size_t>(&entry - entries_.data())].order;
    }
    const Target& miss_target() const { return miss_target_; }

    // Kept by the pipeline.
    FlowCounters misses;
    std::uint64_t hits = 0;

private:
    Pipe(PipeId id, const PipeConfig& config) : id_(id), config_(config) {}

    Status prepare();
    Status prepare_hash();
    Status prepare_actions();
    Error wrong(int code, const std::string& text) const;
    Result<std::uint32_t> take_slot(bool is_replacement);
    Result<ActionProgram> program_for(const EntryActions& actions,
                                      const std::optional<ActionTemplate>& own) const;
    void fill(std::uint32_t slot, Rule rule, ActionProgram program);
    void retire(std::uint32_t slot);
    void turn_over(std::uint32_t old_slot, std::uint32_t new_slot);
    void insert_by_order(std::uint32_t slot);

    Entry* pick_by_key(Packet& packet, Prng& random) {
        if (!match_.has_layers(packet)) return nullptr;
        if (uses_random_) draw(packet, random);
        std::uint64_t key[kKeyWordsMax];
        match_.words().load(packet, key);
        const std::uint32_t slot = table_.find(key);
        return slot == KeyTable::kNone ? nullptr : &entries_[slot];
    }
    Entry* pick_by_hash(Packet& packet, HashAlgorithm algorithm, Prng& random);
    Entry* pick_by_order(Packet& packet, Prng& random);
    static void draw(Packet& packet, Prng& random) {
        packet.notes.random = static_cast<std::uint16_t>(random.next() >> 48);
    }

    PipeId id_;
    PipeConfig config_;
    MatchPlan match_;
    bool uses_random_ = false;
    KeyTable table_;
    std::vector<Entry> entries_;  // by slot
    Target miss_target_, forward_target_;
    std::vector<std::uint32_t> by_index_;  // HASH: slot of each index
    std::vector<std::uint32_t> by_order_;  // CONTROL: slots, the first to be searched first
    std::uint32_t next_index_ = 0;         // HASH, kRoundRobin
    std::vector<ActionPlan> plans_;
    std::vector<Record> records_;  // by slot
    std::vector<std::uint32_t> free_;
    std::uint32_t live_ = 0, retired_ = 0;
};

}  // namespace rdmalab::flow

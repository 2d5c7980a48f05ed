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

struct alignas(64) Entry {
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
    [[gnu::always_inline]] Entry* pick(Packet& packet, HashAlgorithm algorithm, Prng& random) {
        if (look_up_ == LookUp::kOnly) return pick_only(packet, random);
        if (look_up_ == LookUp::kWord) return pick_by_word(packet, random);
        return pick_otherwise(packet, algorithm, random);
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
    std::uint64_t hits = 0;
    FlowCounters misses;

private:
    Pipe(PipeId id, const PipeConfig& config) : id_(id), config_(config) {}

    Status prepare();
    void choose_look_up();
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

    // How a packet finds its entry, by what the match leaves to entries.
    enum class LookUp : std::uint8_t {
        kOnly,   // BASIC: nothing, so there is one entry; and the match is one word at most
        kWord,   // BASIC: the key is one word
        kWords,  // BASIC
        kHash,
        kOrder,  // CONTROL
    };

    Entry* entry_or_null(std::uint32_t slot) {
        return slot == KeyTable::kNone ? nullptr : &entries_[slot];
    }
    Entry* pick_only(Packet& packet, Prng& random) {
        if ((packet.layers & layers_) != layers_) return nullptr;
        if (uses_random_) draw(packet, random);
        return word_of(packet) == constant_ ? entry_or_null(only_) : nullptr;
    }
    Entry* pick_by_word(Packet& packet, Prng& random) {
        if ((packet.layers & layers_) != layers_) return nullptr;
        if (uses_random_) draw(packet, random);
        return entry_or_null(table_.find_word(word_of(packet)));
    }
    std::uint64_t word_of(const Packet& packet) const {
        const std::byte* const at = packet.base(word_.base) + word_.offset;
        return load_bytes<std::uint64_t>(at) & word_.mask;
    }
    Entry* pick_otherwise(Packet& packet, HashAlgorithm algorithm, Prng& random);
    [[gnu::noinline]] Entry* pick_by_words(Packet& packet, Prng& random);
    Entry* pick_by_hash(Packet& packet, HashAlgorithm algorithm, Prng& random);
    [[gnu::noinline]] Entry* pick_by_order(Packet& packet);
    Entry* take_index(Packet& packet, std::uint32_t number);
    static void draw(Packet& packet, Prng& random) {
        packet.notes.random = static_cast<std::uint16_t>(random.next() >> 48);
    }

    // What every packet needs stands together.
    LookUp look_up_ = LookUp::kWords;
    bool uses_random_ = false;
    std::uint32_t layers_ = 0;
    std::uint32_t only_ = KeyTable::kNone;  // the slot that was added last: of kOnly, the only one
    WordAt word_;                           // kOnly, kWord
    std::uint64_t constant_ = 0;            // kOnly: what the word must be
    std::vector<Entry> entries_;            // by slot
    KeyTable table_;
    MatchPlan match_;
    Target miss_target_, forward_target_;
    PipeId id_;
    PipeConfig config_;
    std::vector<std::uint32_t> by_index_;  // HASH: slot of each index
    std::vector<std::uint32_t> by_order_;  // CONTROL: slots, the first to be searched first
    std::uint32_t next_index_ = 0;         // HASH, kRoundRobin
    std::vector<ActionPlan> plans_;
    std::vector<Record> records_;  // by slot
    std::vector<std::uint32_t> free_;
    std::uint32_t live_ = 0, retired_ = 0;
};

}  // namespace rdmalab::flow

#include "flow/pipe.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

#include "base/limits.h"

namespace rdmalab::flow {
namespace {

constexpr std::size_t kNameMax = 127;

}  // namespace

Error Pipe::wrong(int code, const std::string& text) const {
    return {code, "pipe \"" + config_.name + "\": " + text};
}

// --- Making one

Result<std::unique_ptr<Pipe>> Pipe::make(PipeId id, const PipeConfig& config) {
    std::unique_ptr<Pipe> pipe(new Pipe(id, config));
    if (Status prepared = pipe->prepare(); !prepared) return prepared.error();
    return pipe;
}

Status Pipe::prepare() {
    if (config_.name.empty() || config_.name.size() > kNameMax) {
        return Error{EINVAL, "the name of a pipe: expected 1 to 127 characters, found " +
                                 std::to_string(config_.name.size())};
    }
    if (config_.entries_max == 0 || config_.entries_max > limits::kFlowEntryMax) {
        return wrong(EINVAL, "entries_max: expected 1 to " + std::to_string(limits::kFlowEntryMax) +
                                 ", found " + std::to_string(config_.entries_max));
    }
    const bool has_match = !config_.match.values.empty() || config_.match_mask.has_value() ||
                           config_.match.l3_type != L3Type::kNone ||
                           config_.match.l4_type != L4Type::kNone;
    if (is_control() && has_match) {
        return wrong(EINVAL, "a CONTROL pipe has no match of its own; its entries have");
    }
    const auto use = is_hash() ? MatchPlan::Use::kSelection : MatchPlan::Use::kTemplate;
    auto match = MatchPlan::make(config_.match, config_.match_mask, use);
    if (!match.ok()) return wrong(match.error().code, match.error().text);
    match_ = std::move(*match);
    uses_random_ = match_.uses(Field::kParserRandom);
    layers_ = match_.layers();
    table_ = KeyTable(match_.words().size());
    choose_look_up();
    if (is_hash()) {
        if (Status hash = prepare_hash(); !hash) return hash;
    } else if (config_.algorithms != HashAlgorithm::kNone) {
        return wrong(EINVAL, "only a HASH pipe has a map algorithm");
    }
    return prepare_actions();
}

void Pipe::choose_look_up() {
    if (is_hash()) {
        look_up_ = LookUp::kHash;
    } else if (is_control()) {
        look_up_ = LookUp::kOrder;
    } else if (match_.words().size() <= 1) {
        look_up_ = match_.open_fields().empty() ? LookUp::kOnly : LookUp::kWord;
        if (match_.words().size() == 0) return;  // the mask 0 of no word fits everything
        word_ = match_.words().words().front();
        constant_ = match_.constants().front();
    }
}

Status Pipe::prepare_hash() {
    constexpr unsigned kKnown = 1 | 2 | 4 | 8 | 16;
    const auto flags = static_cast<unsigned>(config_.algorithms);
    if (!std::has_single_bit(config_.entries_max)) {
        return wrong(EINVAL, "a HASH pipe: expected a power of two of entries, found " +
                                 std::to_string(config_.entries_max));
    }
    if (config_.entries_max > limits::kFlowHashEntryMax) {
        return wrong(EINVAL, "a HASH pipe: expected at most " +
                                 std::to_string(limits::kFlowHashEntryMax) + " entries, found " +
                                 std::to_string(config_.entries_max));
    }
    if (flags == 0) return wrong(EINVAL, "a HASH pipe: expected a map algorithm, found none");
    if ((flags & ~kKnown) != 0) {
        return wrong(EOPNOTSUPP,
                     "map algorithm: expected HASH, RANDOM, IDENTITY, ROUND_ROBIN or "
                     "FLOODING, found flag " +
                         std::to_string(flags & ~kKnown));
    }
    const bool needs_match = has_flag(config_.algorithms, HashAlgorithm::kHash) ||
                             has_flag(config_.algorithms, HashAlgorithm::kIdentity);
    if (needs_match && match_.fields().empty()) {
        return wrong(EINVAL,
                     "map algorithms HASH and IDENTITY need a match mask that selects fields");
    }
    if (has_flag(config_.algorithms, HashAlgorithm::kIdentity) && match_.fields().size() != 1) {
        return wrong(EINVAL,
                     "map algorithm IDENTITY: expected one field in the match mask, found " +
                         std::to_string(match_.fields().size()));
    }
    by_index_.assign(config_.entries_max, KeyTable::kNone);
    return {};
}

Status Pipe::prepare_actions() {
    for (std::size_t i = 0; i < config_.actions.size(); ++i) {
        auto plan = ActionPlan::make(config_.actions[i]);
        if (!plan.ok()) {
            return wrong(plan.error().code,
                         "actions[" + std::to_string(i) + "]: " + plan.error().text);
        }
        if (uses_random_ && !is_hash() && plan->writes_headers()) {
            return wrong(EOPNOTSUPP,
                         "a match on parser_meta.random cannot be combined with an "
                         "action that writes a header; use a pipe behind it");
        }
        plans_.push_back(std::move(*plan));
    }
    return {};
}

// --- Entries

Result<std::uint32_t> Pipe::take_slot(bool is_replacement) {
    const std::uint32_t used = live_ + retired_;
    if (used >= config_.entries_max) {
        const std::string found = std::to_string(live_) + " live and " + std::to_string(retired_) +
                                  " retired entries of " + std::to_string(config_.entries_max);
        const std::string what = is_replacement ? "no room for the replacement of an entry: "
                                                : "no room for another entry: ";
        return wrong(retired_ > 0 ? EAGAIN : ENOSPC, what + "found " + found);
    }
    if (!free_.empty()) {
        const std::uint32_t slot = free_.back();
        free_.pop_back();
        return slot;
    }
    records_.emplace_back();
    entries_.emplace_back();
    return static_cast<std::uint32_t>(records_.size() - 1);
}

Result<ActionProgram> Pipe::program_for(const EntryActions& actions,
                                        const std::optional<ActionTemplate>& own) const {
    if (own) {
        if (!plans_.empty()) {
            return wrong(EINVAL, "an entry with actions of its own, but the pipe has templates");
        }
        auto plan = ActionPlan::make(*own);
        if (!plan.ok()) return wrong(plan.error().code, plan.error().text);
        auto program = plan->fill(actions.values);
        if (!program.ok()) return wrong(program.error().code, program.error().text);
        return program;
    }
    if (plans_.empty() && actions.action_index == 0 && actions.values.empty()) {
        return ActionProgram();
    }
    if (actions.action_index >= plans_.size()) {
        return wrong(EINVAL, "action_index: expected one below " + std::to_string(plans_.size()) +
                                 " (the pipe's actions), found " +
                                 std::to_string(actions.action_index));
    }
    auto program = plans_[actions.action_index].fill(actions.values);
    if (!program.ok()) return wrong(program.error().code, program.error().text);
    return program;
}

void Pipe::fill(std::uint32_t slot, Rule rule, ActionProgram program) {
    Record& record = records_[slot];
    record.state = SlotState::kLive;
    record.id = rule.id;
    record.actions = std::move(rule.actions);
    record.forward = std::make_unique<Forward>(std::move(rule.forward));
    Entry& entry = entries_[slot];
    entry.counters = {};
    entry.target = rule.target;
    entry.target.queues = record.forward->queues.size() > 1 ? &record.forward->queues : nullptr;
    entry.counts = config_.monitor.counter || record.actions.monitor.counter;
    entry.program =
        program.empty() ? nullptr : std::make_unique<const ActionProgram>(std::move(program));
    ++live_;
}

Result<std::uint32_t> Pipe::add(const BasicEntry& entry, Rule rule) {
    if (config_.type != PipeType::kBasic) {
        return wrong(EINVAL, "expected an entry for its type, found one for a BASIC pipe");
    }
    const auto key = match_.key_for(entry.match);
    if (!key.ok()) return wrong(key.error().code, key.error().text);
    if (const std::uint32_t taken = table_.find(key->data()); taken != KeyTable::kNone) {
        return wrong(EEXIST, "the key of the entry is that of " + describe(taken) +
                                 "; an entry that is there is updated, not added");
    }
    auto program = program_for(entry.actions, std::nullopt);
    if (!program.ok()) return program.error();
    const auto slot = take_slot(false);
    if (!slot.ok()) return slot;
    fill(*slot, std::move(rule), std::move(*program));
    records_[*slot].match = entry.match;
    table_.insert(*key, *slot);
    only_ = *slot;
    return slot;
}

Result<std::uint32_t> Pipe::add(const ControlEntry& entry, Rule rule) {
    if (!is_control()) {
        return wrong(EINVAL, "expected an entry for its type, found one for a CONTROL pipe");
    }
    auto plan = MatchPlan::make(entry.match, entry.mask, MatchPlan::Use::kLiteral);
    if (!plan.ok()) return wrong(plan.error().code, plan.error().text);
    if (plan->uses(Field::kParserRandom)) {
        return wrong(EOPNOTSUPP, "a match on parser_meta.random: expected a BASIC or HASH pipe");
    }
    auto program = program_for(entry.actions, entry.own_actions);
    if (!program.ok()) return program.error();
    const auto slot = take_slot(false);
    if (!slot.ok()) return slot;
    fill(*slot, std::move(rule), std::move(*program));
    Record& record = records_[*slot];
    record.match = entry.match.values;
    record.l3_type = entry.match.l3_type;
    record.l4_type = entry.match.l4_type;
    record.mask = entry.mask;
    record.own_actions = entry.own_actions;
    record.plan = std::make_unique<MatchPlan>(std::move(*plan));
    record.order = entry.priority;
    insert_by_order(*slot);
    return slot;
}

Result<std::uint32_t> Pipe::add(const HashEntry& entry, Rule rule) {
    if (!is_hash()) {
        return wrong(EINVAL, "expected an entry for its type, found one for a HASH pipe");
    }
    if (entry.index >= by_index_.size()) {
        return wrong(EINVAL, "the index of an entry: expected one below " +
                                 std::to_string(by_index_.size()) + ", found " +
                                 std::to_string(entry.index));
    }
    if (by_index_[entry.index] != KeyTable::kNone) {
        return wrong(EEXIST, "there is an entry at index " + std::to_string(entry.index));
    }
    auto program = program_for(entry.actions, std::nullopt);
    if (!program.ok()) return program.error();
    const auto slot = take_slot(false);
    if (!slot.ok()) return slot;
    fill(*slot, std::move(rule), std::move(*program));
    records_[*slot].order = entry.index;
    by_index_[entry.index] = *slot;
    return slot;
}

Result<std::uint32_t> Pipe::update(std::uint32_t slot, Rule rule) {
    if (is_hash()) {
        return wrong(EOPNOTSUPP, describe(slot) + ": an entry of a HASH pipe cannot be updated");
    }
    auto program = program_for(rule.actions, records_[slot].own_actions);
    if (!program.ok()) return program.error();
    const auto replacement = take_slot(true);
    if (!replacement.ok()) return replacement;
    fill(*replacement, std::move(rule), std::move(*program));
    turn_over(slot, *replacement);
    retire(slot);
    return replacement;
}

void Pipe::turn_over(std::uint32_t old_slot, std::uint32_t new_slot) {
    Record& from = records_[old_slot];
    Record& to = records_[new_slot];
    to.match = from.match;
    to.l3_type = from.l3_type;
    to.l4_type = from.l4_type;
    to.mask = from.mask;
    to.own_actions = from.own_actions;
    to.plan = std::move(from.plan);
    to.order = from.order;
    entries_[new_slot].counters = entries_[old_slot].counters;
    if (is_control()) {
        std::replace(by_order_.begin(), by_order_.end(), old_slot, new_slot);
    } else {
        table_.replace(old_slot, new_slot);
        only_ = new_slot;
    }
}

void Pipe::insert_by_order(std::uint32_t slot) {
    const auto at = std::upper_bound(
        by_order_.begin(), by_order_.end(), records_[slot].order,
        [this](std::uint32_t order, std::uint32_t other) { return order < records_[other].order; });
    by_order_.insert(at, slot);
}

void Pipe::retire(std::uint32_t slot) {
    assert(records_[slot].state == SlotState::kLive);
    records_[slot].state = SlotState::kRetired;
    entries_[slot].target = {};
    --live_;
    ++retired_;
}

void Pipe::remove(std::uint32_t slot) {
    if (is_hash()) {
        by_index_[records_[slot].order] = KeyTable::kNone;
    } else if (is_control()) {
        std::erase(by_order_, slot);
    } else {
        table_.erase(slot);
        only_ = KeyTable::kNone;
    }
    retire(slot);
}

void Pipe::release(std::uint32_t slot) {
    assert(records_[slot].state == SlotState::kRetired);
    records_[slot] = {};
    entries_[slot] = {};
    free_.push_back(slot);
    --retired_;
}

void Pipe::set_miss(const Forward& forward, const Target& target) {
    config_.miss = forward;
    miss_target_ = target;
}

void Pipe::set_forward(const Forward& forward, const Target& target) {
    config_.forward = forward;
    forward_target_ = target;
}

std::vector<std::uint32_t> Pipe::live_slots() const {
    if (is_control()) return by_order_;
    std::vector<std::uint32_t> slots;
    for (std::uint32_t slot = 0; slot < records_.size(); ++slot) {
        if (records_[slot].state == SlotState::kLive) slots.push_back(slot);
    }
    const auto is_earlier = [this](std::uint32_t a, std::uint32_t b) {
        return is_hash() ? records_[a].order < records_[b].order : records_[a].id < records_[b].id;
    };
    std::sort(slots.begin(), slots.end(), is_earlier);
    return slots;
}

bool Pipe::leads_to(const Pipe& pipe) const {
    if (miss_target_.pipe == &pipe || forward_target_.pipe == &pipe) return true;
    return std::any_of(entries_.begin(), entries_.end(),
                       [&](const Entry& entry) { return entry.target.pipe == &pipe; });
}

std::string Pipe::describe(std::uint32_t slot) const {
    const Record& record = records_[slot];
    std::string rule;
    if (is_hash()) rule = "index " + std::to_string(record.order);
    if (is_control()) rule = "priority " + std::to_string(record.order);
    for (const auto& item : record.match.items()) {
        if (!rule.empty()) rule += ' ';
        rule += std::string(name_of(item.field)) + "=" + print_value(item.field, item.value);
    }
    const std::string number = "entry " + std::to_string(record.id.value);
    return rule.empty() ? number : number + " (" + rule + ")";
}

// --- Data path

// The entry at the index, cut to the size of the pipe. Leaves it in meta.u32[3], bits 31:16, as the
// adapter does: the first two bytes.
inline Entry* Pipe::take_index(Packet& packet, std::uint32_t number) {
    const std::uint32_t index = number & static_cast<std::uint32_t>(by_index_.size() - 1);
    store_bytes(reinterpret_cast<std::byte*>(&packet.notes.u32[3]),
                Be16(static_cast<std::uint16_t>(index)));
    return at_index(index);
}

Entry* Pipe::pick_otherwise(Packet& packet, HashAlgorithm algorithm, Prng& random) {
    if (look_up_ == LookUp::kHash) {
        if (algorithm != HashAlgorithm::kRandom) return pick_by_hash(packet, algorithm, random);
        return take_index(packet, static_cast<std::uint32_t>(random.next() >> 32));
    }
    return look_up_ == LookUp::kWords ? pick_by_words(packet, random) : pick_by_order(packet);
}

Entry* Pipe::pick_by_words(Packet& packet, Prng& random) {
    if (!match_.has_layers(packet)) return nullptr;
    if (uses_random_) draw(packet, random);
    std::uint64_t key[kKeyWordsMax];
    match_.words().load(packet, key);
    return entry_or_null(table_.find(key));
}

Entry* Pipe::pick_by_hash(Packet& packet, HashAlgorithm algorithm, Prng& random) {
    std::uint32_t index = 0;
    switch (algorithm) {
        case HashAlgorithm::kRoundRobin:
            index = next_index_++;
            break;
        case HashAlgorithm::kHash: {
            if (!match_.has_layers(packet)) return nullptr;
            if (uses_random_) draw(packet, random);
            std::uint64_t key[kKeyWordsMax];
            match_.words().load(packet, key);
            index = static_cast<std::uint32_t>(hash_words(key, match_.words().size()));
            break;
        }
        case HashAlgorithm::kIdentity: {
            if (!match_.has_layers(packet)) return nullptr;
            if (uses_random_) draw(packet, random);
            const MaskedField& field = match_.fields().front();
            const FieldValue value = read_field(packet, field.field) & field.mask;
            index = static_cast<std::uint32_t>(value.low);
            break;
        }
        default:
            return nullptr;
    }
    return take_index(packet, index);
}

Entry* Pipe::pick_by_order(Packet& packet) {
    for (const std::uint32_t slot : by_order_) {
        if (records_[slot].plan->matches(packet)) return &entries_[slot];
    }
    return nullptr;
}

}  // namespace rdmalab::flow

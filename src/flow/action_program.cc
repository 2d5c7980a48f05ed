#include "flow/action_program.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "wire/checksum.h"

namespace rdmalab::flow {
namespace {

constexpr std::size_t kIpv4ChecksumAt = 10, kTcpChecksumAt = 16, kUdpChecksumAt = 6,
                      kIcmpChecksumAt = 2;
constexpr std::size_t kFieldWordsMax = 3;  // an IPv6 address that begins within a word

std::string quote(Field field) { return std::string(name_of(field)); }

// RFC 1624, equation 3. One's complement sums do not care about byte order.
std::uint64_t plus(std::uint64_t a, std::uint64_t b) {
    const std::uint64_t sum = a + b;
    return sum + (sum < a);
}

inline void mend(std::byte* at, std::uint64_t before, std::uint64_t after) {
    const auto checksum = static_cast<std::uint16_t>(~load_bytes<std::uint16_t>(at));
    const std::uint64_t sum = plus(plus(~before, after), checksum);
    store_bytes(at, static_cast<std::uint16_t>(~wire::fold_checksum(sum)));
}

void mend_l4(Packet& packet, bool is_address, std::uint64_t before, std::uint64_t after) {
    std::byte* const l4 = packet.base(Base::kL4);
    if ((packet.layers & kLayerTcp) != 0) return mend(l4 + kTcpChecksumAt, before, after);
    if ((packet.layers & kLayerUdp) != 0) {
        std::byte* const at = l4 + kUdpChecksumAt;
        if (load_bytes<std::uint16_t>(at) == 0) return;  // RFC 768: there is none
        mend(at, before, after);
        if (load_bytes<std::uint16_t>(at) == 0) store_bytes(at, std::uint16_t{0xffff});
        return;
    }
    // Only that of ICMPv6 covers addresses.
    if (is_address && (packet.layers & kLayerIcmp) != 0 && (packet.layers & kLayerIpv6) != 0) {
        mend(l4 + kIcmpChecksumAt, before, after);
    }
}

Error wrong(Field field, const std::string& text) {
    return {EINVAL, "action on " + quote(field) + ": " + text};
}

bool touches_invariants(Effect effect) {
    return effect == Effect::kAddress || effect == Effect::kTransport;
}

}  // namespace

void ActionProgram::mend_checksums(Effect effect, Packet& packet, std::uint64_t before,
                                   std::uint64_t after) {
    if (effect != Effect::kTransport && (packet.layers & kLayerIpv4) != 0) {
        mend(packet.base(Base::kL3) + kIpv4ChecksumAt, before, after);
    }
    if (effect == Effect::kIpHeader) return;
    mend_l4(packet, effect == Effect::kAddress, before, after);
}

void ActionProgram::compute(const Computed& step, Packet& packet) {
    const ActionDescriptor& how = step.descriptor;
    const std::uint32_t needed =
        how.kind == DescriptorKind::kCopy ? layout_of(how.source).layers : 0;
    if ((packet.layers & needed) != needed) return;
    std::uint64_t value = 0;
    if (how.kind == DescriptorKind::kAdd) {
        value = read_field(packet, how.destination).low + (how.addend << how.destination_bit);
    } else {
        const std::uint64_t cut = (std::uint64_t{1} << how.width) - 1;
        const FieldValue source = read_field(packet, how.source);
        const std::uint64_t shifted =
            how.source_bit >= 64 ? source.high >> (how.source_bit - 64)
            : how.source_bit == 0
                ? source.low
                : source.low >> how.source_bit | source.high << (64 - how.source_bit);
        value = (shifted & cut) << how.destination_bit;
    }
    std::array<std::uint64_t, kFieldWordsMax> words{};
    step.plan.place(how.destination, value, std::span(words).first(step.writes.size()));
    for (std::size_t i = 0; i < step.writes.size(); ++i) {
        WriteOp write = step.writes[i];
        write.value = words[i];
        apply(write, packet);
    }
}

Result<ActionPlan> ActionPlan::make(const ActionTemplate& form) {
    ActionPlan plan;
    std::vector<MaskedField> fields;
    if (form.mask) {
        for (const auto& item : form.values.items()) {
            if (!form.mask->contains(item.field)) {
                return wrong(item.field, "expected a mask for it, since others have one");
            }
        }
    }
    const FieldValues& chosen = form.mask ? *form.mask : form.values;
    for (const auto& item : chosen.items()) {
        if (item.value.is_zero()) continue;
        const FieldValue value = form.values[item.field];
        if (layout_of(item.field).effect == Effect::kNotWritable) {
            return wrong(item.field, "expected a field that can be written");
        }
        if ((value & all_ones(item.field)) != value) {
            return wrong(item.field, "the value is wider than the field");
        }
        fields.push_back({item.field, form.mask ? item.value : all_ones(item.field)});
        if (value == all_ones(item.field)) plan.open_.push_back(item.field);
    }
    plan.add_groups(fields, form.values);
    for (const ActionDescriptor& descriptor : form.descriptors) {
        if (Status added = plan.add_descriptor(descriptor); !added) return added.error();
    }
    return plan;
}

void ActionPlan::add_groups(std::span<const MaskedField> fields, const FieldValues& values) {
    std::map<std::pair<Effect, std::uint32_t>, std::vector<MaskedField>> sorted;
    for (const MaskedField& item : fields) {
        const FieldLayout& layout = layout_of(item.field);
        sorted[{layout.effect, layout.layers}].push_back(item);
        writes_headers_ |= layout.base != Base::kNotes;
        touches_icrc_ |= touches_invariants(layout.effect);
        written_.push_back(item.field);
    }
    for (const auto& [kind, members] : sorted) {
        Group group{kind.first, kind.second, WordPlan(members), {}, {}};
        group.constants.resize(group.plan.size());
        for (const MaskedField& item : members) {
            if (std::find(open_.begin(), open_.end(), item.field) != open_.end()) {
                group.open.push_back(item.field);
            } else {
                group.plan.place(item.field, values[item.field], group.constants);
            }
        }
        groups_.push_back(std::move(group));
    }
}

Status ActionPlan::add_descriptor(const ActionDescriptor& descriptor) {
    const FieldLayout& to = layout_of(descriptor.destination);
    if (to.effect == Effect::kNotWritable) {
        return wrong(descriptor.destination, "expected a field that can be written");
    }
    if (to.width > 64) return wrong(descriptor.destination, "expected a field of at most 64 bits");
    std::uint64_t bits = ~std::uint64_t{0};
    if (descriptor.kind == DescriptorKind::kCopy) {
        const unsigned source_width = width_of(descriptor.source);
        if (descriptor.width == 0 || descriptor.width > 32 ||
            descriptor.source_bit + descriptor.width > source_width ||
            descriptor.destination_bit + descriptor.width > to.width) {
            return wrong(descriptor.destination,
                         "a copy of " + std::to_string(descriptor.width) + " bits from bit " +
                             std::to_string(descriptor.source_bit) + " of " +
                             quote(descriptor.source) + " to bit " +
                             std::to_string(descriptor.destination_bit) +
                             ": expected 1 to 32 bits within both fields");
        }
        bits = ((std::uint64_t{1} << descriptor.width) - 1) << descriptor.destination_bit;
    } else if (descriptor.destination_bit >= to.width) {
        return wrong(descriptor.destination, "the bit to add at is beyond the field");
    }
    const std::array<MaskedField, 1> field{{{descriptor.destination, bits}}};
    ActionProgram::Computed step{descriptor, WordPlan(field), {}};
    for (const WordAt& word : step.plan.words()) {
        step.writes.push_back({word.base, to.effect, word.offset, to.layers, word.mask, 0});
    }
    computed_.push_back(std::move(step));
    written_.push_back(descriptor.destination);
    writes_headers_ |= to.base != Base::kNotes;
    touches_icrc_ |= touches_invariants(to.effect);
    return {};
}

Result<ActionProgram> ActionPlan::fill(const FieldValues& values) const {
    for (const auto& item : values.items()) {
        if (std::find(open_.begin(), open_.end(), item.field) == open_.end()) {
            return wrong(item.field,
                         "an entry supplies it, but the pipe's action does not leave it "
                         "to entries (all ones)");
        }
    }
    ActionProgram program;
    for (const Group& group : groups_) {
        std::vector<std::uint64_t> words = group.constants;
        for (const Field field : group.open) group.plan.place(field, values[field], words);
        for (std::size_t i = 0; i < words.size(); ++i) {
            const WordAt& at = group.plan.words()[i];
            program.writes_.push_back(
                {at.base, group.effect, at.offset, group.layers, at.mask, words[i]});
        }
    }
    program.computed_ = computed_;
    program.touches_icrc_ = touches_icrc_;
    program.fields_ = written_;
    return program;
}

}  // namespace rdmalab::flow

#include "flow/match_plan.h"

#include <algorithm>
#include <array>

namespace rdmalab::flow {
namespace {

Error wrong(Field field, const std::string& text) {
    return {EINVAL, "match on " + std::string(name_of(field)) + ": " + text};
}

bool needs_mask(Field field) { return field >= Field::kMetaPkt && field <= Field::kMetaU32_9; }

std::uint32_t layers_of(L3Type type) {
    switch (type) {
        case L3Type::kIpv4:
            return kLayerIpv4;
        case L3Type::kIpv6:
            return kLayerIpv6;
        case L3Type::kNone:
            break;
    }
    return 0;
}

std::uint32_t layers_of(L4Type type) {
    switch (type) {
        case L4Type::kTcp:
            return kLayerTcp | kLayerTransport;
        case L4Type::kUdp:
            return kLayerUdp | kLayerTransport;
        case L4Type::kIcmp:
            return kLayerIcmp | kLayerIpv4;
        case L4Type::kIcmp6:
            return kLayerIcmp | kLayerIpv6;
        case L4Type::kTransport:
            return kLayerTransport;
        case L4Type::kRoceV2:
            return kLayerRoce | kLayerUdp | kLayerTransport;
        case L4Type::kNone:
            break;
    }
    return 0;
}

bool contains(const std::vector<Field>& fields, Field field) {
    return std::find(fields.begin(), fields.end(), field) != fields.end();
}

}  // namespace

Result<MatchPlan> MatchPlan::make(const Match& match, const std::optional<FieldValues>& mask,
                                  Use use) {
    MatchPlan plan;
    if (Status chosen = plan.choose_fields(match, mask, use); !chosen) return chosen.error();
    if (Status demanded = plan.demand_layers(match); !demanded) return demanded.error();
    plan.words_ = WordPlan(plan.fields_);
    plan.constants_.resize(plan.words_.size());
    if (use == Use::kSelection) return plan;
    for (const MaskedField& item : plan.fields_) {
        if (contains(plan.open_, item.field)) continue;
        plan.words_.place(item.field, match.values[item.field], plan.constants_);
    }
    return plan;
}

Status MatchPlan::choose_fields(const Match& match, const std::optional<FieldValues>& mask,
                                Use use) {
    for (const auto& item : match.values.items()) {
        if ((item.value & all_ones(item.field)) != item.value) {
            return wrong(item.field, "the value is wider than the field");
        }
        if (mask && !mask->contains(item.field)) {
            return wrong(item.field, "expected a mask for it, since others have one");
        }
        if (!mask && !item.value.is_zero() && needs_mask(item.field)) {
            return wrong(item.field, "expected a mask, as for all metadata");
        }
    }
    const FieldValues& chosen = mask ? *mask : match.values;
    for (const auto& item : chosen.items()) {
        if (item.value.is_zero()) continue;
        const FieldValue value = match.values[item.field];
        fields_.push_back({item.field, mask ? item.value : all_ones(item.field)});
        if (use == Use::kTemplate && value == all_ones(item.field)) open_.push_back(item.field);
    }
    return {};
}

Status MatchPlan::demand_layers(const Match& match) {
    layers_ = layers_of(match.l3_type) | layers_of(match.l4_type);
    constexpr std::array<std::uint32_t, 3> kExclusive{
        kLayerIpv4 | kLayerIpv6, kLayerTcp | kLayerUdp, kLayerTransport | kLayerIcmp};
    const auto impossible = [&] {
        return std::any_of(kExclusive.begin(), kExclusive.end(),
                           [&](std::uint32_t both) { return (layers_ & both) == both; });
    };
    if (impossible()) return Error{EINVAL, "match: l3_type and l4_type exclude each other"};
    for (const MaskedField& item : fields_) {
        layers_ |= layout_of(item.field).layers;
        if (impossible()) {
            return wrong(item.field, "no packet has it together with the other fields or types");
        }
    }
    return {};
}

Result<std::vector<std::uint64_t>> MatchPlan::key_for(const FieldValues& values) const {
    std::vector<std::uint64_t> key = constants_;
    for (const auto& item : values.items()) {
        if (!contains(open_, item.field)) {
            return wrong(item.field,
                         "an entry supplies it, but the pipe's match does not leave it "
                         "to entries (all ones)");
        }
        words_.place(item.field, item.value, key);
    }
    return key;
}

bool MatchPlan::uses(Field field) const {
    return std::any_of(fields_.begin(), fields_.end(),
                       [field](const MaskedField& item) { return item.field == field; });
}

bool MatchPlan::uses_types() const {
    return std::any_of(fields_.begin(), fields_.end(), [](const MaskedField& item) {
        return item.field >= Field::kParserL2Type && item.field <= Field::kParserL4Ok;
    });
}

}  // namespace rdmalab::flow

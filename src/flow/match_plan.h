// A match, checked and taken apart: the headers that a packet must have, and the words to compare.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "flow/pipe_types.h"
#include "flow/word_plan.h"

namespace rdmalab::flow {

// More words than all fields together need.
inline constexpr std::size_t kKeyWordsMax = 32;

class MatchPlan {
public:
    enum class Use : std::uint8_t {
        kTemplate,  // all ones: left to entries
        kLiteral,   // values are meant as they are (entries of CONTROL pipes, filters)
        kSelection  // only the masks count (HASH pipes)
    };
    // EINVAL with the field and what is wrong with it.
    static Result<MatchPlan> make(const Match& match, const std::optional<FieldValues>& mask,
                                  Use use);
    // The words to compare with, for an entry that supplies `values`. EINVAL for fields that are
    // not left to entries.
    Result<std::vector<std::uint64_t>> key_for(const FieldValues& values) const;

    std::uint32_t layers() const { return layers_; }
    const WordPlan& words() const { return words_; }
    const std::vector<std::uint64_t>& constants() const { return constants_; }
    const std::vector<MaskedField>& fields() const { return fields_; }
    const std::vector<Field>& open_fields() const { return open_; }
    bool uses(Field field) const;
    bool uses_types() const;

    bool has_layers(const Packet& packet) const { return (packet.layers & layers_) == layers_; }
    // The packet's words against the constants: for matches without open fields.
    bool matches(const Packet& packet) const {
        if (!has_layers(packet)) return false;
        const std::vector<WordAt>& at = words_.words();
        for (std::size_t i = 0; i < at.size(); ++i) {
            const std::byte* const bytes = packet.base(at[i].base) + at[i].offset;
            if ((load_bytes<std::uint64_t>(bytes) & at[i].mask) != constants_[i]) return false;
        }
        return true;
    }

private:
    Status choose_fields(const Match& match, const std::optional<FieldValues>& mask, Use use);
    Status demand_layers(const Match& match);

    std::uint32_t layers_ = 0;
    std::vector<MaskedField> fields_;
    std::vector<Field> open_;
    WordPlan words_;
    std::vector<std::uint64_t> constants_;
};

}  // namespace rdmalab::flow

#include "flow/word_plan.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <map>
#include <utility>

namespace rdmalab::flow {
namespace {

using ByteAt = std::pair<Base, std::int16_t>;
constexpr std::int16_t kWordLength = 8;

// The field as the bytes that hold it, shifted into place.
std::array<std::uint8_t, 16> wire_bytes(const FieldLayout& layout, FieldValue value) {
    const std::uint64_t low = value.low << layout.shift;
    std::array<std::uint8_t, 16> bytes{};
    for (unsigned i = 0; i < layout.length; ++i) {
        const unsigned from_end = layout.length - 1u - i;
        const std::uint64_t half = from_end < 8 ? low : value.high;
        bytes[i] = static_cast<std::uint8_t>(half >> (from_end % 8 * 8));
    }
    return bytes;
}

// Words begin at multiples of four, so that checksums can be computed over them.
std::int16_t word_start(std::int16_t offset) { return static_cast<std::int16_t>(offset & ~3); }

void set_byte(std::uint64_t& word, int index, std::uint8_t value) {
    std::array<std::uint8_t, 8> bytes = std::bit_cast<std::array<std::uint8_t, 8>>(word);
    bytes[static_cast<std::size_t>(index)] |= value;
    word = std::bit_cast<std::uint64_t>(bytes);
}

}  // namespace

WordPlan::WordPlan(std::span<const MaskedField> fields) {
    std::map<ByteAt, std::uint8_t> masks;
    for (const MaskedField& item : fields) {
        const FieldLayout& layout = layout_of(item.field);
        const auto bytes = wire_bytes(layout, item.mask & all_ones(item.field));
        for (unsigned i = 0; i < layout.length; ++i) {
            const auto at = static_cast<std::int16_t>(layout.offset + static_cast<int>(i));
            if (bytes[i] != 0) masks[{layout.base, at}] |= bytes[i];
        }
    }
    for (const auto& [at, mask] : masks) {
        const auto [base, offset] = at;
        const bool fits = !words_.empty() && words_.back().base == base &&
                          offset < words_.back().offset + kWordLength;
        if (!fits) words_.push_back({base, word_start(offset), 0});
        set_byte(words_.back().mask, offset - words_.back().offset, mask);
    }
}

void WordPlan::place(Field field, FieldValue value, std::span<std::uint64_t> out) const {
    assert(out.size() == words_.size());
    const FieldLayout& layout = layout_of(field);
    const auto bytes = wire_bytes(layout, value & all_ones(field));
    for (std::size_t w = 0; w < words_.size(); ++w) {
        if (words_[w].base != layout.base) continue;
        std::uint64_t placed = 0;
        for (int i = 0; i < layout.length; ++i) {
            const int in_word = layout.offset + i - words_[w].offset;
            if (in_word < 0 || in_word >= kWordLength) continue;
            set_byte(placed, in_word, bytes[static_cast<std::size_t>(i)]);
        }
        out[w] |= placed & words_[w].mask;
    }
}

}  // namespace rdmalab::flow

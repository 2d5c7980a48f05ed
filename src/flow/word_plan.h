// Fields as 64-bit words. A set of fields under masks becomes a short list of words that are loaded
// from a packet and masked; values become words to compare with, or to write. So matching any
// template is a few loads, one hash, one comparison, and neither cares what the fields are.
//
// Words are raw: eight bytes as they lie in the packet. A word may reach beyond the header it
// belongs to, never beyond the frame's header array or the notes.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "flow/packet.h"

namespace rdmalab::flow {

struct MaskedField {
    Field field;
    FieldValue mask;
};

struct WordAt {
    Base base{};
    std::int16_t offset = 0;
    std::uint64_t mask = 0;
};

class WordPlan {
public:
    WordPlan() = default;
    explicit WordPlan(std::span<const MaskedField> fields);

    std::size_t size() const { return words_.size(); }
    const std::vector<WordAt>& words() const { return words_; }
    // Puts a field's value (under its mask) into `out`, which has one word for each of the plan's.
    void place(Field field, FieldValue value, std::span<std::uint64_t> out) const;

    // The packet's words, masked.
    void load(const Packet& packet, std::uint64_t* out) const {
        for (const WordAt& word : words_) {
            *out++ = load_bytes<std::uint64_t>(packet.base(word.base) + word.offset) & word.mask;
        }
    }

private:
    std::vector<WordAt> words_;
};

// A hash of a key; good in its upper and its lower bits.
inline std::uint64_t hash_words(const std::uint64_t* words, std::size_t count) {
    std::uint64_t hash = 0x9e37'79b9'7f4a'7c15;
    for (std::size_t i = 0; i < count; ++i) {
        hash = (std::rotl(hash, 29) ^ words[i]) * 0xbf58'476d'1ce4'e5b9;
        hash ^= hash >> 32;
    }
    return hash;
}

}  // namespace rdmalab::flow

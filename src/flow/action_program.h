// What an entry does to a packet, ready to run: a list of masked writes.
//
// `ActionPlan` is a template of a pipe, checked and taken apart once; `ActionProgram` is the plan
// with the values of one entry. A write of a field whose header the packet does not have does
// nothing. Checksums are kept right by the difference that a write makes (RFC 1624): a checksum
// that was wrong stays wrong.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "flow/packet.h"
#include "flow/word_plan.h"

namespace rdmalab::flow {

struct WriteOp {
    Base base{};
    Effect effect{};
    std::int16_t offset = 0;
    std::uint32_t layers = 0;
    std::uint64_t mask = 0, value = 0;
};

class ActionProgram {
public:
    bool empty() const { return writes_.empty() && computed_.empty(); }
    // What it writes, for those who watch.
    const std::vector<Field>& fields() const { return fields_; }
    // The frame's ICRC, if elided, stands for its header as it was before.
    void run(Packet& packet) const {
        if (touches_icrc_) packet.frame->keep_emitted_header();
        for (const WriteOp& write : writes_) apply(write, packet);
        for (const Computed& step : computed_) compute(step, packet);
    }

private:
    friend class ActionPlan;
    struct Computed {
        ActionDescriptor descriptor;
        WordPlan plan;
        std::vector<WriteOp> writes;
    };

    static void apply(const WriteOp& write, Packet& packet) {
        if ((packet.layers & write.layers) != write.layers) return;
        std::byte* const at = packet.base(write.base) + write.offset;
        const auto before = load_bytes<std::uint64_t>(at);
        const std::uint64_t after = (before & ~write.mask) | write.value;
        store_bytes(at, after);
        if (write.effect != Effect::kPlain) mend_checksums(write.effect, packet, before, after);
    }
    static void mend_checksums(Effect effect, Packet& packet, std::uint64_t before,
                               std::uint64_t after);
    static void compute(const Computed& step, Packet& packet);

    std::vector<WriteOp> writes_;
    std::vector<Computed> computed_;
    bool touches_icrc_ = false;
    std::vector<Field> fields_;
};

class ActionPlan {
public:
    // EINVAL with the field and what is wrong with it.
    static Result<ActionPlan> make(const ActionTemplate& form);
    // `values`: those that the template leaves to entries. EINVAL for others.
    Result<ActionProgram> fill(const FieldValues& values) const;

    bool writes_headers() const { return writes_headers_; }
    const std::vector<Field>& open_fields() const { return open_; }  // supplied by entries

private:
    struct Group {  // fields with the same effect in the same headers
        Effect effect{};
        std::uint32_t layers = 0;
        WordPlan plan;
        std::vector<std::uint64_t> constants;
        std::vector<Field> open;
    };

    Status add_descriptor(const ActionDescriptor& descriptor);
    void add_groups(std::span<const MaskedField> fields, const FieldValues& values);

    std::vector<Group> groups_;
    std::vector<ActionProgram::Computed> computed_;
    std::vector<Field> open_, written_;
    bool writes_headers_ = false;
    bool touches_icrc_ = false;
};

}  // namespace rdmalab::flow

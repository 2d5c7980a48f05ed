// What the card keeps of the verbs objects of its clients: the shared rings and what is needed to
// report about them. The protocol state lies in the engine.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "card/card.h"
#include "card/ring_abi.h"
#include "card/rings.h"

namespace rdmalab::card {

class Function;

// `generation` tells apart two objects that bore the same handle one after the other, for clients
// that read an event late.
struct CqRecord {
    OwnerId owner;
    CqId id;
    std::uint32_t generation = 0;
    std::uint32_t channel = abi::kNoChannel;
    MappedRegion region;
    CompletionRing ring;
    bool is_touched = false;  // has entries that are not published
    // Moderation (abi::ModifyCqRequest): completions that the channel has not been told of, and
    // when it is told of them at the latest.
    std::uint32_t moderation_count = 0;
    Duration moderation_period;
    std::uint32_t told = 0;  // producer index up to which it was told
    Instant due = Instant::never();
};

struct SrqRecord {
    OwnerId owner;
    SrqId id;
    std::uint32_t generation = 0;
    MappedRegion region;
    RecvRing::Shape shape;
    RecvRing ring;
    bool is_settled = false;  // a broken ring was dealt with
};

struct DmRecord {
    std::uint64_t length = 0;
    MappedRegion region;
    std::uint32_t uses = 0;  // regions registered on it
};

struct QpRecord {
    OwnerId owner;
    Qpn qpn;
    std::uint32_t generation = 0;
    std::uint32_t slot = 0;
    bool has_slot = false;
    SrqRecord* srq = nullptr;
    CqRecord *send_cq = nullptr, *recv_cq = nullptr;
    MappedRegion send_region, recv_region;  // base nullptr: none
    SendRing send;
    RecvRing recv;
    bool is_settled = false;  // a broken ring was dealt with
    transport::QpType type{};
    bool may_have_rules = false;
    bool is_target = false;  // XRC receive: Function::targets knows who shares it
};

// One attachment. Its maps own the records; the function's tables point to them.
struct Context {
    OwnerId owner;
    SpaceId space;
    SpaceId speaker;  // the memory of the process whose request is being handled
    Function* function = nullptr;
    MappedRegion doorbell_region;
    std::unordered_map<std::uint32_t, std::uint32_t> channels;  // handle -> CQs that use it
    std::unordered_map<std::uint32_t, std::unique_ptr<CqRecord>> cqs;
    std::unordered_map<std::uint32_t, std::unique_ptr<SrqRecord>> srqs;
    std::unordered_map<std::uint32_t, std::unique_ptr<QpRecord>> qps;
    std::unordered_map<std::uint32_t, DmRecord> dms;              // by handle
    std::unordered_map<std::uint32_t, std::uint32_t> dm_regions;  // lkey -> DM
    std::vector<QpRecord*> slots;                                 // by doorbell slot; nullptr: free
    std::vector<std::uint32_t> free_slots;
    std::uint32_t next_channel = 0;
    std::uint32_t next_dm = 1;

    abi::DoorbellArea& doorbells() const {
        return *reinterpret_cast<abi::DoorbellArea*>(doorbell_region.base);
    }
    std::optional<std::uint32_t> take_slot(QpRecord& qp);
    void free_slot(std::uint32_t slot);
};

}  // namespace rdmalab::card

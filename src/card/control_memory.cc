// The control calls about memory: regions, windows, device memory.
//
// Device memory is memory of the card, in the memfd that the client shares. A region on it lies in
// the card's own space, so a copy to or from it costs no system call; the client's library reads
// and writes the same pages through its mapping.
#include <cerrno>

#include "base/limits.h"
#include "card/control.h"
#include "card/control_call.h"
#include "card/function.h"
#include "card/verbs_values.h"

namespace rdmalab::card {

ControlReply Control::handle_memory(Context& context, abi::Op op, ByteView body) {
    const auto call = [&](auto method) { return call_with_body(context, method, body); };
    switch (op) {
        case abi::Op::kRegMr:
            return call(&Control::reg_mr);
        case abi::Op::kDeregMr:
            return call(&Control::dereg_mr);
        case abi::Op::kReregMr:
            return call(&Control::rereg_mr);
        case abi::Op::kQueryMr:
            return call(&Control::query_mr);
        case abi::Op::kAllocNullMr:
            return call(&Control::alloc_null_mr);
        case abi::Op::kAllocMw:
            return call(&Control::alloc_mw);
        case abi::Op::kDeallocMw:
            return call(&Control::dealloc_mw);
        case abi::Op::kAllocDm:
            return call(&Control::alloc_dm);
        case abi::Op::kFreeDm:
            return call(&Control::free_dm);
        case abi::Op::kQueryDm:
            return call(&Control::query_dm);
        case abi::Op::kRegDmMr:
            return call(&Control::reg_dm_mr);
        default:
            return failure(EOPNOTSUPP, "unknown request");
    }
}

namespace {

// 0, or EINVAL with the reason.
Error check_place(std::uint64_t address, std::uint64_t length, std::uint64_t iova) {
    if (length == 0) return {EINVAL, "length 0"};
    if (address + length < address || iova + length < iova) {
        return {EINVAL, "the region wraps around the end of the address space"};
    }
    return {};
}

ControlReply answer(const Result<transport::MrKeys>& keys) {
    if (!keys) return failure(keys.error().code, keys.error().text);
    return success(abi::RegMrReply{keys->lkey.value, keys->rkey.value});
}

}  // namespace

// --- Regions

ControlReply Control::reg_mr(Context& context, const abi::RegMrRequest& request) {
    const auto access = mr_access_from_verbs(request.access);
    if (!access) return failure(EINVAL, "access flags that do not go together");
    const Error error = check_place(request.address, request.length, request.iova);
    if (error.code != 0) return failure(error.code, error.text);
    return answer(context.function->engine().register_mr({.owner = context.owner,
                                                          .space = context.speaker,
                                                          .pd = {request.pd},
                                                          .address = request.address,
                                                          .length = request.length,
                                                          .iova = request.iova,
                                                          .access = *access}));
}

ControlReply Control::dereg_mr(Context& context, const abi::HandleRequest& request) {
    const int status = context.function->engine().deregister_mr(context.owner, {request.handle});
    if (status == EBUSY) return failure(EBUSY, "memory windows are bound to the region");
    const auto on_dm = context.dm_regions.find(request.handle);
    if (status == 0 && on_dm != context.dm_regions.end()) {
        --context.dms.at(on_dm->second).uses;
        context.dm_regions.erase(on_dm);
    }
    return plain(status);
}

ControlReply Control::rereg_mr(Context& context, const abi::ReregMrRequest& request) {
    constexpr std::uint32_t kAll = kIbvReregTranslation | kIbvReregPd | kIbvReregAccess;
    if (request.flags == 0 || (request.flags & ~kAll) != 0) return failure(EINVAL, "unknown flags");
    if (context.dm_regions.contains(request.lkey)) {
        return failure(EOPNOTSUPP, "a region on device memory is not changed");
    }
    transport::MrChange change;
    if ((request.flags & kIbvReregPd) != 0) change.pd = PdId{request.pd};
    if ((request.flags & kIbvReregAccess) != 0) {
        change.access = mr_access_from_verbs(request.access);
        if (!change.access) return failure(EINVAL, "access flags that do not go together");
    }
    if ((request.flags & kIbvReregTranslation) != 0) {
        const Error error = check_place(request.address, request.length, request.iova);
        if (error.code != 0) return failure(error.code, error.text);
        change.place = {context.speaker, request.address, request.length, request.iova};
    }
    return plain(context.function->engine().reregister_mr(context.owner, {request.lkey}, change));
}

ControlReply Control::query_mr(Context& context, const abi::HandleRequest& request) {
    const auto facts = context.function->engine().mr_facts(context.owner, {request.handle});
    if (!facts) return failure(ENOENT, "no such memory region");
    return success(abi::QueryMrReply{.pd = facts->pd.value,
                                     .lkey = request.handle,
                                     .rkey = request.handle,
                                     .access = facts->access,
                                     .address = facts->address,
                                     .length = facts->length,
                                     .iova = facts->iova});
}

ControlReply Control::alloc_null_mr(Context& context, const abi::HandleRequest& request) {
    const auto keys =
        context.function->engine().register_mr({.owner = context.owner,
                                                .space = {},
                                                .pd = {request.handle},
                                                .length = ~std::uint64_t{0},
                                                .access = transport::kAccessLocalWrite,
                                                .kind = transport::MrKind::kNull});
    if (!keys) return failure(keys.error().code, keys.error().text);
    return success(abi::RegMrReply{keys->lkey.value, 0});
}

// --- Windows

ControlReply Control::alloc_mw(Context& context, const abi::AllocMwRequest& request) {
    if (request.type != kIbvMwType1 && request.type != kIbvMwType2) {
        return failure(EINVAL, "no such type of memory window");
    }
    const auto type =
        request.type == kIbvMwType1 ? transport::WindowType::kType1 : transport::WindowType::kType2;
    const auto rkey = context.function->engine().create_window(context.owner, {request.pd}, type);
    if (!rkey) return failure(rkey.error().code, rkey.error().text);
    return success(abi::AllocMwReply{rkey->value >> 8, rkey->value});
}

ControlReply Control::dealloc_mw(Context& context, const abi::HandleRequest& request) {
    return plain(context.function->engine().destroy_window(context.owner, request.handle));
}

// --- Device memory

ControlReply Control::alloc_dm(Context& context, const abi::AllocDmRequest& request) {
    if (request.length == 0) return failure(EINVAL, "length 0");
    Function& function = *context.function;
    if (request.length > limits::kDmMax - function.dm_bytes()) {
        return failure(ENOMEM, "the device has not that much device memory left");
    }
    DmRecord dm;
    dm.length = request.length;
    if (!allocate(context.owner, request.length, dm.region)) return failure(ENOMEM);
    function.add_dm_bytes(request.length);
    while (context.dms.contains(context.next_dm)) ++context.next_dm;
    const std::uint32_t handle = context.next_dm++;
    context.dms.emplace(handle, dm);
    return query_dm(context, {handle});
}

ControlReply Control::query_dm(Context& context, const abi::HandleRequest& request) {
    const auto dm = context.dms.find(request.handle);
    if (dm == context.dms.end()) return failure(ENOENT, "no such device memory");
    return success(abi::DmReply{.handle = request.handle,
                                .reserved = 0,
                                .length = dm->second.length,
                                .region = dm->second.region.region});
}

ControlReply Control::free_dm(Context& context, const abi::HandleRequest& request) {
    const auto dm = context.dms.find(request.handle);
    if (dm == context.dms.end()) return failure(EINVAL, "no such device memory");
    if (dm->second.uses > 0) return failure(EBUSY, "memory regions are registered on it");
    context.function->remove_dm_bytes(dm->second.length);
    free(context.owner, dm->second.region);
    context.dms.erase(dm);
    return {};
}

ControlReply Control::reg_dm_mr(Context& context, const abi::RegDmMrRequest& request) {
    const auto dm = context.dms.find(request.dm);
    if (dm == context.dms.end()) return failure(EINVAL, "no such device memory");
    const std::uint64_t size = dm->second.length;
    if (request.length > size || request.offset > size - request.length) {
        return failure(EINVAL, "not wholly inside the device memory");
    }
    const auto access = mr_access_from_verbs(request.access);
    if (!access || (*access & transport::kAccessZeroBased) == 0 ||
        (*access & transport::kAccessOnDemand) != 0) {
        return failure(EINVAL, "access flags that do not go with device memory");
    }
    const auto base = reinterpret_cast<std::uint64_t>(dm->second.region.base);
    const auto keys = context.function->engine().register_mr({.owner = context.owner,
                                                              .space = kCardSpace,
                                                              .pd = {request.pd},
                                                              .address = base + request.offset,
                                                              .length = request.length,
                                                              .iova = 0,
                                                              .access = *access});
    if (keys) {
        ++dm->second.uses;
        context.dm_regions.emplace(keys->lkey.value, request.dm);
    }
    return answer(keys);
}

}  // namespace rdmalab::card

#include "card/control.h"

#include "card/control_call.h"
#include "card/function.h"
#include "card/verbs_values.h"

namespace rdmalab::card {

ControlReply Control::handle(Context& context, abi::Op op, ByteView body, Instant now) {
    const auto call = [&](auto method) { return call_with_body(context, method, body); };
    const auto call_plain = [&](ControlReply (Control::*method)(Context&)) {
        return body.empty() ? (this->*method)(context) : wrong_length(body.size(), 0);
    };
    now_ = now;
    switch (op) {
        case abi::Op::kQueryGids:
            return call_plain(&Control::query_gids);
        case abi::Op::kAllocPd:
            return call_plain(&Control::alloc_pd);
        case abi::Op::kDeallocPd:
            return call(&Control::dealloc_pd);
        case abi::Op::kQueryPd:
            return call(&Control::query_pd);
        case abi::Op::kCreateChannel:
            return call_plain(&Control::create_channel);
        case abi::Op::kDestroyChannel:
            return call(&Control::destroy_channel);
        case abi::Op::kCreateCq:
            return call(&Control::create_cq);
        case abi::Op::kResizeCq:
            return call(&Control::resize_cq);
        case abi::Op::kDestroyCq:
            return call(&Control::destroy_cq);
        case abi::Op::kCreateSrq:
            return call(&Control::create_srq);
        case abi::Op::kModifySrq:
            return call(&Control::modify_srq);
        case abi::Op::kQuerySrq:
            return call(&Control::query_srq);
        case abi::Op::kDestroySrq:
            return call(&Control::destroy_srq);
        case abi::Op::kCreateQp:
            return call(&Control::create_qp);
        case abi::Op::kModifyQp:
            return call(&Control::modify_qp);
        case abi::Op::kQueryQp:
            return call(&Control::query_qp);
        case abi::Op::kDestroyQp:
            return call(&Control::destroy_qp);
        case abi::Op::kCreateAh:
            return call(&Control::create_ah);
        case abi::Op::kDestroyAh:
            return call(&Control::destroy_ah);
        case abi::Op::kAttachMcast:
            return call(&Control::attach_multicast);
        case abi::Op::kDetachMcast:
            return call(&Control::detach_multicast);
        case abi::Op::kModifyCq:
            return call(&Control::modify_cq);
        case abi::Op::kResolveAddress:
            return call(&Control::resolve_address);
        case abi::Op::kOpenXrcd:
            return call(&Control::open_xrcd);
        case abi::Op::kCloseXrcd:
            return call(&Control::close_xrcd);
        case abi::Op::kOpenQp:
            return call(&Control::open_qp);
        default:
            if (op >= abi::Op::kCreateFlow) return handle_rules(context, op, body);
            return handle_memory(context, op, body);
    }
}

// The engine lets go first: it refers to rings, never the other way round.
void Control::release(Context& context) {
    pass_on_targets(context);
    context.function->steering().release(context.owner);
    for (auto& [qpn, qp] : context.qps) qp->may_have_rules = false;  // they have gone, all at once
    context.function->engine().release_owner(context.owner);
    context.function->forget_closed_xrcds();
    for (auto& [handle, dm] : context.dms) {
        context.function->remove_dm_bytes(dm.length);
        free(context.owner, dm.region);
    }
    context.dms.clear();
    for (auto& [qpn, qp] : context.qps) {
        if (!qp->is_target) context.function->remove(*qp);
        free_qp(context, *qp);
    }
    for (auto& [handle, srq] : context.srqs) {
        context.function->remove(*srq);
        free(context.owner, srq->region);
    }
    for (auto& [handle, cq] : context.cqs) {
        context.function->remove(*cq);
        free(context.owner, cq->region);
    }
    context.qps.clear();
    context.srqs.clear();
    context.cqs.clear();
    free(context.owner, context.doorbell_region);
}

bool Control::allocate(OwnerId owner, std::uint64_t length, MappedRegion& out) {
    constexpr std::uint64_t kPage = 4096;
    Result<MappedRegion> region = host_.allocate_region(owner, round_up(length, kPage));
    if (region) out = *region;
    return region.ok();
}

void Control::free(OwnerId owner, MappedRegion& region) {
    if (region.base != nullptr) host_.free_region(owner, region);
    region = {};
}

// --- Protection domains, addresses

ControlReply Control::query_gids(Context& context) {
    const std::vector<Gid>& gids = addresses_.gids(context.function->index());
    ControlReply reply;
    reply.body.resize(gids.size() * sizeof(abi::GidEntry));
    for (std::uint32_t i = 0; i < gids.size(); ++i) {
        abi::GidEntry entry{.index = i, .gid = {}};
        std::memcpy(entry.gid, gids[i].bytes.data(), sizeof entry.gid);
        store_bytes(reply.body.data() + i * sizeof entry, entry);
    }
    return reply;
}

ControlReply Control::alloc_pd(Context& context) {
    const Result<PdId> pd = context.function->engine().create_pd(context.owner);
    if (!pd) return failure(pd.error().code, pd.error().text);
    return success(abi::HandleReply{pd->value});
}

ControlReply Control::query_pd(Context& context, const abi::HandleRequest& request) {
    return plain(context.function->engine().has_pd(context.owner, {request.handle}) ? 0 : ENOENT);
}

ControlReply Control::dealloc_pd(Context& context, const abi::HandleRequest& request) {
    return plain(context.function->engine().destroy_pd(context.owner, {request.handle}));
}

ControlReply Control::create_ah(Context& context, const abi::CreateAhRequest& request) {
    transport::AddressVector av = av_from_abi(request.attributes);
    const int status = addresses_.resolve(context.function->index(), av);
    if (status != 0) return failure(status, "no such address");
    const Result<AhId> ah = context.function->engine().create_ah(context.owner, {request.pd}, av);
    if (!ah) return failure(ah.error().code, ah.error().text);
    return success(abi::HandleReply{ah->value});
}

ControlReply Control::resolve_address(Context& context, const abi::AhAttributes& request) {
    transport::AddressVector av = av_from_abi(request);
    const int status = addresses_.resolve(context.function->index(), av);
    if (status != 0) return failure(status, "no such address");
    abi::ResolveReply reply{};
    std::memcpy(reply.mac, av.destination_mac.bytes.data(), sizeof reply.mac);
    return success(reply);
}

ControlReply Control::destroy_ah(Context& context, const abi::HandleRequest& request) {
    return plain(context.function->engine().destroy_ah(context.owner, {request.handle}));
}

}  // namespace rdmalab::card

// The control calls that make and free shared rings: CQs with their channels, SRQs, QPs.
#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/limits.h"
#include "card/control.h"
#include "card/control_reply.h"
#include "card/function.h"
#include "card/verbs_values.h"

namespace rdmalab::card {

using transport::QpType;

namespace {

constexpr std::uint32_t kChannelMax = 65'536;  // per context

}  // namespace

// --- Completion channels and queues

ControlReply Control::create_channel(Context& context) {
    if (context.channels.size() >= kChannelMax) return failure(ENOMEM, "too many channels");
    while (context.next_channel == abi::kNoChannel ||
           context.channels.contains(context.next_channel)) {
        ++context.next_channel;
    }
    context.channels.emplace(context.next_channel, 0);
    return success(abi::HandleReply{context.next_channel++});
}

ControlReply Control::destroy_channel(Context& context, const abi::HandleRequest& request) {
    const auto channel = context.channels.find(request.handle);
    if (channel == context.channels.end()) return failure(EINVAL, "no such channel");
    if (channel->second > 0) return failure(EBUSY, "the channel has CQs");
    context.channels.erase(channel);
    return {};
}

namespace {
abi::CreateCqReply describe(const CqRecord& cq) {
    return {.cq = cq.id.value,
            .generation = cq.generation,
            .capacity = cq.ring.capacity(),
            .reserved = 0,
            .region = cq.region.region};
}
}  // namespace

ControlReply Control::create_cq(Context& context, const abi::CreateCqRequest& request) {
    if (request.entries == 0 || request.entries > limits::kCqeMax) {
        return failure(EINVAL, "entries out of range");
    }
    const auto channel = context.channels.find(request.channel);
    if (request.channel != abi::kNoChannel && channel == context.channels.end()) {
        return failure(EINVAL, "no such channel");
    }
    const std::uint32_t capacity = std::bit_ceil(request.entries);
    auto cq = std::make_unique<CqRecord>();
    if (!allocate(context.owner, cq_region_length(capacity), cq->region)) return failure(ENOMEM);
    const Result<CqId> id = context.function->engine().create_cq(context.owner, capacity);
    if (!id) {
        free(context.owner, cq->region);
        return failure(id.error().code, id.error().text);
    }
    cq->owner = context.owner;
    cq->id = *id;
    cq->generation = next_generation_++;
    cq->channel = request.channel;
    cq->ring = CompletionRing(cq->region.base, capacity);
    if (request.channel != abi::kNoChannel) ++channel->second;
    context.function->add(*cq);
    const ControlReply reply = success(describe(*cq));
    context.cqs.emplace(id->value, std::move(cq));
    return reply;
}

ControlReply Control::resize_cq(Context& context, const abi::ResizeCqRequest& request) {
    CqRecord* cq = find_record(context.cqs, request.cq);
    if (cq == nullptr) return failure(EINVAL, "no such CQ");
    if (request.entries == 0 || request.entries > limits::kCqeMax) {
        return failure(EINVAL, "entries out of range");
    }
    const std::uint32_t capacity = std::bit_ceil(request.entries);
    MappedRegion region;
    if (!allocate(context.owner, cq_region_length(capacity), region)) return failure(ENOMEM);
    CompletionRing ring(region.base, capacity);
    if (!cq->ring.move_to(ring)) {
        free(context.owner, region);
        return failure(EINVAL, "the unpolled entries do not fit");
    }
    host_.wake(cq->ring.producer_word());  // who sleeps there would never hear of the new ring
    free(context.owner, cq->region);
    cq->region = region;
    cq->ring = ring;
    return success(describe(*cq));
}

ControlReply Control::modify_cq(Context& context, const abi::ModifyCqRequest& request) {
    CqRecord* cq = find_record(context.cqs, request.cq);
    if (cq == nullptr) return failure(EINVAL, "no such CQ");
    if (request.count > abi::kModerationCountMax || request.period_us > abi::kModerationPeriodMax) {
        return failure(EINVAL, "moderation out of range");
    }
    cq->moderation_count = request.count;
    cq->moderation_period = microseconds(request.period_us);
    context.function->remoderate(*cq, now_);
    return {};
}

ControlReply Control::destroy_cq(Context& context, const abi::HandleRequest& request) {
    CqRecord* cq = find_record(context.cqs, request.handle);
    if (cq == nullptr) return failure(EINVAL, "no such CQ");
    const int status = context.function->engine().destroy_cq(context.owner, cq->id);
    if (status != 0) return failure(status);
    context.function->remove(*cq);
    if (cq->channel != abi::kNoChannel) --context.channels[cq->channel];
    free(context.owner, cq->region);
    context.cqs.erase(request.handle);
    return {};
}

// --- Shared receive queues

// The limit of the request does not matter here, says ibv_create_srq(3).
ControlReply Control::create_srq(Context& context, const abi::CreateSrqRequest& request) {
    if (request.wr_max == 0 || request.wr_max > limits::kWqeMax ||
        request.sge_max > limits::kSgeMax) {
        return failure(EINVAL, "capacity out of range");
    }
    const bool is_xrc = request.xrcd != abi::kNoXrcd;
    if (is_xrc && find_record(context.cqs, request.cq) == nullptr) {
        return failure(EINVAL, "no such CQ");
    }
    auto srq = std::make_unique<SrqRecord>();
    RecvRing::Shape& shape = srq->shape;
    shape.capacity = std::bit_ceil(request.wr_max);
    shape.sge_max = std::max(request.sge_max, 1u);
    shape.stride = recv_stride(shape.sge_max);
    if (!allocate(context.owner, recv_region_length(shape.capacity, shape.stride), srq->region)) {
        return failure(ENOMEM);
    }
    transport::SrqInit init{.owner = context.owner,
                            .pd = {request.pd},
                            .wr_max = shape.capacity,
                            .sge_max = shape.sge_max,
                            .xrcd = {},
                            .cq = {request.cq}};
    if (is_xrc) init.xrcd = XrcdId{request.xrcd};
    const Result<SrqId> id = context.function->engine().create_srq(init);
    if (!id) {
        free(context.owner, srq->region);
        return failure(id.error().code, id.error().text);
    }
    srq->owner = context.owner;
    srq->id = *id;
    srq->generation = next_generation_++;
    srq->ring = RecvRing(srq->region.base, shape);
    context.function->add(*srq);
    const ControlReply reply = success(abi::CreateSrqReply{.srq = id->value,
                                                           .generation = srq->generation,
                                                           .capacity = shape.capacity,
                                                           .sge_max = shape.sge_max,
                                                           .stride = shape.stride,
                                                           .reserved = 0,
                                                           .region = srq->region.region});
    context.srqs.emplace(id->value, std::move(srq));
    return reply;
}

ControlReply Control::modify_srq(Context& context, const abi::ModifySrqRequest& request) {
    SrqRecord* srq = find_record(context.srqs, request.srq);
    if (srq == nullptr) return failure(EINVAL, "no such SRQ");
    if (request.limit > srq->shape.capacity) return failure(EINVAL, "limit above the capacity");
    return plain(context.function->engine().set_srq_limit(context.owner, srq->id, request.limit));
}

ControlReply Control::query_srq(Context& context, const abi::HandleRequest& request) {
    SrqRecord* srq = find_record(context.srqs, request.handle);
    if (srq == nullptr) return failure(EINVAL, "no such SRQ");
    const auto limit = context.function->engine().srq_limit(context.owner, srq->id);
    if (!limit) return failure(limit.error().code, limit.error().text);
    return success(abi::QuerySrqReply{*limit});
}

ControlReply Control::destroy_srq(Context& context, const abi::HandleRequest& request) {
    SrqRecord* srq = find_record(context.srqs, request.handle);
    if (srq == nullptr) return failure(EINVAL, "no such SRQ");
    const int status = context.function->engine().destroy_srq(context.owner, srq->id);
    if (status != 0) return failure(status);
    context.function->remove(*srq);
    free(context.owner, srq->region);
    context.srqs.erase(request.handle);
    return {};
}

// --- Queue pairs

namespace {

// Capacities as they will be: at least what was asked for. Nothing when a limit is exceeded. XRC
// has queues on one side only, or none.
std::optional<abi::CreateQpReply> shape_of(abi::CreateQpRequest request, QpType type) {
    if (type == QpType::kXrcRecv) return abi::CreateQpReply{};
    if (type == QpType::kXrcSend) request.recv_wr_max = request.recv_sge_max = 0;
    if (request.send_wr_max > limits::kWqeMax || request.recv_wr_max > limits::kWqeMax ||
        request.send_sge_max > limits::kSgeMax || request.recv_sge_max > limits::kSgeMax ||
        request.inline_max > limits::kInlineMax) {
        return std::nullopt;
    }
    abi::CreateQpReply shape{};
    if (request.send_wr_max > 0) {
        shape.send_capacity = std::bit_ceil(request.send_wr_max);
        shape.send_sge_max = std::max(request.send_sge_max, 1u);
        shape.send_stride = send_stride(shape.send_sge_max, request.inline_max);
        const auto head = static_cast<std::uint32_t>(sizeof(abi::SendEntry) +
                                                     sizeof(abi::Sge) * shape.send_sge_max);
        shape.inline_max = std::min(shape.send_stride - head, limits::kInlineMax);
    }
    if (request.recv_wr_max > 0 && request.srq == abi::kNoSrq) {
        shape.recv_capacity = std::bit_ceil(request.recv_wr_max);
        shape.recv_sge_max = std::max(request.recv_sge_max, 1u);
        shape.recv_stride = recv_stride(shape.recv_sge_max);
    }
    return shape;
}

transport::QpInit engine_init(const Context& context, const abi::CreateQpRequest& request,
                              const abi::CreateQpReply& shape, const QpRecord& qp, QpType type) {
    transport::QpInit init;
    init.owner = context.owner;
    init.type = type;
    init.pd = {request.pd};
    if (qp.send_cq != nullptr) init.send_cq = qp.send_cq->id;
    if (qp.recv_cq != nullptr) init.recv_cq = qp.recv_cq->id;
    if (qp.is_target) init.xrcd = XrcdId{request.xrcd};
    if (qp.srq != nullptr) init.srq = qp.srq->id;
    init.caps = {shape.send_capacity, shape.recv_capacity, shape.send_sge_max, shape.recv_sge_max,
                 shape.inline_max};
    init.signal_all = request.signal_all != 0;
    return init;
}

}  // namespace

bool Control::allocate_rings(Context& context, QpRecord& qp, const abi::CreateQpReply& shape,
                             QpType type) {
    if (shape.send_capacity > 0) {
        const auto length = send_region_length(shape.send_capacity, shape.send_stride);
        if (!allocate(context.owner, length, qp.send_region)) return false;
        qp.send = SendRing(qp.send_region.base, {.capacity = shape.send_capacity,
                                                 .stride = shape.send_stride,
                                                 .sge_max = shape.send_sge_max,
                                                 .type = type});
    }
    if (shape.recv_capacity > 0) {
        const auto length = recv_region_length(shape.recv_capacity, shape.recv_stride);
        if (!allocate(context.owner, length, qp.recv_region)) return false;
        qp.recv = RecvRing(qp.recv_region.base, {.capacity = shape.recv_capacity,
                                                 .stride = shape.recv_stride,
                                                 .sge_max = shape.recv_sge_max});
    }
    const auto slot = context.take_slot(qp);
    if (!slot) return false;
    qp.slot = *slot;
    qp.has_slot = true;
    return true;
}

void Control::free_qp(Context& context, QpRecord& qp) {
    if (qp.has_slot) context.free_slot(qp.slot);
    free(context.owner, qp.send_region);
    free(context.owner, qp.recv_region);
}

// The CQs and the SRQ that the type of the QP calls for.
int Control::take_queues(Context& context, const abi::CreateQpRequest& request, QpRecord& qp) {
    if (qp.is_target) return 0;
    qp.send_cq = find_record(context.cqs, request.send_cq);
    if (qp.send_cq == nullptr) return EINVAL;
    if (request.type == kIbvQptXrcSend) return 0;
    qp.recv_cq = find_record(context.cqs, request.recv_cq);
    if (qp.recv_cq == nullptr) return EINVAL;
    if (request.srq == abi::kNoSrq) return 0;
    qp.srq = find_record(context.srqs, request.srq);
    return qp.srq == nullptr ? EINVAL : 0;
}

ControlReply Control::create_qp(Context& context, const abi::CreateQpRequest& request) {
    const auto type = qp_type_from_verbs(request.type);
    if (!type) return failure(EINVAL, "no such QP type");
    std::optional<abi::CreateQpReply> shape = shape_of(request, *type);
    if (!shape) return failure(EINVAL, "a capacity is above the limit of the device");
    auto qp = std::make_unique<QpRecord>();
    qp->owner = context.owner;
    qp->type = *type;
    qp->is_target = *type == QpType::kXrcRecv;
    if (take_queues(context, request, *qp) != 0) return failure(EINVAL, "no such CQ or SRQ");
    if (!allocate_rings(context, *qp, *shape, *type)) {
        free_qp(context, *qp);
        return failure(ENOMEM);
    }
    const Result<Qpn> qpn =
        context.function->engine().create_qp(engine_init(context, request, *shape, *qp, *type));
    if (!qpn) {
        free_qp(context, *qp);
        return failure(qpn.error().code, qpn.error().text);
    }
    qp->qpn = *qpn;
    qp->generation = next_generation_++;
    shape->qpn = qpn->value;
    shape->generation = qp->generation;
    shape->slot = qp->slot;
    shape->send_region = qp->send_region.region;
    shape->recv_region = qp->recv_region.region;
    if (qp->is_target) {
        context.function->targets()[qpn->value] = {
            context.owner, {request.xrcd}, {{context.owner, qp.get()}}};
    }
    context.function->add(*qp);
    context.qps.emplace(qpn->value, std::move(qp));
    return success(*shape);
}

namespace {
// Whom the engine takes for the owner of the QP.
OwnerId keeper_of(const Context& context, const QpRecord& qp) {
    return qp.is_target ? context.function->targets().at(qp.qpn.value).keeper : context.owner;
}
}  // namespace

ControlReply Control::modify_qp(Context& context, const abi::ModifyQpRequest& request) {
    QpRecord* qp = find_record(context.qps, request.qpn);
    if (qp == nullptr) return failure(EINVAL, "no such QP");
    auto attributes = attributes_from_abi(request.attributes, request.mask);
    if (!attributes) return failure(EINVAL, "an attribute has a value that does not exist");
    if ((request.mask & transport::kQpAv) != 0) {
        const int status = addresses_.resolve(context.function->index(), attributes->av);
        if (status != 0) return failure(status, "no such address");
    }
    const int status = context.function->engine().modify_qp(keeper_of(context, *qp), qp->qpn,
                                                            *attributes, request.mask, now_);
    if (status != 0) return failure(status);
    const bool reset = (request.mask & transport::kQpState) != 0 &&
                       attributes->state == transport::QpState::kReset;
    if (reset) {
        qp->send.discard();
        qp->recv.discard();
        qp->is_settled = false;
    }
    return {};
}

ControlReply Control::query_qp(Context& context, const abi::HandleRequest& request) {
    const QpRecord* qp = find_record(context.qps, request.handle);
    if (qp == nullptr) return failure(EINVAL, "no such QP");
    const auto attributes =
        context.function->engine().query_qp(keeper_of(context, *qp), {request.handle});
    if (!attributes) return failure(attributes.error().code, attributes.error().text);
    return success(attributes_to_abi(*attributes));
}

ControlReply Control::destroy_qp(Context& context, const abi::HandleRequest& request) {
    QpRecord* qp = find_record(context.qps, request.handle);
    if (qp == nullptr) return failure(EINVAL, "no such QP");
    const int status = qp->is_target
                           ? release_target(context, *qp)
                           : context.function->engine().destroy_qp(context.owner, qp->qpn);
    if (status != 0) return failure(status);
    if (!qp->is_target) context.function->remove(*qp);
    free_qp(context, *qp);
    context.qps.erase(request.handle);
    return {};
}

ControlReply Control::attach_multicast(Context& context, const abi::McastRequest& request) {
    const Gid group = load_bytes<Gid>(reinterpret_cast<const std::byte*>(request.gid));
    if (find_record(context.qps, request.qpn) == nullptr) return failure(EINVAL, "no such QP");
    if (!group.is_multicast()) return failure(EINVAL, "not a multicast address");
    return plain(context.function->engine().attach_multicast(context.owner, {request.qpn}, group));
}

ControlReply Control::detach_multicast(Context& context, const abi::McastRequest& request) {
    const Gid group = load_bytes<Gid>(reinterpret_cast<const std::byte*>(request.gid));
    if (find_record(context.qps, request.qpn) == nullptr) return failure(EINVAL, "no such QP");
    return plain(context.function->engine().detach_multicast(context.owner, {request.qpn}, group));
}

}  // namespace rdmalab::card

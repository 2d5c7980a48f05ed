// The control calls of flow rules, flow counters and hash QPs (rule_abi.h, ring_abi.h).
#include <algorithm>
#include <bit>
#include <cerrno>

#include "card/control_call.h"
#include "card/function.h"
#include "card/verbs_values.h"

namespace rdmalab::card {

ControlReply Control::handle_rules(Context& context, abi::Op op, ByteView body) {
    const auto call = [&](auto method) { return call_with_body(context, method, body); };
    switch (op) {
        case abi::Op::kCreateFlow:
            return call(&Control::create_flow);
        case abi::Op::kDestroyFlow:
            return call(&Control::destroy_flow);
        case abi::Op::kCreateCounters:
            return body.empty() ? create_counters(context) : wrong_length(body.size(), 0);
        case abi::Op::kDestroyCounters:
            return call(&Control::destroy_counters);
        case abi::Op::kReadCounters:
            return call(&Control::read_counters);
        case abi::Op::kCreateHashQp:
            return call(&Control::create_hash_qp);
        default:
            return failure(EOPNOTSUPP, "no such operation");
    }
}

ControlReply Control::create_flow(Context& context, const abi::CreateFlowRequest& request) {
    if (!context.function->has_flow_steering())
        return failure(ENXIO, "the device has no flow steering (topology: flow_steering = false)");
    QpRecord* const qp = find_record(context.qps, request.qpn);
    if (qp == nullptr) return failure(EINVAL, "no such QP");
    if (qp->type != transport::QpType::kRaw && qp->type != transport::QpType::kUd)
        return failure(EINVAL, "only UD and raw packet QPs have flow rules");
    const auto rule = context.function->steering().create_rule(context.owner, request);
    if (!rule) return failure(rule.error().code, rule.error().text);
    qp->may_have_rules = true;
    return success(abi::HandleReply{*rule});
}

ControlReply Control::destroy_flow(Context& context, const abi::HandleRequest& request) {
    return plain(context.function->steering().destroy_rule(context.owner, request.handle));
}

ControlReply Control::create_counters(Context& context) {
    if (!context.function->has_flow_steering())
        return failure(EOPNOTSUPP, "the device has no flow steering");
    const auto counters = context.function->steering().create_counters(context.owner);
    if (!counters) return failure(counters.error().code, counters.error().text);
    return success(abi::HandleReply{*counters});
}

ControlReply Control::destroy_counters(Context& context, const abi::HandleRequest& request) {
    return plain(context.function->steering().destroy_counters(context.owner, request.handle));
}

ControlReply Control::read_counters(Context& context, const abi::HandleRequest& request) {
    const auto values = context.function->steering().read_counters(context.owner, request.handle);
    if (!values) return failure(values.error().code, values.error().text);
    return success(*values);
}

// A QP of the engine that never gets a frame: those that are steered to it are spread before.
ControlReply Control::create_hash_qp(Context& context, const abi::CreateHashQpRequest& request) {
    const std::uint32_t length = request.table_length;
    if (!std::has_single_bit(length) || length > abi::kHashTableMax)
        return failure(EINVAL, "the length of the table: expected a power of two up to 512");
    if ((request.fields & ~kHashFieldsAll) != 0) return failure(EINVAL, "no such hash field");
    HashSpread spread;
    spread.fields = request.fields;
    spread.is_inner = request.is_inner != 0;
    std::copy(std::begin(request.key), std::end(request.key), spread.key.begin());
    for (std::uint32_t i = 0; i < length; ++i) {
        const QpRecord* const queue = find_record(context.qps, request.table[i]);
        if (queue == nullptr || queue->type != transport::QpType::kRaw)
            return failure(EINVAL, "an entry of the table is no receive queue of this context");
        spread.table.push_back(queue->qpn);
    }
    abi::CreateQpRequest plain_request{};
    plain_request.type = kIbvQptRawPacket;
    plain_request.pd = request.pd;
    plain_request.send_cq = plain_request.recv_cq = request.cq;
    plain_request.srq = abi::kNoSrq;
    ControlReply reply = create_qp(context, plain_request);
    if (reply.status == 0) {
        const auto made = load_bytes<abi::CreateQpReply>(reply.body.data());
        context.function->add_spread(Qpn{made.qpn}, std::move(spread));
    }
    return reply;
}

}  // namespace rdmalab::card

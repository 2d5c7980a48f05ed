// Flow rules (ibv_create_flow(3)) and the counters that may hang on them.
#include <errno.h>

#include <atomic>
#include <new>

#include "verbs/flow_match.h"
#include "verbs/objects.h"
#include "verbs/operations.h"

namespace rdmalab::verbs {

namespace {

struct Flow : ibv_flow {
    Flow() : ibv_flow{} {}
};

// The card counts packets and bytes. A value of the object is a sum of what was attached to its
// index, so the same description may be attached twice and counts twice.
struct Counters : ibv_counters {
    Counters() : ibv_counters{} {}
    struct Weights {
        std::uint64_t packets = 0, bytes = 0;
    };
    std::uint32_t handle = 0;
    std::uint32_t value_count = 0;
    std::atomic<bool> is_bound{false};  // a rule uses it or has used it
    Weights weights[abi::kFlowCounterValuesMax];
};

Counters& counters_of(ibv_counters* counters) { return *static_cast<Counters*>(counters); }

int name_counters(const Context& context, FlowPlan& plan) {
    for (std::uint32_t i = 0; i < plan.request.counter_count; ++i) {
        Counters& counters = counters_of(plan.counters[i]);
        if (counters.context != &context.context) return EINVAL;
        plan.request.counters[i] = counters.handle;
    }
    return 0;
}

}  // namespace

ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attributes) {
    Context& context = context_of(qp->context);
    if (!(context.attributes.features & abi::kFlowSteering)) return fail(ENXIO);
    FlowPlan plan;
    if (int status = plan_flow(*attributes, plan)) return fail(status);
    if (int status = name_counters(context, plan)) return fail(status);
    plan.request.qpn = qp->qp_num;
    auto* flow = new (std::nothrow) Flow();
    if (flow == nullptr) return fail(ENOMEM);
    abi::HandleReply reply{};
    if (int status = context.connection.call(abi::Op::kCreateFlow, plan.request, reply)) {
        delete flow;
        return fail(status);
    }
    for (std::uint32_t i = 0; i < plan.request.counter_count; ++i) {
        counters_of(plan.counters[i]).is_bound.store(true);
    }
    flow->context = qp->context;
    flow->handle = reply.handle;
    return flow;
}

// A rule that has gone with its QP is EINVAL; the object goes in any case, as there is no other way
// to get rid of it.
int destroy_flow(ibv_flow* public_flow) {
    auto* flow = static_cast<Flow*>(public_flow);
    Context& context = context_of(flow->context);
    int status = context.connection.call(abi::Op::kDestroyFlow, abi::HandleRequest{flow->handle});
    delete flow;
    return destroy_status(context, status);
}

ibv_counters* create_counters(ibv_context* public_context, ibv_counters_init_attr* attributes) {
    if (attributes->comp_mask != 0) return fail(EINVAL);
    Context& context = context_of(public_context);
    auto* counters = new (std::nothrow) Counters();
    if (counters == nullptr) return fail(ENOMEM);
    abi::HandleReply reply{};
    int status = context.connection.call(abi::Op::kCreateCounters, ByteView(),
                                         std::as_writable_bytes(std::span(&reply, 1)));
    if (status != 0) {
        delete counters;
        return fail(status);
    }
    counters->context = public_context;
    counters->handle = reply.handle;
    return counters;
}

int destroy_counters(ibv_counters* public_counters) {
    Counters& counters = counters_of(public_counters);
    Context& context = context_of(counters.context);
    int status =
        context.connection.call(abi::Op::kDestroyCounters, abi::HandleRequest{counters.handle});
    if (destroy_status(context, status) != 0) return status;
    delete &counters;
    return 0;
}

// What a counters object counts is settled before a rule gets it ("static mode" of
// ibv_attach_counters_point_flow(3)); attaching to a flow that is there is not offered.
int attach_counters(ibv_counters* public_counters, ibv_counter_attach_attr* attributes,
                    ibv_flow* flow) {
    Counters& counters = counters_of(public_counters);
    if (attributes->comp_mask != 0) return EINVAL;
    if (flow != nullptr) return ENOTSUP;
    if (attributes->index >= abi::kFlowCounterValuesMax) return ENOTSUP;
    if (counters.is_bound.load()) return EBUSY;
    Counters::Weights& weights = counters.weights[attributes->index];
    if (attributes->counter_desc == IBV_COUNTER_PACKETS)
        ++weights.packets;
    else if (attributes->counter_desc == IBV_COUNTER_BYTES)
        ++weights.bytes;
    else
        return ENOTSUP;
    if (attributes->index >= counters.value_count) counters.value_count = attributes->index + 1;
    return 0;
}

// Values that nothing was attached to are 0. The card has no older values to prefer.
int read_counters(ibv_counters* public_counters, std::uint64_t* values, std::uint32_t count,
                  std::uint32_t flags) {
    Counters& counters = counters_of(public_counters);
    if (flags & ~std::uint32_t{IBV_READ_COUNTERS_ATTR_PREFER_CACHED}) return EINVAL;
    if (count < counters.value_count) return EINVAL;
    abi::ReadCountersReply reply{};
    int status =
        context_of(counters.context)
            .connection.call(abi::Op::kReadCounters, abi::HandleRequest{counters.handle}, reply);
    if (status != 0) return status;
    for (std::uint32_t i = 0; i < count; ++i) {
        Counters::Weights weights;
        if (i < counters.value_count) weights = counters.weights[i];
        values[i] = weights.packets * reply.packets + weights.bytes * reply.bytes;
    }
    return 0;
}

}  // namespace rdmalab::verbs

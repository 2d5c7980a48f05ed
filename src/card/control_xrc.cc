// The control calls of XRC: domains, which programs share by a file, and target QPs, which programs
// share by their number. A target QP lives until the last who holds it gives it back; while it
// lives the engine takes one of the holders for its owner.
#include <algorithm>
#include <cerrno>

#include "card/control.h"
#include "card/control_call.h"
#include "card/function.h"

namespace rdmalab::card {

// The errno values are those of the kernel's uverbs: EAGAIN for a file without a domain when none
// is to be created, EINVAL when it has one and must not.
ControlReply Control::open_xrcd(Context& context, const abi::OpenXrcdRequest& request) {
    Function& function = *context.function;
    const Function::FileId file{request.device, request.inode};
    const bool is_shared = file != Function::FileId{};
    const auto found = is_shared ? function.xrcds().find(file) : function.xrcds().end();
    const bool exists = found != function.xrcds().end();
    if (exists) {
        if ((request.flags & abi::kXrcdExclusive) != 0) return failure(EINVAL, "it exists");
        const int status = function.engine().open_xrcd(context.owner, found->second);
        return status != 0 ? failure(status) : success(abi::HandleReply{found->second.value});
    }
    if (is_shared && (request.flags & abi::kXrcdCreate) == 0) {
        return failure(EAGAIN, "the file has no XRC domain");
    }
    const Result<XrcdId> id = function.engine().create_xrcd(context.owner);
    if (!id) return failure(id.error().code, id.error().text);
    if (is_shared) function.xrcds().emplace(file, *id);
    return success(abi::HandleReply{id->value});
}

ControlReply Control::close_xrcd(Context& context, const abi::HandleRequest& request) {
    const int status = context.function->engine().close_xrcd(context.owner, {request.handle});
    if (status == 0) context.function->forget_closed_xrcds();
    return plain(status);
}

ControlReply Control::open_qp(Context& context, const abi::OpenQpRequest& request) {
    Function& function = *context.function;
    const auto found = function.targets().find(request.qpn);
    if (found == function.targets().end() || found->second.xrcd != XrcdId{request.xrcd}) {
        return failure(EINVAL, "the domain has no such QP");
    }
    if (find_record(context.qps, request.qpn) != nullptr) {
        return failure(EBUSY, "this context holds the QP already");
    }
    auto qp = std::make_unique<QpRecord>();
    qp->owner = context.owner;
    qp->qpn = {request.qpn};
    qp->is_target = true;
    qp->generation = next_generation_++;
    const auto slot = context.take_slot(*qp);
    if (!slot) return failure(ENOMEM);
    qp->slot = *slot;
    qp->has_slot = true;
    found->second.holders.push_back({context.owner, qp.get()});
    abi::CreateQpReply reply{};
    reply.qpn = request.qpn;
    reply.generation = qp->generation;
    reply.slot = qp->slot;
    context.qps.emplace(request.qpn, std::move(qp));
    return success(reply);
}

// The holder `context` lets go; the last one destroys the QP.
int Control::release_target(Context& context, QpRecord& qp) {
    Function& function = *context.function;
    Function::XrcTarget& target = function.targets().at(qp.qpn.value);
    const bool is_keeper = target.keeper == context.owner;
    if (target.holders.size() == 1) {
        const int status = function.engine().destroy_qp(target.keeper, qp.qpn);
        if (status != 0) return status;
        function.remove(qp);
        function.targets().erase(qp.qpn.value);
        return 0;
    }
    std::erase_if(target.holders, [&](const auto& holder) { return holder.record == &qp; });
    if (!is_keeper) return 0;
    const Function::XrcTarget::Holder next = target.holders.front();
    const int status = function.engine().pass_on_qp(target.keeper, qp.qpn, next.owner);
    target.keeper = next.owner;
    function.remove(qp);
    function.add(*next.record);
    return status;
}

// Before the engine forgets a context: what others hold too is theirs from now on.
void Control::pass_on_targets(Context& context) {
    for (auto& [qpn, qp] : context.qps)
        if (qp->is_target) release_target(context, *qp);
}

}  // namespace rdmalab::card

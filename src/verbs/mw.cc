// Memory windows. The card keeps them; binding is work, posted like any other (send_entry.h).
#include <errno.h>

#include <new>

#include "verbs/objects.h"
#include "verbs/operations.h"

namespace rdmalab::verbs {

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
    if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return fail(EINVAL);
    Connection& connection = context_of(pd).connection;
    auto* mw = new (std::nothrow) Mw();
    if (mw == nullptr) return fail(ENOMEM);
    abi::AllocMwRequest request{.pd = pd->handle, .type = type};
    abi::AllocMwReply reply{};
    if (int status = connection.call(abi::Op::kAllocMw, request, reply)) {
        delete mw;
        return fail(status);
    }
    mw->context = pd->context;
    mw->pd = pd;
    mw->rkey = reply.rkey;
    mw->handle = reply.handle;
    mw->type = type;
    return mw;
}

int dealloc_mw(ibv_mw* mw) {
    Context& context = context_of(mw->context);
    int status = context.connection.call(abi::Op::kDeallocMw, abi::HandleRequest{mw->handle});
    if (destroy_status(context, status) != 0) return status;
    delete static_cast<Mw*>(mw);
    return 0;
}

// Type 1: the library chooses the new tag.
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
    if (bind->bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED) return EINVAL;
    ibv_send_wr wr{};
    wr.wr_id = bind->wr_id;
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = bind->send_flags;
    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
    wr.bind_mw.bind_info = bind->bind_info;
    ibv_send_wr* bad = nullptr;
    if (int status = post_send(qp, &wr, &bad)) return status;
    mw->rkey = wr.bind_mw.rkey;
    return 0;
}

}  // namespace rdmalab::verbs

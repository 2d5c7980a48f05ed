// Contexts and their objects, shared between processes (ibv_import_device(3), ibv_import_pd(3)).
// The objects are the card's; what is made here only names them, and to unimport is to forget the
// name.
#include <errno.h>

#include <new>

#include "verbs/fork.h"
#include "verbs/objects.h"

using namespace rdmalab;
using namespace rdmalab::verbs;

extern "C" ibv_context* ibv_import_device(int cmd_fd) {
    // Also makes the devices known, of which one is that of the context.
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    if (list == nullptr || count == 0) {
        ibv_free_device_list(list);
        return fail(ENODEV);
    }
    const auto& device = *static_cast<Device*>(list[0]);
    ibv_free_device_list(list);
    auto* context = new (std::nothrow) Context();
    if (context == nullptr) return fail(ENOMEM);
    if (int status = context->join(device, cmd_fd)) {
        delete context;
        return fail(status);
    }
    remember_for_fork(*context);
    return &context->context;
}

extern "C" ibv_pd* ibv_import_pd(ibv_context* public_context, uint32_t handle) {
    Context& context = context_of(public_context);
    int status = context.connection.call(abi::Op::kQueryPd, abi::HandleRequest{handle});
    if (status != 0) return fail(status);
    auto* pd = new (std::nothrow) Pd();
    if (pd == nullptr) return fail(ENOMEM);
    pd->context = public_context;
    pd->handle = handle;
    return pd;
}

extern "C" void ibv_unimport_pd(ibv_pd* pd) { delete &pd_of(pd); }

// The address is that of another process, so it is not told, as the man page says.
extern "C" ibv_mr* ibv_import_mr(ibv_pd* pd, uint32_t handle) {
    Context& context = context_of(pd);
    abi::QueryMrReply reply{};
    int status = context.connection.call(abi::Op::kQueryMr, abi::HandleRequest{handle}, reply);
    if (status != 0) return fail(status);
    auto* mr = new (std::nothrow) Mr();
    if (mr == nullptr) return fail(ENOMEM);
    mr->context = pd->context;
    mr->pd = pd;
    mr->length = reply.length;
    mr->handle = reply.lkey;
    mr->lkey = reply.lkey;
    mr->rkey = reply.rkey;
    mr->access = reply.access;
    return mr;
}

extern "C" void ibv_unimport_mr(ibv_mr* mr) { delete &mr_of(mr); }

// Protection domains, thread domains, and parent domains, which tie one of each together: objects
// made in a parent domain with a thread domain belong to one thread and need no locks.
#include <errno.h>

#include <new>

#include "verbs/objects.h"
#include "verbs/operations.h"

namespace rdmalab::verbs {

namespace {

int check_parent_domain(const ibv_parent_domain_init_attr& attributes) {
    constexpr std::uint32_t kDefined =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    if (attributes.comp_mask & ~kDefined) return EINVAL;
    if (attributes.pd == nullptr || pd_of(attributes.pd).protection_domain != nullptr) {
        return EINVAL;
    }
    // What they would allocate (rings, doorbells) lies in memory shared with the card, so they are
    // never called; but half a pair is a mistake.
    bool allocates = attributes.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
    bool is_pair = attributes.alloc != nullptr && attributes.free != nullptr;
    return allocates && !is_pair ? EINVAL : 0;
}

int release_parent_domain(Pd& pd) {
    if (pd.users.load() != 0) return EBUSY;
    pd.protection_domain->users.fetch_sub(1);
    if (pd.thread_domain != nullptr) pd.thread_domain->users.fetch_sub(1);
    delete &pd;
    return 0;
}

}  // namespace

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attributes) {
    if (attributes->comp_mask != 0) return fail(EINVAL);
    auto* td = new (std::nothrow) Td();
    if (td == nullptr) return fail(ENOMEM);
    td->context = context;
    return td;
}

int dealloc_td(ibv_td* td) {
    if (static_cast<Td*>(td)->users.load() != 0) return EBUSY;
    delete static_cast<Td*>(td);
    return 0;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes) {
    if (int status = check_parent_domain(*attributes)) return fail(status);
    auto* pd = new (std::nothrow) Pd();
    if (pd == nullptr) return fail(ENOMEM);
    pd->context = context;
    pd->handle = attributes->pd->handle;
    pd->protection_domain = &pd_of(attributes->pd);
    pd->thread_domain = static_cast<Td*>(attributes->td);
    pd->protection_domain->users.fetch_add(1);
    if (pd->thread_domain != nullptr) pd->thread_domain->users.fetch_add(1);
    return pd;
}

}  // namespace rdmalab::verbs

using namespace rdmalab;
using namespace rdmalab::verbs;

extern "C" ibv_pd* ibv_alloc_pd(ibv_context* public_context) {
    Connection& connection = context_of(public_context).connection;
    abi::HandleReply reply{};
    int status = connection.call(abi::Op::kAllocPd, ByteView(),
                                 std::as_writable_bytes(std::span(&reply, 1)));
    if (status != 0) return fail(status);
    auto* pd = new (std::nothrow) Pd();
    if (pd == nullptr) {
        connection.call(abi::Op::kDeallocPd, abi::HandleRequest{reply.handle});
        return fail(ENOMEM);
    }
    pd->context = public_context;
    pd->handle = reply.handle;
    return pd;
}

extern "C" int ibv_dealloc_pd(ibv_pd* public_pd) {
    Pd& pd = pd_of(public_pd);
    if (pd.protection_domain != nullptr) return release_parent_domain(pd);
    if (pd.users.load() != 0) return EBUSY;
    Context& context = context_of(public_pd);
    int status = context.connection.call(abi::Op::kDeallocPd, abi::HandleRequest{pd.handle});
    if (destroy_status(context, status) != 0) return status;
    delete &pd;
    return 0;
}

// Device memory: memory of the card that this process maps. The card reaches it without a system
// call, and so does the program through the two copy functions.
#include <errno.h>
#include <string.h>

#include <new>

#include "verbs/objects.h"
#include "verbs/operations.h"

namespace rdmalab::verbs {

namespace {

constexpr std::uint32_t kAlignmentLogMax = 12;  // the memory begins on a page
constexpr std::uint64_t kWord = 4;              // copies are made of whole words, as on adapters

bool is_inside(const Dm& dm, std::uint64_t offset, std::size_t length) {
    return (offset % kWord) == 0 && (length % kWord) == 0 && length <= dm.length &&
           offset <= dm.length - length;
}

int copy_to(ibv_dm* public_dm, std::uint64_t offset, const void* from, std::size_t length) {
    Dm& dm = dm_of(public_dm);
    if (!is_inside(dm, offset, length)) return EFAULT;
    memcpy(dm.memory.base() + offset, from, length);
    return 0;
}

int copy_from(void* to, ibv_dm* public_dm, std::uint64_t offset, std::size_t length) {
    const Dm& dm = dm_of(public_dm);
    if (!is_inside(dm, offset, length)) return EFAULT;
    memcpy(to, dm.memory.base() + offset, length);
    return 0;
}

// The object for memory that the card has given or shown; null and errno when it fails.
Dm* make_dm(Context& context, const abi::DmReply& reply) {
    auto* dm = new (std::nothrow) Dm();
    if (dm == nullptr) return fail(ENOMEM);
    if (int status = dm->memory.map(context.memory_fd, reply.region, reply.length)) {
        delete dm;
        return fail(status);
    }
    dm->context = &context.context;
    dm->memcpy_to_dm = copy_to;
    dm->memcpy_from_dm = copy_from;
    dm->handle = reply.handle;
    dm->length = reply.length;
    return dm;
}

}  // namespace

ibv_dm* alloc_dm(ibv_context* public_context, ibv_alloc_dm_attr* attributes) {
    Context& context = context_of(public_context);
    if (attributes->comp_mask != 0 || attributes->length == 0 ||
        attributes->log_align_req > kAlignmentLogMax) {
        return fail(EINVAL);
    }
    if (attributes->length > context.attributes.dm_max) return fail(ENOMEM);
    if (int status = context.rejoin_after_fork()) return fail(status);
    abi::DmReply reply{};
    abi::AllocDmRequest request{.length = attributes->length};
    if (int status = context.connection.call(abi::Op::kAllocDm, request, reply)) {
        return fail(status);
    }
    Dm* dm = make_dm(context, reply);
    if (dm == nullptr) {
        context.connection.call(abi::Op::kFreeDm, abi::HandleRequest{reply.handle});
    }
    return dm;
}

int free_dm(ibv_dm* public_dm) {
    Dm& dm = dm_of(public_dm);
    Context& context = context_of(dm.context);
    int status = context.connection.call(abi::Op::kFreeDm, abi::HandleRequest{dm.handle});
    if (destroy_status(context, status) != 0) return status;
    delete &dm;
    return 0;
}

}  // namespace rdmalab::verbs

using namespace rdmalab;
using namespace rdmalab::verbs;

extern "C" ibv_dm* ibv_import_dm(ibv_context* public_context, uint32_t handle) {
    Context& context = context_of(public_context);
    abi::DmReply reply{};
    int status = context.connection.call(abi::Op::kQueryDm, abi::HandleRequest{handle}, reply);
    return status != 0 ? fail(status) : make_dm(context, reply);
}

extern "C" void ibv_unimport_dm(ibv_dm* dm) { delete &dm_of(dm); }

// Memory regions.
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "verbs/objects.h"

// Of Linux 5.14; older headers lack them.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace rdmalab::verbs {

namespace {

constexpr unsigned kWritableAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
constexpr unsigned kOfferedAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                    IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB;

// 0 or an errno value.
int advise(void* start, std::size_t size, int advice) {
    int status = 0;
    do {
        status = madvise(start, size, advice);
    } while (status != 0 && (errno == EINTR || errno == EAGAIN));
    return status == 0 ? 0 : errno;
}

// Every page must exist, as after pinning: the card meets no hole later, and a bad address is
// reported here, where ibv_reg_mr(3) promises it. EFAULT as from the kernel.
int populate(void* address, std::size_t length, bool writable) {
    std::uintptr_t page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    std::uintptr_t first = reinterpret_cast<std::uintptr_t>(address) & ~(page - 1);
    std::uintptr_t end = reinterpret_cast<std::uintptr_t>(address) + length;
    std::size_t size = (end - first + page - 1) & ~(page - 1);
    auto* start = reinterpret_cast<void*>(first);
    int status = advise(start, size, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
    // EINVAL: no right to write, a special mapping, or a kernel that does not know the advice.
    if (status == EINVAL && writable && advise(start, size, MADV_POPULATE_READ) == 0) return EFAULT;
    if (status == EINVAL) status = msync(start, size, MS_ASYNC);
    return status == 0 ? 0 : EFAULT;
}

struct MrRequest {
    ibv_pd* pd = nullptr;
    void* address = nullptr;
    std::size_t length = 0;
    std::uint64_t iova = 0;
    unsigned access = 0;
};

int check(const MrRequest& r) {
    unsigned access = r.access & ~IBV_ACCESS_OPTIONAL_RANGE;
    if (access & IBV_ACCESS_ON_DEMAND) return EOPNOTSUPP;
    if (access & ~kOfferedAccess) return EINVAL;
    bool remote_changes = access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    if (remote_changes && !(access & IBV_ACCESS_LOCAL_WRITE)) return EINVAL;
    auto start = reinterpret_cast<std::uintptr_t>(r.address);
    if (r.length == 0 || start + r.length < start) return EINVAL;
    return 0;
}

// Registers with the card and enters the table of local copies; fills the public fields.
int register_memory(Mr& mr, const MrRequest& r) {
    if (int status = check(r)) return status;
    if (int status = populate(r.address, r.length, r.access & kWritableAccess)) return status;
    Context& context = context_of(r.pd);
    abi::RegMrRequest request{.pd = r.pd->handle,
                              .access = r.access,
                              .address = reinterpret_cast<std::uintptr_t>(r.address),
                              .length = r.length,
                              .iova = (r.access & IBV_ACCESS_ZERO_BASED) ? 0 : r.iova};
    abi::RegMrReply reply{};
    if (int status = context.connection.call(abi::Op::kRegMr, request, reply)) return status;
    {
        std::lock_guard guard(context.objects_mutex);
        if (!context.mrs.insert(reply.lkey, static_cast<std::byte*>(r.address), request.iova,
                                r.length)) {
            context.connection.call(abi::Op::kDeregMr, abi::HandleRequest{reply.lkey});
            return ENOMEM;
        }
    }
    mr.context = r.pd->context;
    mr.pd = r.pd;
    mr.addr = r.address;
    mr.length = r.length;
    mr.handle = reply.lkey;
    mr.lkey = reply.lkey;
    mr.rkey = reply.rkey;
    mr.access = r.access;
    return 0;
}

int deregister_memory(Context& context, std::uint32_t lkey) {
    int status = context.connection.call(abi::Op::kDeregMr, abi::HandleRequest{lkey});
    if (destroy_status(context, status) != 0) return status;
    std::lock_guard guard(context.objects_mutex);
    context.mrs.erase(lkey);
    return 0;
}

ibv_mr* create_mr(const MrRequest& request) {
    auto* mr = new (std::nothrow) Mr();
    if (mr == nullptr) return fail(ENOMEM);
    if (int status = register_memory(*mr, request)) {
        delete mr;
        return fail(status);
    }
    return mr;
}

}  // namespace

}  // namespace rdmalab::verbs

using namespace rdmalab;
using namespace rdmalab::verbs;

extern "C" ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t length, int access) {
    return create_mr({.pd = pd,
                      .address = address,
                      .length = length,
                      .iova = reinterpret_cast<std::uintptr_t>(address),
                      .access = static_cast<unsigned>(access)});
}

extern "C" ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, size_t length, uint64_t iova,
                                   int access) {
    return ibv_reg_mr_iova2(pd, address, length, iova, static_cast<unsigned>(access));
}

extern "C" ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, uint64_t iova,
                                    unsigned access) {
    return create_mr(
        {.pd = pd, .address = address, .length = length, .iova = iova, .access = access});
}

extern "C" ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, uint64_t, size_t, uint64_t, int, int) {
    return fail(EOPNOTSUPP);
}

// The keys must survive, and only the card could keep them.
extern "C" int ibv_rereg_mr(ibv_mr*, int, ibv_pd*, void*, size_t, int) {
    errno = EOPNOTSUPP;
    return IBV_REREG_MR_ERR_INPUT;
}

extern "C" int ibv_dereg_mr(ibv_mr* mr) {
    if (int status = deregister_memory(context_of(mr->context), mr->lkey)) return status;
    delete static_cast<Mr*>(mr);
    return 0;
}

// Memory regions.
#include <errno.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <new>

#include "verbs/objects.h"
#include "verbs/operations.h"

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
                                    IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                    IBV_ACCESS_HUGETLB | IBV_ACCESS_ON_DEMAND;

// 0 or an errno value.
int advise(void* start, std::size_t size, int advice) {
    int status = 0;
    do {
        status = madvise(start, size, advice);
    } while (status != 0 && (errno == EINTR || errno == EAGAIN));
    return status == 0 ? 0 : errno;
}

// Whether all pages can be read, found out by the way that the card takes; brings them in, too. For
// kernels that cannot be asked, and to tell a mapping without rights from a special one.
bool are_readable(std::uintptr_t first, std::size_t size, std::size_t page) {
    constexpr std::size_t kBatch = 64;
    char bytes[kBatch];
    iovec remote[kBatch];
    for (std::size_t offset = 0; offset < size;) {
        std::size_t count = 0;
        for (; count < kBatch && offset < size; ++count, offset += page) {
            remote[count] = {reinterpret_cast<void*>(first + offset), 1};
        }
        iovec local{bytes, count};
        if (process_vm_readv(getpid(), &local, 1, remote, count, 0) !=
            static_cast<ssize_t>(count)) {
            return false;
        }
    }
    return true;
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
    if (status == EINVAL && are_readable(first, size, page)) status = 0;
    return status == 0 ? 0 : EFAULT;
}

struct MrRequest {
    ibv_pd* pd = nullptr;
    void* address = nullptr;
    std::size_t length = 0;
    std::uint64_t iova = 0;
    unsigned access = 0;
};

int check_access(unsigned given) {
    unsigned access = given & ~IBV_ACCESS_OPTIONAL_RANGE;
    if (access & ~kOfferedAccess) return EINVAL;
    bool remote_changes = access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    return remote_changes && !(access & IBV_ACCESS_LOCAL_WRITE) ? EINVAL : 0;
}

// Length, and the pages: those of an on-demand region come when the card touches them.
int check_place(void* address, std::size_t length, unsigned access) {
    auto start = reinterpret_cast<std::uintptr_t>(address);
    if (length == 0 || start + length < start) return EINVAL;
    return (access & IBV_ACCESS_ON_DEMAND) ? 0
                                           : populate(address, length, access & kWritableAccess);
}

int check(const MrRequest& r) {
    if (int status = check_access(r.access)) return status;
    return check_place(r.address, r.length, r.access);
}

// The library touches only memory that it knows to be there.
bool may_copy(unsigned access) { return !(access & IBV_ACCESS_ON_DEMAND); }

int enter_table(Context& context, Mr& mr, std::byte* memory, std::uint64_t iova) {
    std::lock_guard guard(context.objects_mutex);
    if (!context.mrs.insert(mr.lkey, memory, iova, mr.length)) return ENOMEM;
    mr.is_local = true;
    return 0;
}

void leave_table(Context& context, Mr& mr) {
    if (!mr.is_local) return;
    std::lock_guard guard(context.objects_mutex);
    context.mrs.erase(mr.lkey);
    mr.is_local = false;
}

void fill(Mr& mr, ibv_pd* pd, const abi::RegMrReply& keys) {
    mr.context = pd->context;
    mr.pd = pd;
    mr.handle = keys.lkey;
    mr.lkey = keys.lkey;
    mr.rkey = keys.rkey;
}

std::uint64_t iova_of(std::uint64_t iova, unsigned access) {
    return (access & IBV_ACCESS_ZERO_BASED) ? 0 : iova;
}

// Registers with the card and enters the table of local copies; fills the public fields.
int register_memory(Mr& mr, const MrRequest& r) {
    if (int status = check(r)) return status;
    Context& context = context_of(r.pd);
    abi::RegMrRequest request{.pd = r.pd->handle,
                              .access = r.access,
                              .address = reinterpret_cast<std::uintptr_t>(r.address),
                              .length = r.length,
                              .iova = iova_of(r.iova, r.access)};
    abi::RegMrReply reply{};
    if (int status = context.connection.call(abi::Op::kRegMr, request, reply)) return status;
    fill(mr, r.pd, reply);
    mr.addr = r.address;
    mr.length = r.length;
    mr.access = r.access;
    if (!may_copy(r.access)) return 0;
    int status = enter_table(context, mr, static_cast<std::byte*>(r.address), request.iova);
    if (status != 0) context.connection.call(abi::Op::kDeregMr, abi::HandleRequest{reply.lkey});
    return status;
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

// The region as it will be; IBV_REREG_MR_ERR_INPUT and errno when it cannot.
struct Change {
    ibv_pd* pd;
    void* address;
    std::size_t length;
    unsigned access;
};

int check_change(const Mr& mr, int flags, const Change& c) {
    if (flags == 0 || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED)) return EINVAL;
    if ((flags & IBV_REREG_MR_CHANGE_PD) && c.pd == nullptr) return EINVAL;
    if (int status = check_access(c.access)) return status;
    bool moves = flags & (IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS);
    return moves && mr.addr != nullptr ? check_place(c.address, c.length, c.access) : 0;
}

int change_on_card(Context& context, const Mr& mr, int flags, const Change& c) {
    auto address = reinterpret_cast<std::uintptr_t>(c.address);
    abi::ReregMrRequest request{.lkey = mr.lkey,
                                .flags = static_cast<std::uint32_t>(flags),
                                .pd = c.pd->handle,
                                .access = c.access,
                                .address = address,
                                .length = c.length,
                                .iova = iova_of(address, c.access)};
    return context.connection.call(abi::Op::kReregMr, request);
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

extern "C" int ibv_rereg_mr(ibv_mr* public_mr, int flags, ibv_pd* pd, void* address, size_t length,
                            int access) {
    Mr& mr = mr_of(public_mr);
    Context& context = context_of(mr.context);
    Change c{
        .pd = (flags & IBV_REREG_MR_CHANGE_PD) ? pd : mr.pd,
        .address = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) ? address : mr.addr,
        .length = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) ? length : mr.length,
        .access = (flags & IBV_REREG_MR_CHANGE_ACCESS) ? static_cast<unsigned>(access) : mr.access};
    if (int status = check_change(mr, flags, c)) {
        errno = status;
        return IBV_REREG_MR_ERR_INPUT;
    }
    if (int status = change_on_card(context, mr, flags, c)) {
        errno = status;
        return IBV_REREG_MR_ERR_CMD;
    }
    leave_table(context, mr);
    mr.pd = c.pd;
    mr.addr = c.address;
    mr.length = c.length;
    mr.access = c.access;
    if (!may_copy(c.access)) return 0;
    auto iova = iova_of(reinterpret_cast<std::uintptr_t>(c.address), c.access);
    // Without its entry the table only misses a short cut.
    enter_table(context, mr, static_cast<std::byte*>(c.address), iova);
    return 0;
}

extern "C" int ibv_dereg_mr(ibv_mr* public_mr) {
    Mr& mr = mr_of(public_mr);
    Context& context = context_of(mr.context);
    int status = context.connection.call(abi::Op::kDeregMr, abi::HandleRequest{mr.lkey});
    if (destroy_status(context, status) != 0) return status;
    leave_table(context, mr);
    delete &mr;
    return 0;
}

namespace rdmalab::verbs {

ibv_mr* alloc_null_mr(ibv_pd* pd) {
    auto* mr = new (std::nothrow) Mr();
    if (mr == nullptr) return fail(ENOMEM);
    abi::RegMrReply reply{};
    int status = context_of(pd).connection.call(abi::Op::kAllocNullMr,
                                                abi::HandleRequest{pd->handle}, reply);
    if (status != 0) {
        delete mr;
        return fail(status);
    }
    fill(*mr, pd, reply);
    mr->length = SIZE_MAX;
    mr->access = IBV_ACCESS_LOCAL_WRITE;
    return mr;
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* public_dm, std::uint64_t offset, std::size_t length,
                  unsigned access) {
    Dm& dm = dm_of(public_dm);
    Context& context = context_of(pd);
    auto* mr = new (std::nothrow) Mr();
    if (mr == nullptr) return fail(ENOMEM);
    abi::RegDmMrRequest request{.pd = pd->handle,
                                .dm = dm.handle,
                                .access = access,
                                .reserved = 0,
                                .offset = offset,
                                .length = length};
    abi::RegMrReply reply{};
    if (int status = context.connection.call(abi::Op::kRegDmMr, request, reply)) {
        delete mr;
        return fail(status);
    }
    fill(*mr, pd, reply);
    mr->length = length;
    mr->access = access;
    // Without its entry the table only misses a short cut.
    enter_table(context, *mr, dm.memory.base() + offset, 0);
    return mr;
}

namespace {

// The pages behind one range of an on-demand region, as ibv_advise_mr(3) wants them.
int advise_range(ibv_pd* pd, ibv_advise_mr_advice advice, const ibv_sge& sge) {
    abi::QueryMrReply region{};
    int status =
        context_of(pd).connection.call(abi::Op::kQueryMr, abi::HandleRequest{sge.lkey}, region);
    if (status != 0) return status;
    if (region.pd != pd->handle) return EPERM;
    if (!(region.access & IBV_ACCESS_ON_DEMAND)) return EINVAL;
    bool writes = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    if (writes && !(region.access & IBV_ACCESS_LOCAL_WRITE)) return EPERM;
    std::uint64_t offset = sge.addr - region.iova;
    if (sge.addr < region.iova || offset > region.length || sge.length > region.length - offset) {
        return EFAULT;
    }
    if (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT || sge.length == 0) return 0;
    return populate(reinterpret_cast<void*>(region.address + offset), sge.length, writes);
}

}  // namespace

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* ranges,
              std::uint32_t count) {
    if (flags & ~std::uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) return EINVAL;
    if (advice < IBV_ADVISE_MR_ADVICE_PREFETCH || advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) {
        return EOPNOTSUPP;
    }
    if (count == 0) return EINVAL;
    for (std::uint32_t i = 0; i < count; ++i) {
        int status = advise_range(pd, advice, ranges[i]);
        if (status != 0) return status;
    }
    return 0;
}

}  // namespace rdmalab::verbs

#include "verbs/context.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <new>

#include "verbs/complain.h"
#include "verbs/fork.h"
#include "verbs/objects.h"
#include "verbs/operations.h"

namespace rdmalab::verbs {

namespace {

constexpr int kHandshakeTimeoutSeconds = 10;

// The card reads and writes the memory of its clients with process_vm_*. Where Yama restricts that,
// the client must name the card as one that may. Elsewhere the call does nothing.
void permit_memory_access(int card_pid) {
    prctl(PR_SET_PTRACER, static_cast<unsigned long>(card_pid), 0, 0, 0);
}

// The card proves that it reaches our memory by reading a value from it.
int say_hello(Connection& connection) {
    permit_memory_access(connection.peer_pid());
    volatile std::uint64_t probe = 0x7264'6d61'6c61'6221 ^ static_cast<std::uint64_t>(getpid());
    abi::HelloRequest request{.probe_address = reinterpret_cast<std::uintptr_t>(&probe),
                              .probe_value = probe};
    abi::HelloReply reply{};
    int status = connection.call(abi::Op::kHello, request, reply);
    if (status != 0) {
        const char* reason = connection.error_text();
        complain_once("the card refuses this process: %s",
                      *reason != '\0' ? reason : strerror(status));
    }
    return status;
}

enum AttachmentFd { kMemory, kCardPage, kBell, kAsync, kAttachmentFdCount };

}  // namespace

int Context::map_card(ReceivedFds& fds) {
    if (fds.count != kAttachmentFdCount) return EPROTO;
    memory_fd = fds.take(kMemory);
    bell_fd = fds.take(kBell);
    context.async_fd = fds.take(kAsync);
    if (int status = doorbell_area.map(memory_fd, attributes.doorbell, sizeof(abi::DoorbellArea))) {
        return status;
    }
    abi::Region page{.offset = 0, .length = sizeof(abi::CardPage)};
    if (int status = card_page.map(fds.fds[kCardPage], page, page.length, PROT_READ)) return status;
    auto* shared_page = reinterpret_cast<const abi::CardPage*>(card_page.base());
    if (shared_page->magic != abi::kMagic || shared_page->version != abi::kVersion) return EPROTO;
    doorbell =
        Doorbell(reinterpret_cast<abi::DoorbellArea*>(doorbell_area.base()), shared_page, bell_fd);
    return 0;
}

int Context::connect(const char* socket_path) {
    if (int status = connection.open(socket_path, kHandshakeTimeoutSeconds)) {
        complain_once("cannot reach the card at %s: %s", socket_path, strerror(status));
        return status;
    }
    return say_hello(connection);
}

void Context::set_up(Device& device) {
    connection.set_timeout(0);
    context.device = &device;
    // What another process needs to join this context (ibv_import_device).
    context.cmd_fd = memory_fd;
    context.num_comp_vectors = get_nprocs();
    pthread_mutex_init(&context.mutex, nullptr);
    install_operations(*this);
}

int Context::attach(Device& device) {
    context.async_fd = -1;
    context.cmd_fd = -1;
    if (int status = connect(device.socket_path)) return status;
    ReceivedFds fds;
    abi::OpenContextRequest request{.device = device.info.index};
    int status = connection.call(abi::Op::kOpenContext, request, attributes, &fds);
    if (status == 0) status = map_card(fds);
    if (status == 0) set_up(device);
    return status;
}

int Context::join(const Device& any_device, int fd) {
    context.async_fd = -1;
    context.cmd_fd = -1;
    if (int status = connect(any_device.socket_path)) return status;
    ReceivedFds fds;
    int status =
        connection.call(abi::Op::kImportContext, ByteView(),
                        std::as_writable_bytes(std::span(&attributes, 1)), nullptr, &fds, fd);
    if (status != 0) return status;
    Device* device = find_device(any_device.socket_path, attributes.device);
    if (device == nullptr) return ENODEV;
    status = map_card(fds);
    if (status != 0) return status;
    close(memory_fd);
    memory_fd = fd;
    set_up(*device);
    return 0;
}

int Context::rejoin_after_fork() {
    if (!is_abandoned || !connection.is_dead()) return 0;
    connection.renew();
    if (int status = connect(static_cast<Device*>(context.device)->socket_path)) return status;
    ReceivedFds fds;
    abi::OpenContextReply reply{};
    int status =
        connection.call(abi::Op::kImportContext, ByteView(),
                        std::as_writable_bytes(std::span(&reply, 1)), nullptr, &fds, memory_fd);
    if (status != 0) return status;
    connection.set_timeout(0);
    bell_fd = fds.take(kBell);
    context.async_fd = fds.take(kAsync);
    doorbell = Doorbell(reinterpret_cast<abi::DoorbellArea*>(doorbell_area.base()),
                        reinterpret_cast<const abi::CardPage*>(card_page.base()), bell_fd);
    return 0;
}

// The memory stays: it keeps nothing alive, and by it the child may join the context.
void Context::abandon() {
    is_abandoned = true;
    new (&objects_mutex) std::mutex();
    connection.close();
    for (int* fd : {&bell_fd, &context.async_fd}) {
        if (*fd >= 0) close(*fd);
        *fd = -1;
    }
    for (Channel* channel = first_channel; channel != nullptr; channel = channel->next) {
        if (channel->fd >= 0) close(channel->fd);
        channel->fd = -1;
    }
}

Context::~Context() {
    for (int fd : {memory_fd, bell_fd, context.async_fd}) {
        if (fd >= 0) close(fd);
    }
}

// What a program finds when it looks for a function that is not here: null, which the inline
// functions of verbs.h turn into EOPNOTSUPP.
void install_operations(Context& context) {
    context.sz = sizeof(verbs_context);
    context.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    context.query_port = query_port_extended;
    context.query_device_ex = query_device_extended;
    context.query_rt_values = query_rt_values;
    context.alloc_td = alloc_td;
    context.dealloc_td = dealloc_td;
    context.alloc_parent_domain = alloc_parent_domain;
    context.create_cq_ex = create_cq_extended;
    context.modify_cq = modify_cq;
    context.create_qp_ex = create_qp_extended;
    context.alloc_null_mr = alloc_null_mr;
    context.advise_mr = advise_mr;
    context.alloc_dm = alloc_dm;
    context.free_dm = free_dm;
    context.reg_dm_mr = reg_dm_mr;
    context.open_xrcd = open_xrcd;
    context.close_xrcd = close_xrcd;
    context.create_srq_ex = create_srq_extended;
    context.get_srq_num = get_srq_number;
    context.open_qp = open_qp;
    context.ibv_create_flow = create_flow;
    context.ibv_destroy_flow = destroy_flow;
    context.create_counters = create_counters;
    context.destroy_counters = destroy_counters;
    context.attach_counters_point_flow = attach_counters;
    context.read_counters = read_counters;
    context.create_wq = create_wq;
    context.modify_wq = modify_wq;
    context.destroy_wq = destroy_wq;
    context.create_rwq_ind_table = create_indirection_table;
    context.destroy_rwq_ind_table = destroy_indirection_table;
    ibv_context_ops& ops = context.context.ops;
    ops.alloc_mw = alloc_mw;
    ops.dealloc_mw = dealloc_mw;
    ops.bind_mw = bind_mw;
    ops._compat_query_device = ibv_query_device;
    ops._compat_query_port = ibv_query_port;
    ops.poll_cq = poll_cq;
    ops.req_notify_cq = request_notification;
    ops.post_send = post_send;
    ops.post_recv = post_recv;
    ops.post_srq_recv = post_srq_recv;
}

}  // namespace rdmalab::verbs

using namespace rdmalab;
using namespace rdmalab::verbs;

extern "C" ibv_context* ibv_open_device(ibv_device* device) {
    auto* context = new (std::nothrow) Context();
    if (context == nullptr) return fail(ENOMEM);
    if (int status = context->attach(*static_cast<Device*>(device))) {
        delete context;
        return fail(status);
    }
    remember_for_fork(*context);
    return &context->context;
}

extern "C" int ibv_close_device(ibv_context* public_context) {
    Context& context = context_of(public_context);
    forget_for_fork(context);
    delete &context;
    return 0;
}

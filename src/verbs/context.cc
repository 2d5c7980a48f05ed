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

int Context::attach(Device& device) {
    context.async_fd = -1;
    context.cmd_fd = -1;
    if (int status = connection.open(device.socket_path, kHandshakeTimeoutSeconds)) {
        complain_once("cannot reach the card at %s: %s", device.socket_path, strerror(status));
        return status;
    }
    if (int status = say_hello(connection)) return status;
    ReceivedFds fds;
    abi::OpenContextRequest request{.device = device.info.index};
    int status = connection.call(abi::Op::kOpenContext, request, attributes, &fds);
    if (status == 0) status = map_card(fds);
    if (status != 0) return status;
    connection.set_timeout(0);
    context.device = &device;
    context.cmd_fd = connection.fd();
    context.num_comp_vectors = get_nprocs();
    pthread_mutex_init(&context.mutex, nullptr);
    install_operations(*this);
    return 0;
}

void Context::abandon() {
    is_abandoned = true;
    new (&objects_mutex) std::mutex();
    connection.close();
    context.cmd_fd = -1;
    for (int* fd : {&memory_fd, &bell_fd, &context.async_fd}) {
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
    context.create_qp_ex = create_qp_extended;
    ibv_context_ops& ops = context.context.ops;
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

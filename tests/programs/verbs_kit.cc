#include "verbs_kit.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace rdmalab::programs {

void fail(ExitCode code, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    va_end(arguments);
    std::fputc('\n', stderr);
    std::_Exit(code);
}

void check(int code, const char* what) {
    if (code == 0) return;
    if (code > 0) errno = code;
    fail(kSetUp, "%s: %m", what);
}

ibv_mtu mtu_of(unsigned bytes) {
    for (auto mtu : {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096}) {
        if (bytes_of(mtu) == bytes) return mtu;
    }
    fail(kUsage, "%u is not a path MTU", bytes);
}

unsigned bytes_of(ibv_mtu mtu) { return 128U << static_cast<unsigned>(mtu); }

// --- device

static ibv_context* open_by_name(const std::string& name) {
    int count = 0;
    ibv_device** list = check(ibv_get_device_list(&count), "ibv_get_device_list");
    ibv_device* found = nullptr;
    for (int i = 0; i < count; ++i) {
        if (name == ibv_get_device_name(list[i])) found = list[i];
    }
    if (found == nullptr) fail(kSetUp, "no device %s", name.c_str());
    ibv_context* context = check(ibv_open_device(found), "ibv_open_device");
    ibv_free_device_list(list);
    return context;
}

Device::Device(const std::string& name)
    : context_(open_by_name(name)), pd_(check(ibv_alloc_pd(context_), "ibv_alloc_pd")) {}

Device::~Device() {
    check(ibv_dealloc_pd(pd_), "ibv_dealloc_pd");
    check(ibv_close_device(context_), "ibv_close_device");
}

union ibv_gid Device::gid(std::uint8_t index) const {
    union ibv_gid gid;
    check(ibv_query_gid(context_, 1, index, &gid), "ibv_query_gid");
    return gid;
}

// --- memory

static std::byte* map_pages(std::size_t length) {
    void* pages = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) fail(kSetUp, "mmap of %zu bytes: %m", length);
    return static_cast<std::byte*>(pages);
}

Memory::Memory(const Device& device, std::size_t length)
    : length_(length == 0 ? 1 : length),
      data_(map_pages(length_)),
      mr_(check(ibv_reg_mr(device.pd(), data_, length_,
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                               IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC),
                "ibv_reg_mr")) {}

Memory::~Memory() {
    check(ibv_dereg_mr(mr_), "ibv_dereg_mr");
    munmap(data_, length_);
}

// --- completions

CompletionQueue::CompletionQueue(const Device& device, int entries)
    : cq_(check(ibv_create_cq(device.context(), entries, nullptr, nullptr, 0), "ibv_create_cq")) {}

CompletionQueue::~CompletionQueue() { check(ibv_destroy_cq(cq_), "ibv_destroy_cq"); }

ibv_wc CompletionQueue::wait(std::chrono::seconds limit) {
    ibv_wc wc = wait_any_status(limit);
    if (wc.status != IBV_WC_SUCCESS) {
        fail(kWrongStatus, "work request %llu: status %d (%s)",
             static_cast<unsigned long long>(wc.wr_id), wc.status, ibv_wc_status_str(wc.status));
    }
    return wc;
}

ibv_wc CompletionQueue::wait_any_status(std::chrono::seconds limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    ibv_wc wc{};
    for (;;) {
        const int count = ibv_poll_cq(cq_, 1, &wc);
        if (count == 1) return wc;
        if (count < 0) fail(kWrongStatus, "ibv_poll_cq: %d", count);
        if (std::chrono::steady_clock::now() > deadline) {
            fail(kStalled, "no completion in %lld s", static_cast<long long>(limit.count()));
        }
    }
}

// --- queue pairs

static ibv_qp* create_qp(const Device& device, const CompletionQueue& cq, ibv_qp_type type,
                         QueuePairSize size, ibv_srq* srq) {
    ibv_qp_init_attr init{};
    init.send_cq = cq.raw();
    init.recv_cq = cq.raw();
    init.srq = srq;
    init.qp_type = type;
    init.cap.max_send_wr = size.depth;
    init.cap.max_recv_wr = srq == nullptr ? size.depth : 0;
    init.cap.max_send_sge = size.sges;
    init.cap.max_recv_sge = size.sges;
    init.cap.max_inline_data = size.inline_bytes;
    return check(ibv_create_qp(device.pd(), &init), "ibv_create_qp");
}

QueuePair::QueuePair(const Device& device, const CompletionQueue& cq, ibv_qp_type type,
                     QueuePairSize size, std::uint32_t psn, ibv_srq* srq)
    : qp_(create_qp(device, cq, type, size, srq)), psn_(psn & 0xff'ffff) {
    to_init();
}

QueuePair::~QueuePair() { check(ibv_destroy_qp(qp_), "ibv_destroy_qp"); }

Endpoint QueuePair::endpoint(const Device& device, const Path& path, const Memory& memory) const {
    return {device.gid(path.gid_index), qp_->qp_num, psn_, memory.rkey(), 0, memory.address()};
}

void QueuePair::to_init() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if (qp_->qp_type == IBV_QPT_UD) {
        attr.qkey = kQkey;
        mask |= IBV_QP_QKEY;
    } else {
        attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        if (qp_->qp_type == IBV_QPT_RC)
            attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        mask |= IBV_QP_ACCESS_FLAGS;
    }
    check(ibv_modify_qp(qp_, &attr, mask), "ibv_modify_qp to INIT");
}

ibv_ah_attr address_of(const union ibv_gid& remote, const Path& path) {
    ibv_ah_attr ah{};
    ah.is_global = 1;
    ah.port_num = 1;
    ah.grh.dgid = remote;
    ah.grh.sgid_index = path.gid_index;
    ah.grh.hop_limit = path.hop_limit;
    ah.grh.traffic_class = path.traffic_class;
    ah.grh.flow_label = path.flow_label;
    return ah;
}

void QueuePair::to_rtr(const Endpoint& remote, const Path& path) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    int mask = IBV_QP_STATE;
    if (qp_->qp_type != IBV_QPT_UD) {
        attr.ah_attr = address_of(remote.gid, path);
        attr.path_mtu = path.mtu;
        attr.dest_qp_num = remote.qpn;
        attr.rq_psn = remote.psn;
        mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    }
    if (qp_->qp_type == IBV_QPT_RC) {
        attr.max_dest_rd_atomic = path.reads;
        attr.min_rnr_timer = path.min_rnr_timer;
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    }
    check(ibv_modify_qp(qp_, &attr, mask), "ibv_modify_qp to RTR");
}

void QueuePair::to_rts(const Path& path) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = psn_;
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (qp_->qp_type == IBV_QPT_RC) {
        attr.timeout = path.timeout;
        attr.retry_cnt = path.retry_count;
        attr.rnr_retry = path.rnr_retry;
        attr.max_rd_atomic = path.reads;
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    check(ibv_modify_qp(qp_, &attr, mask), "ibv_modify_qp to RTS");
}

void QueuePair::connect(const Endpoint& remote, const Path& path) {
    to_rtr(remote, path);
    to_rts(path);
}

void QueuePair::post(ibv_send_wr& work) {
    ibv_send_wr* bad = nullptr;
    check(ibv_post_send(qp_, &work, &bad), "ibv_post_send");
}

void QueuePair::post(ibv_recv_wr& work) {
    ibv_recv_wr* bad = nullptr;
    check(ibv_post_recv(qp_, &work, &bad), "ibv_post_recv");
}

// --- socket

void send_bytes(int socket, const void* data, std::size_t length) {
    if (::send(socket, data, length, MSG_NOSIGNAL) != static_cast<ssize_t>(length)) {
        fail(kSetUp, "the peer process is gone");
    }
}

void recv_bytes(int socket, void* data, std::size_t length) {
    if (::recv(socket, data, length, MSG_WAITALL) != static_cast<ssize_t>(length)) {
        fail(kSetUp, "the peer process is gone");
    }
}

}  // namespace rdmalab::programs

#include "verbs/fake_card.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "base/limits.h"

namespace rdmalab::verbs::testing {

namespace {

constexpr std::size_t kPage = 4096;

std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

template <class T>
std::vector<std::byte> bytes_of(const T& value) {
    std::vector<std::byte> out(sizeof value);
    memcpy(out.data(), &value, sizeof value);
    return out;
}

template <class T>
T body_as(ByteView body) {
    T out{};
    memcpy(static_cast<void*>(&out), body.data(), std::min(body.size(), sizeof out));
    return out;
}

std::size_t recv_table_offset(std::uint32_t capacity) {
    return abi::kRingHeaderSize + round_up(capacity * sizeof(std::uint32_t), 64);
}

std::uint32_t recv_stride(std::uint32_t sges) {
    return static_cast<std::uint32_t>(round_up(16 + 16 * sges, 64)) + limits::kSmallPayloadMax;
}

}  // namespace

FakeContext::FakeContext() {
    memory_fd = memfd_create("fake-card", MFD_CLOEXEC);
    if (ftruncate(memory_fd, kMemoryBytes) != 0) abort();
    memory_ = static_cast<std::byte*>(
        mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0));
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) abort();
    async_read_fd = ends[0];
    async_write_fd = ends[1];
    doorbells = allocate(sizeof(abi::DoorbellArea));
}

FakeContext::~FakeContext() {
    munmap(memory_, kMemoryBytes);
    close(memory_fd);
    close(async_write_fd);
    for (auto& [handle, fd] : channels) close(fd);
}

abi::Region FakeContext::allocate(std::size_t length) {
    abi::Region region{.offset = used_, .length = round_up(length, kPage)};
    used_ += region.length;
    if (used_ > kMemoryBytes) abort();
    return region;
}

FakeCard::FakeCard() {
    char folder[] = "/tmp/rdmalab-fake-XXXXXX";
    if (mkdtemp(folder) == nullptr) abort();
    path_ = std::string(folder) + "/card.sock";
    setenv("RDMALAB_SOCKET", path_.c_str(), 1);
    page_fd_ = memfd_create("fake-page", MFD_CLOEXEC);
    if (ftruncate(page_fd_, kPage) != 0) abort();
    page_ = static_cast<abi::CardPage*>(
        mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, page_fd_, 0));
    page_->magic = abi::kMagic;
    page_->version = abi::kVersion;
    bell_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof address.sun_path - 1);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) abort();
    if (listen(listener_, 16) != 0) abort();
    accepting_ = std::thread([this] { accept_clients(); });
}

FakeCard::~FakeCard() {
    die();
    munmap(page_, kPage);
    close(page_fd_);
    close(bell_fd_);
    rmdir(path_.substr(0, path_.rfind('/')).c_str());
    unsetenv("RDMALAB_SOCKET");
}

void FakeCard::die() {
    if (listener_ < 0) return;
    shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    close(listener_);
    listener_ = -1;
    unlink(path_.c_str());
    {
        std::lock_guard guard(mutex_);
        for (int fd : connections_) shutdown(fd, SHUT_RDWR);
    }
    for (std::thread& thread : serving_) thread.join();
    std::lock_guard guard(mutex_);
    for (auto& context : contexts_) {
        close(std::exchange(context->async_write_fd, -1));
        for (auto& [handle, fd] : context->channels) close(fd);
        context->channels.clear();
    }
}

void FakeCard::accept_clients() {
    for (;;) {
        int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd < 0) return;
        std::lock_guard guard(mutex_);
        connections_.push_back(fd);
        serving_.emplace_back([this, fd] { serve(fd); });
    }
}

void FakeCard::serve(int fd) {
    std::shared_ptr<FakeContext> context;
    std::vector<std::byte> buffer(abi::kMessageMax);
    ucred peer{};
    socklen_t peer_length = sizeof peer;
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_length);
    for (;;) {
        ssize_t n = recv(fd, buffer.data(), buffer.size(), 0);
        if (n < static_cast<ssize_t>(sizeof(abi::RequestHeader))) break;
        auto header = body_as<abi::RequestHeader>(buffer);
        auto body = ByteView(buffer).subspan(sizeof header, header.length);
        Reply reply = answer(context, header.op, body, peer.pid != getpid());
        abi::ReplyHeader out{abi::kMagic, reply.status,
                             static_cast<std::uint32_t>(reply.body.size()), 0};
        iovec parts[2] = {{&out, sizeof out}, {reply.body.data(), reply.body.size()}};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 4)] = {};
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = 2;
        if (!reply.fds.empty()) {
            message.msg_control = control;
            message.msg_controllen = CMSG_SPACE(sizeof(int) * reply.fds.size());
            cmsghdr* c = CMSG_FIRSTHDR(&message);
            c->cmsg_level = SOL_SOCKET;
            c->cmsg_type = SCM_RIGHTS;
            c->cmsg_len = CMSG_LEN(sizeof(int) * reply.fds.size());
            memcpy(CMSG_DATA(c), reply.fds.data(), sizeof(int) * reply.fds.size());
        }
        sendmsg(fd, &message, MSG_NOSIGNAL);
        if (reply.fd_to_close >= 0) close(reply.fd_to_close);
    }
    std::lock_guard guard(mutex_);
    std::erase(connections_, fd);
    close(fd);
}

FakeCard::Reply FakeCard::answer(std::shared_ptr<FakeContext>& context, abi::Op op, ByteView body,
                                 bool is_foreign) {
    std::lock_guard guard(mutex_);
    ++counts_[op];
    if (auto refusal = refusals_.find(op); refusal != refusals_.end()) {
        auto [status, text] = refusal->second;
        refusals_.erase(refusal);
        auto* data = reinterpret_cast<const std::byte*>(text.data());
        return {.status = status, .body = {data, data + text.size()}, .fds = {}};
    }
    if (op == abi::Op::kHello) {
        auto request = body_as<abi::HelloRequest>(body);
        auto* probe = reinterpret_cast<const std::uint64_t*>(request.probe_address);
        if (!is_foreign && *probe != request.probe_value)
            return {.status = EPERM, .body = {}, .fds = {}};
        return {.body = bytes_of(abi::HelloReply{"fake", getpid(), 2}), .fds = {}};
    }
    if (op == abi::Op::kListDevices) {
        abi::DeviceInfo devices[2] = {};
        for (std::uint32_t i = 0; i < 2; ++i) {
            devices[i].index = i;
            devices[i].uverbs_index = i;
            snprintf(devices[i].name, sizeof devices[i].name, "mlx5_%u", i + 2);
            devices[i].node_guid = 0x0200'0000'0000'0001 + i;
        }
        return {.body = bytes_of(devices), .fds = {}};
    }
    if (op == abi::Op::kOpenContext) return open_context(context);
    if (context == nullptr) return {.status = EINVAL, .body = {}, .fds = {}};
    return answer_in_context(*context, op, body);
}

FakeCard::Reply FakeCard::open_context(std::shared_ptr<FakeContext>& context) {
    context = std::make_shared<FakeContext>();
    contexts_.push_back(context);
    abi::OpenContextReply reply{};
    reply.doorbell = context->doorbells;
    reply.node_guid = 0x0200'0000'0000'0001;
    reply.qp_max = limits::kQpMax;
    reply.wqe_max = limits::kWqeMax;
    reply.sge_max = limits::kSgeMax;
    reply.cq_max = limits::kCqMax;
    reply.cqe_max = limits::kCqeMax;
    reply.mr_max = limits::kMrMax;
    reply.pd_max = limits::kPdMax;
    reply.srq_max = limits::kSrqMax;
    reply.srq_wr_max = limits::kWqeMax;
    reply.ah_max = limits::kAhMax;
    reply.reads_max = limits::kReadsMax;
    reply.inline_max = limits::kInlineMax;
    reply.small_payload_max = limits::kSmallPayloadMax;
    reply.gid_max = limits::kGidMax;
    reply.message_max = limits::kMessageMax;
    reply.mw_max = limits::kMrMax;
    reply.dm_max = limits::kDmMax;
    return {.body = bytes_of(reply),
            .fds = {context->memory_fd, page_fd_, bell_fd_, context->async_read_fd},
            .fd_to_close = std::exchange(context->async_read_fd, -1)};
}

FakeCard::Reply FakeCard::answer_in_context(FakeContext& context, abi::Op op, ByteView body) {
    switch (op) {
        case abi::Op::kQueryPort:
            return {.body = bytes_of(abi::QueryPortReply{4, 4096, 4096, limits::kGidMax, 0}),
                    .fds = {}};
        case abi::Op::kQueryGids: {
            abi::GidEntry gids[2] = {
                {0, {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 1}},
                {1, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1}}};
            return {.body = bytes_of(gids), .fds = {}};
        }
        case abi::Op::kAllocPd:
        case abi::Op::kCreateAh:
            return {.body = bytes_of(abi::HandleReply{context.next_handle++}), .fds = {}};
        case abi::Op::kRegMr: {
            std::uint32_t key = context.next_handle++ << 8 | 0x5a;
            context.mrs[key] = body_as<abi::RegMrRequest>(body);
            return {.body = bytes_of(abi::RegMrReply{key, key}), .fds = {}};
        }
        case abi::Op::kCreateChannel:
            return create_channel(context);
        case abi::Op::kCreateCq:
            return create_cq(context, body_as<abi::CreateCqRequest>(body));
        case abi::Op::kResizeCq:
            return resize_cq(context, body_as<abi::ResizeCqRequest>(body));
        case abi::Op::kCreateQp:
            return create_qp(context, body_as<abi::CreateQpRequest>(body));
        case abi::Op::kCreateSrq:
            return create_srq(context, body_as<abi::CreateSrqRequest>(body));
        case abi::Op::kModifyQp: {
            auto request = body_as<abi::ModifyQpRequest>(body);
            context.qp_attributes[request.qpn] = request.attributes;
            return {.body = {}, .fds = {}};
        }
        case abi::Op::kQueryQp:
            return {
                .body = bytes_of(context.qp_attributes[body_as<abi::HandleRequest>(body).handle]),
                .fds = {}};
        case abi::Op::kQuerySrq:
            return {.body = bytes_of(abi::QuerySrqReply{7}), .fds = {}};
        case abi::Op::kDestroyChannel: {
            auto channel = context.channels.find(body_as<abi::HandleRequest>(body).handle);
            close(channel->second);
            context.channels.erase(channel);
            return {.body = {}, .fds = {}};
        }
        default:
            return {.body = {}, .fds = {}};
    }
}

FakeCard::Reply FakeCard::create_channel(FakeContext& context) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) abort();
    std::uint32_t handle = context.next_handle++;
    context.channels[handle] = ends[1];
    return {.body = bytes_of(abi::HandleReply{handle}), .fds = {ends[0]}, .fd_to_close = ends[0]};
}

FakeCard::Reply FakeCard::create_cq(FakeContext& context, const abi::CreateCqRequest& request) {
    abi::CreateCqReply reply{};
    reply.cq = context.next_handle++;
    reply.generation = reply.cq + 1000;
    reply.capacity = std::bit_ceil(request.entries);
    reply.region = context.allocate(sizeof(abi::CqHeader) + reply.capacity * sizeof(abi::Cqe));
    context.cqs[reply.cq] = reply;
    context.cq_channels[reply.cq] = request.channel;
    return {.body = bytes_of(reply), .fds = {}};
}

FakeCard::Reply FakeCard::resize_cq(FakeContext& context, const abi::ResizeCqRequest& request) {
    abi::CreateCqReply& cq = context.cqs[request.cq];
    abi::CreateCqReply old = cq;
    auto& before = *reinterpret_cast<abi::CqHeader*>(context.at(old.region));
    std::uint32_t producer = context.cq_producers[request.cq];
    std::uint32_t consumer = before.consumer;
    cq.capacity = std::bit_ceil(request.entries);
    if (producer - consumer > cq.capacity) {
        cq = old;
        return {.status = EINVAL, .body = {}, .fds = {}};
    }
    cq.region = context.allocate(sizeof(abi::CqHeader) + cq.capacity * sizeof(abi::Cqe));
    auto& after = *reinterpret_cast<abi::CqHeader*>(context.at(cq.region));
    after.consumer = consumer;
    after.producer = producer;
    auto* from = reinterpret_cast<abi::Cqe*>(context.at(old.region) + sizeof(abi::CqHeader));
    auto* to = reinterpret_cast<abi::Cqe*>(context.at(cq.region) + sizeof(abi::CqHeader));
    for (std::uint32_t i = consumer; i != producer; ++i) {
        memcpy(static_cast<void*>(to + (i & (cq.capacity - 1))),
               static_cast<void*>(from + (i & (old.capacity - 1))), sizeof *to);
    }
    return {.body = bytes_of(cq), .fds = {}};
}

FakeCard::Reply FakeCard::create_qp(FakeContext& context, const abi::CreateQpRequest& request) {
    abi::CreateQpReply reply{};
    reply.qpn = context.next_handle++ << 8 | 0x11;
    reply.generation = reply.qpn + 1000;
    reply.slot = static_cast<std::uint32_t>(context.qps.size()) * 65;  // crosses words
    reply.send_capacity = std::bit_ceil(request.send_wr_max);
    reply.send_sge_max = std::max(request.send_sge_max, 1u);
    reply.inline_max = std::max(request.inline_max, limits::kSmallPayloadMax);
    reply.send_stride = static_cast<std::uint32_t>(
        round_up(sizeof(abi::SendEntry) + 16 * reply.send_sge_max + reply.inline_max, 64));
    reply.send_region = context.allocate(abi::kRingHeaderSize +
                                         std::size_t{reply.send_capacity} * reply.send_stride);
    if (request.srq == abi::kNoSrq && request.recv_wr_max != 0) {
        reply.recv_capacity = std::bit_ceil(request.recv_wr_max);
        reply.recv_sge_max = std::max(request.recv_sge_max, 1u);
        reply.recv_stride = recv_stride(reply.recv_sge_max);
        reply.recv_region = context.allocate(recv_table_offset(reply.recv_capacity) +
                                             std::size_t{reply.recv_capacity} * reply.recv_stride);
    }
    context.qps[reply.qpn] = reply;
    return {.body = bytes_of(reply), .fds = {}};
}

FakeCard::Reply FakeCard::create_srq(FakeContext& context, const abi::CreateSrqRequest& request) {
    abi::CreateSrqReply reply{};
    reply.srq = context.next_handle++;
    reply.generation = reply.srq + 1000;
    reply.capacity = std::bit_ceil(request.wr_max);
    reply.sge_max = std::max(request.sge_max, 1u);
    reply.stride = recv_stride(reply.sge_max);
    reply.region = context.allocate(recv_table_offset(reply.capacity) +
                                    std::size_t{reply.capacity} * reply.stride);
    context.srqs[reply.srq] = reply;
    return {.body = bytes_of(reply), .fds = {}};
}

void FakeCard::refuse(abi::Op op, int status, const std::string& text) {
    std::lock_guard guard(mutex_);
    refusals_[op] = {status, text};
}

std::uint32_t FakeCard::requests(abi::Op op) {
    std::lock_guard guard(mutex_);
    return counts_[op];
}

std::uint32_t FakeCard::send_producer(std::uint32_t qpn) {
    auto* header =
        reinterpret_cast<abi::QueueHeader*>(context().at(context().qps.at(qpn).send_region));
    return header->producer.load(std::memory_order_acquire);
}

abi::SendEntry& FakeCard::send_entry(std::uint32_t qpn, std::uint32_t index) {
    const abi::CreateQpReply& qp = context().qps.at(qpn);
    std::byte* entries = context().at(qp.send_region) + abi::kRingHeaderSize;
    return *reinterpret_cast<abi::SendEntry*>(
        entries + std::size_t{index & (qp.send_capacity - 1)} * qp.send_stride);
}

std::uint32_t FakeCard::recv_producer(std::uint32_t qpn) {
    auto* header =
        reinterpret_cast<abi::QueueHeader*>(context().at(context().qps.at(qpn).recv_region));
    return header->producer.load(std::memory_order_acquire);
}

abi::RecvEntry& FakeCard::recv_entry(std::uint32_t qpn, std::uint32_t index) {
    const abi::CreateQpReply& qp = context().qps.at(qpn);
    std::byte* base = context().at(qp.recv_region);
    auto* ring = reinterpret_cast<std::uint32_t*>(base + abi::kRingHeaderSize);
    std::uint32_t table_index = ring[index & (qp.recv_capacity - 1)];
    return *reinterpret_cast<abi::RecvEntry*>(base + recv_table_offset(qp.recv_capacity) +
                                              std::size_t{table_index} * qp.recv_stride);
}

std::byte* FakeCard::recv_small_area(std::uint32_t qpn, std::uint32_t table_index) {
    const abi::CreateQpReply& qp = context().qps.at(qpn);
    return context().at(qp.recv_region) + recv_table_offset(qp.recv_capacity) +
           std::size_t{table_index + 1} * qp.recv_stride - limits::kSmallPayloadMax;
}

std::uint32_t FakeCard::srq_producer(std::uint32_t srq) {
    auto* header = reinterpret_cast<abi::QueueHeader*>(context().at(context().srqs.at(srq).region));
    return header->producer.load(std::memory_order_acquire);
}

std::uint32_t FakeCard::srq_table_index(std::uint32_t srq, std::uint32_t index) {
    const abi::CreateSrqReply& reply = context().srqs.at(srq);
    auto* ring =
        reinterpret_cast<std::uint32_t*>(context().at(reply.region) + abi::kRingHeaderSize);
    return ring[index & (reply.capacity - 1)];
}

std::byte* FakeCard::srq_small_area(std::uint32_t srq, std::uint32_t table_index) {
    const abi::CreateSrqReply& reply = context().srqs.at(srq);
    return context().at(reply.region) + recv_table_offset(reply.capacity) +
           std::size_t{table_index + 1} * reply.stride - limits::kSmallPayloadMax;
}

bool FakeCard::doorbell(std::uint32_t qpn) {
    auto& area = *reinterpret_cast<abi::DoorbellArea*>(context().at(context().doorbells));
    std::uint32_t slot = context().qps.at(qpn).slot;
    std::uint64_t leaf_bit = 1ull << (slot % 64), mid_bit = 1ull << (slot / 64 % 64);
    std::uint64_t top_bit = 1ull << (slot / 64 / 64);
    bool top = area.top.fetch_and(~top_bit) & top_bit;
    bool mid = area.mid[slot / 64 / 64].fetch_and(~mid_bit) & mid_bit;
    bool leaf = area.leaf[slot / 64].fetch_and(~leaf_bit) & leaf_bit;
    return top && mid && leaf;
}

void FakeCard::set_sleeping(bool sleeping) { page_->sleeping = sleeping ? 1 : 0; }

bool FakeCard::bell_rang() {
    std::uint64_t count = 0;
    return read(bell_fd_, &count, sizeof count) == sizeof count;
}

abi::CqHeader& FakeCard::cq_header(std::uint32_t cq) {
    return *reinterpret_cast<abi::CqHeader*>(context().at(context().cqs.at(cq).region));
}

void FakeCard::push(std::uint32_t handle, const Completion& completion) {
    const abi::CreateCqReply& cq = context().cqs.at(handle);
    auto* ring = reinterpret_cast<abi::Cqe*>(context().at(cq.region) + sizeof(abi::CqHeader));
    std::uint32_t& producer = context().cq_producers[handle];
    abi::Cqe& out = ring[producer & (cq.capacity - 1)];
    bool from_srq = completion.flags & abi::kCqeSrq;
    out.wr_id = completion.wr_id;
    out.timestamp_ns = completion.timestamp_ns;
    out.qpn = completion.qpn;
    out.queue_slot = from_srq ? completion.srq : context().qps.at(completion.qpn).slot;
    out.ring_index = completion.ring_index;
    out.byte_length = completion.byte_length;
    out.immediate = completion.immediate;
    out.source_qpn = completion.source_qpn;
    out.flags = static_cast<std::uint16_t>(completion.flags);
    out.opcode = static_cast<std::uint8_t>(completion.opcode);
    out.status = completion.status;
    out.sequence.store(++producer, std::memory_order_release);
    abi::CqHeader& header = cq_header(handle);
    header.producer.store(producer, std::memory_order_seq_cst);
    if (header.waiters.load() != 0) {
        syscall(SYS_futex, &header.producer, FUTEX_WAKE, 64, nullptr, nullptr, 0);
    }
}

void FakeCard::notify(std::uint32_t channel, const abi::CompletionEvent& event) {
    if (write(context().channels.at(channel), &event, sizeof event) != sizeof event) abort();
}

void FakeCard::raise(const abi::AsyncEventRecord& event) {
    if (write(context().async_write_fd, &event, sizeof event) != sizeof event) abort();
}

}  // namespace rdmalab::verbs::testing

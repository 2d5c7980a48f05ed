#include "card/test_client.h"

#include <algorithm>
#include <cstdlib>

#include "card/verbs_values.h"

namespace rdmalab::card::testing {

void TestCard::settle() {
    for (int round = 0; round < 1'000'000; ++round) {
        if (!card.poll(now) && !card.doorbell_pending()) return;
    }
    std::abort();  // a card that never comes to rest
}

void TestCard::run_for(Duration duration) {
    const Instant end = now + duration;
    settle();
    while (card.next_deadline() <= end) {
        now = std::max(now, card.next_deadline());
        settle();
    }
    now = end;
    settle();
}

// --- TestClient

std::byte* TestRecvQueue::entry(std::uint32_t index) const {
    return base + abi::kRingHeaderSize + round_up(capacity * 4ull, 64) +
           std::size_t{index} * stride;
}

TestClient::TestClient(TestCard& setting, std::uint32_t device_index)
    : device(device_index), setting_(setting) {
    static std::uint32_t last = 0;
    owner = {++last};
    space = {last};
    ControlReply reply = setting_.card.open_context(owner, space, device);
    last_body = std::move(reply.body);
    const auto opened = reply_as<abi::OpenContextReply>();
    doorbells = reinterpret_cast<abi::DoorbellArea*>(setting_.host.map(opened.doorbell));
    pd = alloc_pd();
}

int TestClient::call_bytes(abi::Op op, ByteView body) {
    ControlReply reply = setting_.card.handle_request(owner, op, body, setting_.now);
    last_body = std::move(reply.body);
    return reply.status;
}

std::uint32_t TestClient::alloc_pd() {
    call_bytes(abi::Op::kAllocPd, {});
    return reply_as<abi::HandleReply>().handle;
}

abi::RegMrReply TestClient::reg_mr(ByteSpan memory, std::uint32_t access) {
    setting_.memory.add(space, memory);
    const std::uint64_t address = reinterpret_cast<std::uintptr_t>(memory.data());
    call(abi::Op::kRegMr, abi::RegMrRequest{pd, access, address, memory.size(), address});
    return reply_as<abi::RegMrReply>();
}

std::uint32_t TestClient::create_channel() {
    call_bytes(abi::Op::kCreateChannel, {});
    return reply_as<abi::HandleReply>().handle;
}

TestCq TestClient::create_cq(std::uint32_t entries, std::uint32_t channel) {
    TestCq cq;
    if (call(abi::Op::kCreateCq, abi::CreateCqRequest{entries, channel}) != 0) return cq;
    cq.info = reply_as<abi::CreateCqReply>();
    std::byte* base = setting_.host.map(cq.info.region);
    cq.header = reinterpret_cast<abi::CqHeader*>(base);
    cq.entries = reinterpret_cast<abi::Cqe*>(base + sizeof(abi::CqHeader));
    return cq;
}

bool TestClient::resize_cq(TestCq& cq, std::uint32_t entries) {
    if (call(abi::Op::kResizeCq, abi::ResizeCqRequest{cq.info.cq, entries}) != 0) return false;
    cq.info = reply_as<abi::CreateCqReply>();
    std::byte* base = setting_.host.map(cq.info.region);
    cq.header = reinterpret_cast<abi::CqHeader*>(base);
    cq.entries = reinterpret_cast<abi::Cqe*>(base + sizeof(abi::CqHeader));
    return true;
}

namespace {
void lay_over(TestRecvQueue& queue, std::byte* base, std::uint32_t capacity, std::uint32_t stride) {
    queue.base = base;
    queue.capacity = capacity;
    queue.stride = stride;
    for (std::uint32_t i = 0; i < capacity; ++i) queue.free_entries.push_back(i);
}
}  // namespace

TestSrq TestClient::create_srq(std::uint32_t wr_max, std::uint32_t sge_max, std::uint32_t xrcd,
                               std::uint32_t xrc_cq) {
    TestSrq srq;
    const abi::CreateSrqRequest request{pd, wr_max, sge_max, 0, xrcd, xrc_cq};
    if (call(abi::Op::kCreateSrq, request) != 0) return srq;
    srq.info = reply_as<abi::CreateSrqReply>();
    lay_over(srq, setting_.host.map(srq.info.region), srq.info.capacity, srq.info.stride);
    return srq;
}

TestQp TestClient::create_qp(const TestCq& cq, const QpOptions& options) {
    TestQp qp;
    const abi::CreateQpRequest request{
        .type = options.type,
        .pd = pd,
        .send_cq = cq.info.cq,
        .recv_cq = cq.info.cq,
        .srq = options.srq == nullptr ? abi::kNoSrq : options.srq->info.srq,
        .send_wr_max = options.send_wr_max,
        .recv_wr_max = options.recv_wr_max,
        .send_sge_max = options.send_sge_max,
        .recv_sge_max = options.recv_sge_max,
        .inline_max = options.inline_max,
        .signal_all = options.signal_all,
        .xrcd = abi::kNoXrcd};
    if (call(abi::Op::kCreateQp, request) != 0) return qp;
    qp.info = reply_as<abi::CreateQpReply>();
    qp.type = options.type;
    qp.srq = options.srq;
    if (qp.info.send_region.length > 0) qp.send.base = setting_.host.map(qp.info.send_region);
    qp.send.capacity = qp.info.send_capacity;
    qp.send.stride = qp.info.send_stride;
    if (qp.info.recv_region.length > 0) {
        lay_over(qp.recv, setting_.host.map(qp.info.recv_region), qp.info.recv_capacity,
                 qp.info.recv_stride);
    }
    return qp;
}

Gid TestClient::gid(std::uint32_t index) const {
    const FunctionConfig& function = setting_.card.config().functions[device];
    return index == 0 ? Gid::link_local(function.mac) : function.ips[index - 1];
}

int TestClient::connect(const TestQp& qp, const TestClient& peer, const TestQp& peer_qp,
                        std::uint8_t timeout) {
    using namespace transport;
    const bool answers = qp.type == kIbvQptRc || qp.type == kIbvQptXrcRecv;
    const bool asks = qp.type == kIbvQptRc || qp.type == kIbvQptXrcSend;
    abi::QpAttributes a{};
    a.state = 1;
    a.port = 1;
    a.access = 15;
    std::uint32_t mask = kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags;
    if (int status = call(abi::Op::kModifyQp, abi::ModifyQpRequest{qp.info.qpn, mask, a})) {
        return status;
    }
    a.state = 2;
    a.path_mtu = 3;
    a.destination_qpn = peer_qp.info.qpn;
    a.rq_psn = 0xff'fff0;
    a.responder_resources = 4;
    a.min_rnr_timer = 1;
    const Gid destination = peer.gid(peer.gid_index());
    std::memcpy(a.ah.dgid, destination.bytes.data(), 16);
    a.ah.sgid_index = static_cast<std::uint8_t>(gid_index());
    a.ah.is_global = 1;
    a.ah.hop_limit = 64;
    a.ah.port = 1;
    mask = kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn;
    if (answers) mask |= kQpMaxDestRdAtomic | kQpMinRnrTimer;
    if (int status = call(abi::Op::kModifyQp, abi::ModifyQpRequest{qp.info.qpn, mask, a})) {
        return status;
    }
    a.state = 3;
    a.sq_psn = 0xff'fff0;
    a.timeout = timeout;
    a.retry_count = 7;
    a.rnr_retry = 7;
    a.reads_outstanding = 4;
    mask = kQpState | kQpSqPsn;
    if (asks || answers) mask |= kQpTimeout;
    if (asks) mask |= kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic;
    return call(abi::Op::kModifyQp, abi::ModifyQpRequest{qp.info.qpn, mask, a});
}

std::uint32_t TestClient::gid_index() const {
    return setting_.card.config().functions[device].ips.empty() ? 0 : 1;
}

int TestClient::to_state(const TestQp& qp, std::uint32_t state) {
    abi::QpAttributes a{};
    a.state = state;
    return call(abi::Op::kModifyQp, abi::ModifyQpRequest{qp.info.qpn, transport::kQpState, a});
}

void TestClient::post_send(TestQp& qp, const SendOptions& options) {
    std::byte* at = qp.send.base + abi::kRingHeaderSize +
                    std::size_t{qp.send.producer & (qp.send.capacity - 1)} * qp.send.stride;
    abi::SendEntry head{};
    head.wr_id = options.wr_id;
    head.opcode = static_cast<std::uint8_t>(options.opcode);
    head.flags = options.flags;
    head.sge_count = static_cast<std::uint8_t>(options.sges.size());
    head.immediate = options.immediate;
    head.remote_address = options.remote_address;
    head.rkey = options.rkey;
    head.ah = options.ah;
    head.remote_qpn = options.remote_qpn;
    head.remote_qkey = options.remote_qkey;
    head.compare_add = options.compare_add;
    head.swap = options.swap;
    head.data_length = static_cast<std::uint32_t>(options.payload.size());
    store_bytes(at, head);
    at += sizeof head;
    for (const abi::Sge& element : options.sges) {
        store_bytes(at, element);
        at += sizeof element;
    }
    std::memcpy(at, options.payload.data(), options.payload.size());
    qp.send.header()->producer.store(++qp.send.producer, std::memory_order_release);
    ring(qp);
}

void TestClient::post_recv(TestRecvQueue& queue, std::uint64_t wr_id,
                           const std::vector<abi::Sge>& sges) {
    const std::uint32_t index = queue.free_entries.front();
    queue.free_entries.pop_front();
    std::byte* at = queue.entry(index);
    abi::RecvEntry head{};
    head.wr_id = wr_id;
    head.sge_count = static_cast<std::uint8_t>(sges.size());
    store_bytes(at, head);
    std::memcpy(at + sizeof head, sges.data(), sges.size() * sizeof(abi::Sge));
    const std::size_t slot = queue.producer & (queue.capacity - 1);
    store_bytes(queue.base + abi::kRingHeaderSize + slot * 4, index);
    queue.header()->producer.store(++queue.producer, std::memory_order_release);
}

void TestClient::ring_slot(std::uint32_t slot) const {
    doorbells->leaf[slot / 64].fetch_or(1ull << (slot % 64));
    doorbells->mid[slot / 4096].fetch_or(1ull << (slot / 64 % 64));
    doorbells->top.fetch_or(1ull << (slot / 4096));
}

std::optional<TestWc> TestClient::poll(TestCq& cq, TestRecvQueue* queue) {
    const abi::Cqe& cqe = cq.entries[cq.consumer & (cq.info.capacity - 1)];
    if (cqe.sequence.load(std::memory_order_acquire) != cq.consumer + 1) return std::nullopt;
    if (queue != nullptr && (cqe.flags & abi::kCqeRecv) != 0) {
        if ((cqe.flags & abi::kCqeSmall) != 0) scatter_small(cqe, *queue);
        queue->free_entries.push_back(cqe.ring_index);
    }
    const TestWc wc{cqe.wr_id,
                    cqe.qpn,
                    cqe.byte_length,
                    cqe.immediate,
                    cqe.ring_index,
                    cqe.source_qpn,
                    cqe.flags,
                    static_cast<transport::WcStatus>(cqe.status),
                    static_cast<abi::CqeOpcode>(cqe.opcode)};
    cq.header->consumer.store(++cq.consumer, std::memory_order_release);
    return wc;
}

void TestClient::scatter_small(const abi::Cqe& cqe, const TestRecvQueue& queue) const {
    const std::byte* entry = queue.entry(cqe.ring_index);
    const std::byte* from = entry + queue.stride - limits::kSmallPayloadMax;
    const auto head = load_bytes<abi::RecvEntry>(entry);
    std::uint32_t left = cqe.byte_length;
    for (unsigned i = 0; i < head.sge_count && left > 0; ++i) {
        const auto element = load_bytes<abi::Sge>(entry + sizeof head + i * sizeof(abi::Sge));
        const std::uint32_t part = std::min(left, element.length);
        std::memcpy(reinterpret_cast<void*>(element.address + iova_distance), from, part);
        from += part;
        left -= part;
    }
}

}  // namespace rdmalab::card::testing

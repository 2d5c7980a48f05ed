#include "verbs/rdmacm/rsockets/datagram.h"

#include <netinet/in.h>
#include <string.h>

#include <algorithm>
#include <new>
#include <utility>

#include "verbs/rdmacm/marshal.h"

namespace rdmalab::rdmacm {

namespace {

constexpr std::size_t kGrhBytes = 40;  // before the payload of every UD receive
constexpr std::uint32_t kSendSlots = 64;
constexpr std::uint64_t kSendBit = 1ull << 32;  // wr_id: a slot, with this bit if it is of a send
constexpr int kPollBatch = 16;

std::uint32_t mtu_bytes(ibv_mtu mtu) { return 128u << mtu; }

}  // namespace

DatagramSocket::Port::~Port() {
    if (id == nullptr) return;
    ibv_cq* cq = id->recv_cq;
    ibv_comp_channel* channel = id->recv_cq_channel;
    id->recv_cq = nullptr;
    id->recv_cq_channel = nullptr;
    rdma_destroy_qp(id);
    if (cq != nullptr) ibv_destroy_cq(cq);
    if (channel != nullptr) ibv_destroy_comp_channel(channel);
    receives.reset();
    sends.reset();
    rdma_destroy_id(id);
}

DatagramSocket::Destination::~Destination() {
    if (ah != nullptr) ibv_destroy_ah(ah);
    if (id != nullptr) rdma_destroy_id(id);
}

DatagramSocket::~DatagramSocket() {
    drain_queues();
    destinations_.clear();
    ports_.clear();
    if (listener_ != nullptr) rdma_destroy_id(listener_);
    if (channel_ != nullptr) rdma_destroy_event_channel(channel_);
}

// --- Binding

int DatagramSocket::make_listener() {
    if (listener_ != nullptr) return 0;
    channel_ = rdma_create_event_channel();
    if (channel_ == nullptr) return -1;
    if (!make_nonblocking(channel_->fd) || !watch(channel_->fd)) return -1;
    return rdma_create_id(channel_, &listener_, nullptr, RDMA_PS_UDP);
}

int DatagramSocket::bind(const sockaddr* address) {
    Lock lock(mutex_);
    if (is_bound_) return fail(EINVAL);
    if (make_listener() != 0) return -1;
    if (rdma_bind_addr(listener_, const_cast<sockaddr*>(address)) != 0) return -1;
    is_bound_ = true;
    return ensure_bound();
}

// Bound somewhere, and able to answer queries.
int DatagramSocket::ensure_bound() {
    if (is_listening_) return 0;
    if (make_listener() != 0) return -1;
    if (!is_bound_) {
        sockaddr_storage any{};
        any.ss_family = static_cast<sa_family_t>(domain_);
        if (rdma_bind_addr(listener_, reinterpret_cast<sockaddr*>(&any)) != 0) return -1;
        is_bound_ = true;
    }
    if (rdma_listen(listener_, 0) != 0) return -1;
    is_listening_ = true;
    return 0;
}

// --- Ports

int DatagramSocket::post_receive(Port& port, std::uint32_t slot) {
    ibv_sge sge{.addr = port.receives.address() + std::uint64_t{slot} * port.slot_bytes,
                .length = port.slot_bytes,
                .lkey = port.receives.lkey()};
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = slot;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    return ibv_post_recv(port.id->qp, &wr, &bad);
}

// 0 or an errno value. port.id is bound to the device.
int DatagramSocket::open_port(Port& port, const abi::CmAddress& address) {
    port.address = address;
    port.address.port = ntohs(rdma_get_src_port(listener_));
    ibv_port_attr attributes{};
    if (int status = ibv_query_port(port.id->verbs, 1, &attributes)) return status;
    std::uint32_t mtu = mtu_bytes(attributes.active_mtu);
    port.payload_max = mtu - sizeof(DatagramHeader);
    port.slot_bytes = static_cast<std::uint32_t>(kGrhBytes + mtu);
    std::uint32_t receive_slots = settings_.receive_wrs;
    if (int status = port.receives.allocate(
            port.id->pd, std::size_t{receive_slots} * port.slot_bytes, IBV_ACCESS_LOCAL_WRITE)) {
        return status;
    }
    if (int status = port.sends.allocate(port.id->pd, std::size_t{kSendSlots} * mtu, 0)) {
        return status;
    }
    for (std::uint32_t slot = 0; slot < kSendSlots; ++slot) port.free_sends.push_back(slot);
    rdma_cm_id& id = *port.id;
    id.recv_cq_channel = ibv_create_comp_channel(id.verbs);
    if (id.recv_cq_channel == nullptr) return errno;
    if (!make_nonblocking(id.recv_cq_channel->fd) || !watch(id.recv_cq_channel->fd)) return errno;
    id.recv_cq = ibv_create_cq(id.verbs, static_cast<int>(receive_slots + kSendSlots), this,
                               id.recv_cq_channel, 0);
    if (id.recv_cq == nullptr) return errno;
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_UD;
    init.send_cq = id.recv_cq;
    init.recv_cq = id.recv_cq;
    init.cap = {.max_send_wr = kSendSlots,
                .max_recv_wr = receive_slots,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    if (rdma_create_qp(&id, id.pd, &init) != 0) return errno;
    for (std::uint32_t slot = 0; slot < receive_slots; ++slot) {
        if (int status = post_receive(port, slot)) return status;
    }
    return 0;
}

// The port on the device that `bound` is bound to, made if it is not there. Null and errno.
DatagramSocket::Port* DatagramSocket::port_on(rdma_cm_id& bound) {
    for (auto& port : ports_) {
        if (port->id->verbs == bound.verbs) return port.get();
    }
    std::optional<abi::CmAddress> address = from_sockaddr(&bound.route.addr.src_addr);
    if (!address) return fail_null(EAFNOSUPPORT);
    auto port = std::make_unique<Port>();
    if (rdma_create_id(channel_, &port->id, nullptr, RDMA_PS_UDP) != 0) return nullptr;
    sockaddr_storage on_device{};
    abi::CmAddress any_port = *address;
    any_port.port = 0;
    to_sockaddr(any_port, on_device);
    if (rdma_bind_addr(port->id, reinterpret_cast<sockaddr*>(&on_device)) != 0) return nullptr;
    if (int status = open_port(*port, *address)) return fail_null(status);
    ports_.push_back(std::move(port));
    return ports_.back().get();
}

// --- What arrives

void DatagramSocket::learn_sender(Port& port, const ibv_wc& wc, const abi::CmAddress& from) {
    if (find(from) != nullptr || (wc.wc_flags & IBV_WC_GRH) == 0) return;
    auto slot = static_cast<std::uint32_t>(wc.wr_id);
    auto* grh =
        reinterpret_cast<ibv_grh*>(port.receives.data() + std::size_t{slot} * port.slot_bytes);
    ibv_wc copy = wc;
    ibv_ah* ah = ibv_create_ah_from_wc(port.id->pd, &copy, grh, 1);
    if (ah == nullptr) return;  // a query will find it
    auto destination = std::make_unique<Destination>();
    destination->address = from;
    destination->state = Progress::kReady;
    destination->port = &port;
    destination->ah = ah;
    destination->qp_num = wc.src_qp;
    destination->qkey = RDMA_UDP_QKEY;
    destinations_.push_back(std::move(destination));
}

void DatagramSocket::take_datagram(Port& port, const ibv_wc& wc) {
    auto slot = static_cast<std::uint32_t>(wc.wr_id);
    std::byte* start = port.receives.data() + std::size_t{slot} * port.slot_bytes + kGrhBytes;
    DatagramHeader header;
    bool is_ours = wc.status == IBV_WC_SUCCESS && wc.byte_len >= kGrhBytes + sizeof header;
    if (is_ours) {
        memcpy(static_cast<void*>(&header), start, sizeof header);
        is_ours = header.version == DatagramHeader::kVersion;
    }
    abi::CmAddress from{};
    from.family = header.family;
    from.port = header.port;
    memcpy(from.address, header.address, sizeof from.address);
    if (is_ours && peer_.family != 0) {
        is_ours = same_host(from, peer_) && from.port == peer_.port;
    }
    if (!is_ours) {
        if (wc.status != IBV_WC_WR_FLUSH_ERR) post_receive(port, slot);
        return;
    }
    learn_sender(port, wc, from);
    auto length = static_cast<std::uint32_t>(wc.byte_len - kGrhBytes - sizeof header);
    arrivals_.push_back({.port = &port, .slot = slot, .length = length, .from = from});
}

void DatagramSocket::take_completions(Port& port, bool& found) {
    ibv_wc completions[kPollBatch];
    int count = 0;
    while ((count = ibv_poll_cq(port.id->recv_cq, kPollBatch, completions)) > 0) {
        found = true;
        for (int i = 0; i < count; ++i) {
            if (completions[i].wr_id & kSendBit) {
                port.free_sends.push_back(static_cast<std::uint32_t>(completions[i].wr_id));
            } else {
                take_datagram(port, completions[i]);
            }
        }
    }
    if (count < 0) error_ = EIO;
}

bool DatagramSocket::progress() {
    bool found = false;
    for (auto& port : ports_) take_completions(*port, found);
    if (!found) found = read_events();
    return found;
}

short DatagramSocket::ready_now() {
    int out = 0;
    bool can_send = ports_.empty() || std::any_of(ports_.begin(), ports_.end(), [](auto& port) {
                        return !port->free_sends.empty();
                    });
    if (can_send) out |= POLLOUT;
    if (!arrivals_.empty()) out |= POLLIN;
    if (error_ != 0) out |= POLLERR | POLLIN;
    return static_cast<short>(out);
}

bool DatagramSocket::arm_queues() {
    bool found = false;
    for (auto& port : ports_) {
        if (ibv_req_notify_cq(port->id->recv_cq, 0) != 0) error_ = EIO;
        take_completions(*port, found);
    }
    return !found;
}

void DatagramSocket::drain_queues() {
    for (auto& port : ports_) {
        ibv_cq* cq = nullptr;
        void* context = nullptr;
        while (ibv_get_cq_event(port->id->recv_cq_channel, &cq, &context) == 0) {
            ibv_ack_cq_events(cq, 1);
        }
    }
}

// --- Sending and receiving

int DatagramSocket::post_datagram(Destination& destination, const iovec* pieces, std::size_t count,
                                  std::size_t length) {
    Port& port = *destination.port;
    DatagramHeader header;
    header.family = static_cast<std::uint8_t>(port.address.family);
    header.port = port.address.port;
    memcpy(header.address, port.address.address, sizeof header.address);
    std::uint32_t slot = port.free_sends.back();
    std::byte* start = port.sends.data() + std::size_t{slot} * (port.slot_bytes - kGrhBytes);
    std::byte* to = start;
    memcpy(to, &header, sizeof header);
    to += sizeof header;
    for (std::size_t i = 0; i < count; ++i) {
        if (pieces[i].iov_len > 0) memcpy(to, pieces[i].iov_base, pieces[i].iov_len);
        to += pieces[i].iov_len;
    }
    ibv_sge sge{.addr = reinterpret_cast<std::uintptr_t>(start),
                .length = static_cast<std::uint32_t>(sizeof header + length),
                .lkey = port.sends.lkey()};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = kSendBit | slot;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud.ah = destination.ah;
    wr.wr.ud.remote_qpn = destination.qp_num;
    wr.wr.ud.remote_qkey = destination.qkey;
    int status = ibv_post_send(port.id->qp, &wr, &bad);
    if (status == 0) port.free_sends.pop_back();
    return status;
}

ssize_t DatagramSocket::send(const iovec* pieces, std::size_t count, int flags,
                             const sockaddr* to) {
    Lock lock(mutex_);
    abi::CmAddress address = peer_;
    if (to != nullptr) {
        std::optional<abi::CmAddress> given = from_sockaddr(to);
        if (!given) return fail(EAFNOSUPPORT);
        address = *given;
    }
    if (address.family == 0) return fail(EDESTADDRREQ);
    Destination* destination = resolve(lock, address);
    if (destination == nullptr) return -1;
    std::size_t length = total_length(pieces, count);
    if (length > destination->port->payload_max) return fail(EMSGSIZE);
    auto has_slot = [&] { return !destination->port->free_sends.empty() || error_ != 0; };
    if (wait(lock, may_block(flags), has_slot) != 0) return -1;
    if (error_ != 0) return fail(pending_error());
    int status = post_datagram(*destination, pieces, count, length);
    return status == 0 ? static_cast<ssize_t>(length) : fail(status);
}

ssize_t DatagramSocket::receive(const iovec* pieces, std::size_t count, int flags, sockaddr* from,
                                socklen_t* from_length) {
    Lock lock(mutex_);
    if (ensure_bound() != 0) return -1;
    auto has_one = [&] { return !arrivals_.empty() || error_ != 0; };
    if (wait(lock, may_block(flags), has_one) != 0) return -1;
    if (arrivals_.empty()) return fail(pending_error());
    Arrival arrival = arrivals_.front();
    const std::byte* data = arrival.port->receives.data() +
                            std::size_t{arrival.slot} * arrival.port->slot_bytes + kGrhBytes +
                            sizeof(DatagramHeader);
    std::size_t taken = 0;
    for (std::size_t i = 0; i < count && taken < arrival.length; ++i) {
        std::size_t now = std::min<std::size_t>(pieces[i].iov_len, arrival.length - taken);
        memcpy(pieces[i].iov_base, data + taken, now);
        taken += now;
    }
    if (from != nullptr && from_length != nullptr) {
        sockaddr_storage address{};
        to_sockaddr(arrival.from, address);
        give_address(reinterpret_cast<sockaddr&>(address), from, from_length);
    }
    if ((flags & MSG_PEEK) == 0) {
        arrivals_.pop_front();
        post_receive(*arrival.port, arrival.slot);
    }
    return static_cast<ssize_t>((flags & MSG_TRUNC) != 0 ? arrival.length : taken);
}

int DatagramSocket::connect(const sockaddr* address) {
    Lock lock(mutex_);
    if (address->sa_family == AF_UNSPEC) {
        peer_ = {};
        return 0;
    }
    std::optional<abi::CmAddress> given = from_sockaddr(address);
    if (!given) return fail(EAFNOSUPPORT);
    if (resolve(lock, *given) == nullptr) return -1;
    peer_ = *given;
    return 0;
}

int DatagramSocket::shutdown(int) { return peer_.family != 0 ? 0 : fail(ENOTCONN); }

// What was sent leaves before the QP goes away.
void DatagramSocket::close() {
    Lock lock(mutex_);
    auto is_sent = [&] {
        return error_ != 0 || std::all_of(ports_.begin(), ports_.end(), [](auto& port) {
                   return port->free_sends.size() == kSendSlots;
               });
    };
    while (wait(lock, true, is_sent) != 0) {
    }
}

int DatagramSocket::local_address(sockaddr* address, socklen_t* length) {
    Lock lock(mutex_);
    sockaddr_storage unbound{};
    unbound.ss_family = static_cast<sa_family_t>(domain_);
    bool is_known = listener_ != nullptr && listener_->route.addr.src_addr.sa_family != 0;
    return give_address(
        is_known ? listener_->route.addr.src_addr : reinterpret_cast<sockaddr&>(unbound), address,
        length);
}

int DatagramSocket::peer_address(sockaddr* address, socklen_t* length) {
    Lock lock(mutex_);
    if (peer_.family == 0) return fail(ENOTCONN);
    sockaddr_storage out{};
    to_sockaddr(peer_, out);
    return give_address(reinterpret_cast<sockaddr&>(out), address, length);
}

int DatagramSocket::apply_option(int level, int name, int value) {
    bool is_reuse = level == SOL_SOCKET && name == SO_REUSEADDR;
    bool is_family = level == IPPROTO_IPV6 && name == IPV6_V6ONLY;
    if ((!is_reuse && !is_family) || is_bound_) return 0;
    if (make_listener() != 0) return errno;
    int option = is_reuse ? RDMA_OPTION_ID_REUSEADDR : RDMA_OPTION_ID_AFONLY;
    int status = rdma_set_option(listener_, RDMA_OPTION_ID, option, &value, sizeof value);
    return status == 0 ? 0 : errno;
}

int DatagramSocket::pending_error() { return std::exchange(error_, 0); }

}  // namespace rdmalab::rdmacm

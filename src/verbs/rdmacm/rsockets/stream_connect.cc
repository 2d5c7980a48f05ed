// The life of a stream socket: bind, listen, accept, connect, close.
#include <netinet/in.h>
#include <string.h>

#include <algorithm>
#include <new>
#include <utility>

#include "verbs/rdmacm/marshal.h"
#include "verbs/rdmacm/rsockets/stream.h"

namespace rdmalab::rdmacm {

namespace {

constexpr int kResolveTimeoutMs = 2000;
constexpr std::uint8_t kRetryForever = 7;

}  // namespace

StreamSocket::~StreamSocket() { release_connection(); }

void StreamSocket::release_connection() {
    for (Mapping& mapping : mappings_) {
        if (mapping.mr != nullptr) ibv_dereg_mr(mapping.mr);
    }
    mappings_.clear();
    if (id_ != nullptr) {
        drain_queues();
        rdma_destroy_qp(id_);
        if (id_->recv_cq != nullptr) ibv_destroy_cq(id_->recv_cq);
        if (id_->recv_cq_channel != nullptr) ibv_destroy_comp_channel(id_->recv_cq_channel);
        receive_ring_.reset();
        send_ring_.reset();
        iomap_table_.reset();
        rdma_destroy_id(id_);
    }
    if (channel_ != nullptr) rdma_destroy_event_channel(channel_);
    id_ = nullptr;
    channel_ = nullptr;
}

// 0, or -1 and errno.
int StreamSocket::make_id() {
    if (id_ != nullptr) return 0;
    channel_ = rdma_create_event_channel();
    if (channel_ == nullptr) return -1;
    if (!make_nonblocking(channel_->fd) || !watch(channel_->fd)) return -1;
    return rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP);
}

int StreamSocket::bind(const sockaddr* address) {
    Lock lock(mutex_);
    if (is_bound_ || state_ != State::kNew) return fail(EINVAL);
    if (make_id() != 0) return -1;
    int status = rdma_bind_addr(id_, const_cast<sockaddr*>(address));
    is_bound_ = status == 0;
    return status;
}

int StreamSocket::listen(int backlog) {
    Lock lock(mutex_);
    if (state_ == State::kListening) return 0;
    if (state_ != State::kNew) return fail(EINVAL);
    if (make_id() != 0 || rdma_listen(id_, backlog) != 0) return -1;
    state_ = State::kListening;
    return 0;
}

// --- Resources

stream::Hello StreamSocket::own_hello() const {
    stream::Hello hello;
    hello.slots = static_cast<std::uint16_t>(settings_.receive_wrs);
    hello.ring_length = static_cast<std::uint32_t>(receive_ring_.size());
    hello.ring_address = receive_ring_.address();
    hello.ring_key = receive_ring_.rkey();
    hello.iomap_count = settings_.iomap_entries;
    hello.iomap_address = iomap_table_.address();
    hello.iomap_key = iomap_table_.rkey();
    return hello;
}

bool StreamSocket::take_hello(const void* data, std::size_t length) {
    if (data == nullptr || length < sizeof peer_) return false;
    memcpy(static_cast<void*>(&peer_), data, sizeof peer_);
    return peer_.version == stream::kVersion && peer_.slots >= stream::kSlotsMin &&
           peer_.ring_length >= stream::kRingMin && peer_.ring_length <= stream::kRingMax;
}

rdma_conn_param StreamSocket::connection_parameters(const stream::Hello& hello) const {
    rdma_conn_param out{};
    out.private_data = &hello;
    out.private_data_len = sizeof hello;
    out.responder_resources = 1;
    out.initiator_depth = 1;
    out.retry_count = 7;
    out.rnr_retry_count = kRetryForever;
    return out;
}

int StreamSocket::post_receives() {
    for (std::uint32_t i = 0; i < settings_.receive_wrs; ++i) {
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.wr_id = ~0ull;
        if (int status = ibv_post_recv(id_->qp, &wr, &bad)) return status;
    }
    return 0;
}

// Rings and QP, on the device that the id is bound to. 0 or an errno value.
int StreamSocket::prepare_connection() {
    constexpr int kWritable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    if (int status = receive_ring_.allocate(id_->pd, settings_.receive_bytes, kWritable)) {
        return status;
    }
    if (int status = send_ring_.allocate(id_->pd, settings_.send_bytes, 0)) return status;
    if (settings_.iomap_entries > 0) {
        std::size_t length = settings_.iomap_entries * sizeof(stream::IomapEntry);
        if (int status = iomap_table_.allocate(id_->pd, length, kWritable)) return status;
    }
    sends_max_ = settings_.send_wrs;
    id_->recv_cq_channel = ibv_create_comp_channel(id_->verbs);
    if (id_->recv_cq_channel == nullptr) return errno;
    if (!make_nonblocking(id_->recv_cq_channel->fd) || !watch(id_->recv_cq_channel->fd)) {
        return errno;
    }
    auto entries = static_cast<int>(settings_.receive_wrs + settings_.send_wrs);
    id_->recv_cq = ibv_create_cq(id_->verbs, entries, this, id_->recv_cq_channel, 0);
    if (id_->recv_cq == nullptr) return errno;
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_RC;
    init.send_cq = id_->recv_cq;
    init.recv_cq = id_->recv_cq;
    init.cap = {.max_send_wr = settings_.send_wrs,
                .max_recv_wr = settings_.receive_wrs,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = settings_.inline_bytes};
    if (rdma_create_qp(id_, id_->pd, &init) != 0) return errno;
    return post_receives();
}

// --- Connecting

int StreamSocket::start_connecting(const sockaddr* address) {
    if (make_id() != 0) return -1;
    int status = rdma_resolve_addr(id_, nullptr, const_cast<sockaddr*>(address), kResolveTimeoutMs);
    if (status == 0) state_ = State::kResolving;
    return status;
}

int StreamSocket::connect(const sockaddr* address) {
    Lock lock(mutex_);
    switch (state_) {
        case State::kNew:
            if (start_connecting(address) != 0) return -1;
            break;
        case State::kConnected:
        case State::kAccepting:
            return fail(EISCONN);
        case State::kListening:
            return fail(EINVAL);
        case State::kResolving:
        case State::kConnecting:
            if (is_nonblocking_) {
                progress();
                if (state_ == State::kResolving || state_ == State::kConnecting) {
                    return fail(EALREADY);
                }
            }
            break;
        case State::kEnded:
            return fail(error_ != 0 ? pending_error() : EPIPE);
    }
    auto is_over = [&] { return state_ == State::kConnected || state_ == State::kEnded; };
    if (wait(lock, !is_nonblocking_, is_over) != 0) {
        return fail(errno == EAGAIN ? EINPROGRESS : errno);
    }
    if (state_ == State::kConnected) return 0;
    return fail(error_ != 0 ? pending_error() : ECONNREFUSED);
}

// The next step after an event of the way to a connection. 0 or an errno value.
int StreamSocket::continue_connecting(const rdma_cm_event& event) {
    if (event.event == RDMA_CM_EVENT_ADDR_RESOLVED) {
        return rdma_resolve_route(id_, kResolveTimeoutMs) == 0 ? 0 : errno;
    }
    if (event.event == RDMA_CM_EVENT_ROUTE_RESOLVED) {
        if (int status = prepare_connection()) return status;
        stream::Hello hello = own_hello();
        rdma_conn_param param = connection_parameters(hello);
        if (rdma_connect(id_, &param) != 0) return errno;
        state_ = State::kConnecting;
        return 0;
    }
    // Established.
    if (state_ == State::kConnecting &&
        !take_hello(event.param.conn.private_data, event.param.conn.private_data_len)) {
        return EPROTO;
    }
    state_ = State::kConnected;
    return 0;
}

// The connection is over; what has arrived can still be read.
void StreamSocket::end(int error) {
    if (state_ == State::kEnded) return;
    state_ = State::kEnded;
    if (error_ == 0 && !has_peer_closed_) error_ = error;
}

void StreamSocket::on_event(const rdma_cm_event& event) {
    switch (event.event) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
        case RDMA_CM_EVENT_ROUTE_RESOLVED:
        case RDMA_CM_EVENT_ESTABLISHED:
            if (int status = continue_connecting(event)) end(status);
            break;
        case RDMA_CM_EVENT_REJECTED:
            end(ECONNREFUSED);
            break;
        case RDMA_CM_EVENT_ADDR_ERROR:
        case RDMA_CM_EVENT_ROUTE_ERROR:
            end(event.status < 0 ? -event.status : ENETUNREACH);
            break;
        case RDMA_CM_EVENT_UNREACHABLE:
        case RDMA_CM_EVENT_CONNECT_ERROR:
            end(ETIMEDOUT);
            break;
        case RDMA_CM_EVENT_DISCONNECTED:
            take_completions();  // what came before the end
            end(has_peer_shut_ && is_write_shut_ ? 0 : ECONNRESET);
            break;
        case RDMA_CM_EVENT_DEVICE_REMOVAL:
            end(ENODEV);
            break;
        default:
            break;
    }
}

bool StreamSocket::read_events() {
    if (channel_ == nullptr || state_ == State::kListening) return false;
    bool found = false;
    rdma_cm_event* event = nullptr;
    while (rdma_get_cm_event(channel_, &event) == 0) {
        found = true;
        on_event(*event);
        rdma_ack_cm_event(event);
    }
    if (errno == EIO) end(ENODEV);
    return found;
}

// --- Accepting

int StreamSocket::take_id(rdma_cm_id* id, const rdma_conn_param& request,
                          const Settings& settings) {
    settings_ = settings;
    id_ = id;
    channel_ = rdma_create_event_channel();
    if (channel_ == nullptr || rdma_migrate_id(id, channel_) != 0) return errno;
    if (!make_nonblocking(channel_->fd) || !watch(channel_->fd)) return errno;
    if (!take_hello(request.private_data, request.private_data_len)) return EPROTO;
    if (int status = prepare_connection()) return status;
    stream::Hello hello = own_hello();
    rdma_conn_param param = connection_parameters(hello);
    state_ = State::kAccepting;
    return rdma_accept(id, &param) == 0 ? 0 : errno;
}

// Null when the request came to nothing.
Socket* StreamSocket::accept_one(const rdma_cm_event& event) {
    auto* child = new (std::nothrow) StreamSocket(domain_);
    if (child == nullptr || !child->open()) {
        rdma_reject(event.id, nullptr, 0);
        rdma_destroy_id(event.id);
        delete child;
        return nullptr;
    }
    Lock child_lock(child->mutex_);
    if (child->take_id(event.id, event.param.conn, settings_) == 0) return child;
    rdma_reject(event.id, nullptr, 0);
    child_lock.unlock();
    child->release();
    return nullptr;
}

Socket* StreamSocket::accept(sockaddr* address, socklen_t* length) {
    Lock lock(mutex_);
    if (state_ != State::kListening) return fail_null(EINVAL);
    Socket* child = nullptr;
    int error = 0;
    auto has_one = [&] {
        rdma_cm_event* event = nullptr;
        if (rdma_get_cm_event(channel_, &event) != 0) {
            if (errno != EAGAIN && errno != EINTR) error = errno;
            return error != 0;
        }
        if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) child = accept_one(*event);
        if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL) error = ENODEV;
        rdma_ack_cm_event(event);
        return child != nullptr || error != 0;
    };
    if (wait(lock, !is_nonblocking_, [&] { return child != nullptr || has_one(); }) != 0) {
        return nullptr;
    }
    if (child == nullptr) return fail_null(error);
    child->peer_address(address, length);
    return child;
}

// --- The end

// Until the peer has acknowledged all that was sent, or is known to take no more.
void StreamSocket::flush(Lock& lock) {
    auto is_over = [&] {
        return sends_posted_ == 0 || has_peer_closed_ || state_ == State::kEnded;
    };
    while (wait(lock, true, is_over) != 0) {
    }
}

int StreamSocket::shutdown(int how) {
    Lock lock(mutex_);
    if (state_ == State::kAccepting) {
        wait(lock, true, [&] { return state_ != State::kAccepting; });
    }
    if (state_ != State::kConnected && state_ != State::kEnded) return fail(ENOTCONN);
    if (how == SHUT_RD || how == SHUT_RDWR) is_read_shut_ = true;
    if (how == SHUT_RD || is_write_shut_) return 0;
    auto can_tell = [&] { return has_slot(0) || has_peer_closed_ || state_ == State::kEnded; };
    if (wait(lock, true, can_tell) != 0) return -1;
    is_write_shut_ = true;
    if (state_ == State::kEnded || has_peer_closed_) return 0;
    if (send_control(stream::Kind::kShutdown, 0) != 0) end(ECONNRESET);
    flush(lock);
    return 0;
}

void StreamSocket::close() {
    Lock lock(mutex_);
    if (state_ == State::kAccepting) {
        wait(lock, true, [&] { return state_ != State::kAccepting; });
    }
    bool is_abortive = linger_.l_onoff != 0 && linger_.l_linger == 0;
    if (state_ == State::kConnected && !has_peer_closed_ && !is_abortive) {
        flush(lock);
        auto can_tell = [&] { return has_slot(0) || has_peer_closed_ || state_ == State::kEnded; };
        wait(lock, true, can_tell);
        if (state_ == State::kConnected && !has_peer_closed_ &&
            send_control(stream::Kind::kClose, 0) == 0) {
            flush(lock);
        }
    }
    if (id_ != nullptr && id_->qp != nullptr) rdma_disconnect(id_);
    end(0);
    // The last user of the socket gives the rest back.
}

// --- Small things

int StreamSocket::local_address(sockaddr* address, socklen_t* length) {
    Lock lock(mutex_);
    if (id_ != nullptr && id_->route.addr.src_addr.sa_family != 0) {
        return give_address(id_->route.addr.src_addr, address, length);
    }
    sockaddr_storage unbound{};
    unbound.ss_family = static_cast<sa_family_t>(domain_);
    return give_address(reinterpret_cast<sockaddr&>(unbound), address, length);
}

int StreamSocket::peer_address(sockaddr* address, socklen_t* length) {
    Lock lock(mutex_);
    bool has_peer = state_ == State::kConnected || state_ == State::kAccepting ||
                    (state_ == State::kEnded && id_ != nullptr);
    if (!has_peer) return fail(ENOTCONN);
    return give_address(id_->route.addr.dst_addr, address, length);
}

int StreamSocket::apply_option(int level, int name, int value) {
    bool is_reuse = level == SOL_SOCKET && name == SO_REUSEADDR;
    bool is_family = level == IPPROTO_IPV6 && name == IPV6_V6ONLY;
    if ((!is_reuse && !is_family) || state_ != State::kNew) return 0;
    if (make_id() != 0) return errno;
    int option = is_reuse ? RDMA_OPTION_ID_REUSEADDR : RDMA_OPTION_ID_AFONLY;
    return rdma_set_option(id_, RDMA_OPTION_ID, option, &value, sizeof value) == 0 ? 0 : errno;
}

int StreamSocket::pending_error() { return std::exchange(error_, 0); }

}  // namespace rdmalab::rdmacm

// Finding the QP behind an address, and answering those who look for ours.
#include <algorithm>
#include <memory>
#include <utility>

#include "verbs/rdmacm/marshal.h"
#include "verbs/rdmacm/rsockets/datagram.h"

namespace rdmalab::rdmacm {

namespace {

constexpr int kResolveTimeoutMs = 2000;

}  // namespace

DatagramSocket::Destination* DatagramSocket::find(const abi::CmAddress& address) {
    for (auto& d : destinations_) {
        if (same_host(d->address, address) && d->address.port == address.port) return d.get();
    }
    return nullptr;
}

// Null and errno.
DatagramSocket::Destination* DatagramSocket::start_query(const abi::CmAddress& address) {
    auto destination = std::make_unique<Destination>();
    destination->address = address;
    if (rdma_create_id(channel_, &destination->id, destination.get(), RDMA_PS_UDP) != 0) {
        return nullptr;
    }
    // From the address that this socket is bound to, if it is one.
    std::optional<abi::CmAddress> source = from_sockaddr(&listener_->route.addr.src_addr);
    sockaddr_storage from{}, to{};
    if (source && !is_wildcard(*source)) {
        source->port = 0;
        to_sockaddr(*source, from);
    }
    to_sockaddr(address, to);
    sockaddr* source_address = from.ss_family != 0 ? reinterpret_cast<sockaddr*>(&from) : nullptr;
    if (rdma_resolve_addr(destination->id, source_address, reinterpret_cast<sockaddr*>(&to),
                          kResolveTimeoutMs) != 0) {
        return nullptr;
    }
    destinations_.push_back(std::move(destination));
    return destinations_.back().get();
}

// Waits also on a non-blocking socket: to send a datagram is not to wait for the peer, but the way
// to it must be known once. Null and errno.
DatagramSocket::Destination* DatagramSocket::resolve(Lock& lock, const abi::CmAddress& address) {
    if (ensure_bound() != 0) return nullptr;
    Destination* destination = find(address);
    if (destination == nullptr) destination = start_query(address);
    if (destination == nullptr) return nullptr;
    auto is_over = [&] {
        return destination->state == Progress::kReady || destination->state == Progress::kFailed;
    };
    if (wait(lock, true, is_over) != 0) return nullptr;
    if (destination->state == Progress::kReady) return destination;
    // Forgotten, so that the next datagram asks again.
    int error = destination->error;
    std::erase_if(destinations_, [&](auto& d) { return d.get() == destination; });
    return fail_null(error);
}

void DatagramSocket::fail_query(Destination& destination, int error) {
    destination.state = Progress::kFailed;
    destination.error = error;
}

void DatagramSocket::continue_query(Destination& destination, const rdma_cm_event& event) {
    switch (event.event) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
            destination.state = Progress::kRoute;
            if (rdma_resolve_route(destination.id, kResolveTimeoutMs) != 0) {
                fail_query(destination, errno);
            }
            return;
        case RDMA_CM_EVENT_ROUTE_RESOLVED: {
            destination.state = Progress::kQuery;
            rdma_conn_param param{};
            param.retry_count = 7;
            if (rdma_connect(destination.id, &param) != 0) fail_query(destination, errno);
            return;
        }
        case RDMA_CM_EVENT_ESTABLISHED: {
            destination.port = port_on(*destination.id);
            if (destination.port == nullptr) return fail_query(destination, errno);
            ibv_ah_attr attributes = event.param.ud.ah_attr;
            destination.ah = ibv_create_ah(destination.port->id->pd, &attributes);
            if (destination.ah == nullptr) return fail_query(destination, errno);
            destination.qp_num = event.param.ud.qp_num;
            destination.qkey = event.param.ud.qkey;
            destination.state = Progress::kReady;
            return;
        }
        case RDMA_CM_EVENT_UNREACHABLE:
            fail_query(destination, event.status < 0 ? -event.status : ECONNREFUSED);
            return;
        case RDMA_CM_EVENT_REJECTED:
            fail_query(destination, ECONNREFUSED);
            return;
        case RDMA_CM_EVENT_ADDR_ERROR:
        case RDMA_CM_EVENT_ROUTE_ERROR:
        case RDMA_CM_EVENT_CONNECT_ERROR:
            fail_query(destination, event.status < 0 ? -event.status : ENETUNREACH);
            return;
        default:
            return;
    }
}

// Says which QP serves this socket on the device where the query came in.
void DatagramSocket::answer_query(rdma_cm_event& event) {
    Port* port = port_on(*event.id);
    if (port == nullptr) {
        rdma_reject(event.id, nullptr, 0);
        return;
    }
    rdma_conn_param param{};
    param.qp_num = port->id->qp->qp_num;
    rdma_accept(event.id, &param);
}

bool DatagramSocket::read_events() {
    if (channel_ == nullptr) return false;
    bool found = false;
    rdma_cm_event* event = nullptr;
    while (rdma_get_cm_event(channel_, &event) == 0) {
        found = true;
        rdma_cm_id* asker = nullptr;
        if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
            asker = event->id;
            answer_query(*event);
        } else if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
            error_ = ENODEV;
        } else if (event->id->context != nullptr) {
            continue_query(*static_cast<Destination*>(event->id->context), *event);
        }
        rdma_ack_cm_event(event);
        if (asker != nullptr) rdma_destroy_id(asker);
    }
    if (errno == EIO) error_ = ENODEV;
    return found;
}

}  // namespace rdmalab::rdmacm

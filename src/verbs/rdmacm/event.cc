// From the records of the card to the events of the program. Some records make the library act
// first: an answer to a connection request moves the QP to RTS and tells the card to go on; a
// request gets an id; a joined group gets the QP.
#include "verbs/rdmacm/event.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "verbs/complain.h"
#include "verbs/qp.h"
#include "verbs/rdmacm/marshal.h"

namespace rdmalab::rdmacm {

namespace {

// Of a dead card: each id that was bound to a device learns once that its device is gone.
bool report_removal(Channel& channel, Event& event) {
    std::lock_guard guard(channel.mutex);
    for (Id* id = channel.first_id; id != nullptr; id = id->next_in_channel) {
        if (id->device == nullptr || id->removal_reported) continue;
        id->removal_reported = true;
        id->is_connected = false;
        std::lock_guard id_guard(id->mutex);
        ++id->events_read;
        event.id = id;
        event.counted_on = id;
        event.event = RDMA_CM_EVENT_DEVICE_REMOVAL;
        return true;
    }
    return false;
}

void take_connection_data(Event& event, const abi::CmEventRecord& record) {
    event.param.conn = from_abi(record.conn);
    std::size_t length = std::min<std::size_t>(record.private_data.length, sizeof event.data);
    if (length == 0) return;
    memcpy(event.data, record.private_data.bytes, length);
    event.param.conn.private_data = event.data;
    event.param.conn.private_data_len = static_cast<std::uint8_t>(length);
}

void take_datagram_data(Event& event, const abi::CmEventRecord& record) {
    event.param.ud = {};
    event.param.ud.ah_attr = verbs::from_abi(record.ud.ah);
    event.param.ud.qp_num = record.ud.qp_num;
    event.param.ud.qkey = record.ud.qkey;
    std::size_t length = std::min<std::size_t>(record.private_data.length, sizeof event.data);
    if (length == 0) return;
    memcpy(event.data, record.private_data.bytes, length);
    event.param.ud.private_data = event.data;
    event.param.ud.private_data_len = static_cast<std::uint8_t>(length);
}

void take_addresses(Id& id, const abi::CmEventRecord& record) {
    to_sockaddr(record.local, id.route.addr.src_storage);
    to_sockaddr(record.peer, id.route.addr.dst_storage);
    rdma_ib_addr& ib = id.route.addr.addr.ibaddr;
    memcpy(ib.sgid.raw, record.local_gid, sizeof record.local_gid);
    memcpy(ib.dgid.raw, record.peer_gid, sizeof record.peer_gid);
    ib.pkey = htobe16(0xffff);
}

void forget_new_id(Id& listener, std::uint32_t handle) {
    abi::CmDestroyIdRequest request{.id = handle, .events_read = 0};
    abi::CmEventsReply reply{};
    listener.session->call(abi::CmOp::kDestroyId, request, reply);
}

// The id of a request that has come. A synchronous listener has synchronous children.
Id* adopt(Id& listener, const abi::CmEventRecord& record) {
    Channel* channel = &channel_of(listener.channel);
    if (listener.is_sync) channel = create_channel(listener.session);
    if (channel == nullptr) {
        forget_new_id(listener, record.new_id);
        return nullptr;
    }
    Id* id = make_id(*listener.session, listener.ps, static_cast<ibv_qp_type>(record.qp_type));
    int status = id == nullptr ? ENOMEM : 0;
    if (status == 0) {
        id->handle = record.new_id;
        id->context = listener.context;
        id->is_sync = listener.is_sync;
        abi::CmAdoptRequest request{
            .cookie = id->cookie(), .id = record.new_id, .channel = channel->handle};
        status = id->session->call(abi::CmOp::kAdopt, request);
    }
    if (status == 0) status = bind_to_device(*id, record.device);
    if (status == 0) status = refresh(*id);
    if (status == 0) {
        add_to_channel(*id, *channel);
        return id;
    }
    forget_new_id(listener, record.new_id);
    delete id;
    if (listener.is_sync) destroy_channel(*channel);
    return fail_null(status);
}

bool on_connect_request(Id& listener, const abi::CmEventRecord& record, Event& event) {
    Id* id = adopt(listener, record);
    if (id == nullptr) return false;
    id->responder_resources = record.conn.responder_resources;
    id->initiator_depth = record.conn.initiator_depth;
    id->remote_ece.vendor_id = record.remote_ece.vendor_id;
    id->remote_ece.options = record.remote_ece.options;
    event.listen_id = &listener;
    event.id = id;
    if (is_datagram(*id)) {
        take_datagram_data(event, record);
    } else {
        take_connection_data(event, record);
    }
    return true;
}

void on_connect_response(Id& id, const abi::CmEventRecord& record, Event& event) {
    take_connection_data(event, record);
    id.remote_ece.vendor_id = record.remote_ece.vendor_id;
    id.remote_ece.options = record.remote_ece.options;
    if (id.qp == nullptr) return;
    int status = ready_qp(id, RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH);
    if (status == 0) status = id.call(abi::CmOp::kEstablish);
    if (status == 0) {
        event.event = RDMA_CM_EVENT_ESTABLISHED;
        id.is_connected = true;
        return;
    }
    event.event = RDMA_CM_EVENT_CONNECT_ERROR;
    event.status = -status;
    id.connect_failed = true;
    fail_qp(id);
    abi::CmRejectRequest request{};
    request.id = id.handle;
    request.reason = abi::kCmRejectConsumer;
    id.session->call(abi::CmOp::kReject, request);
}

void on_established(Id& id, const abi::CmEventRecord& record, Event& event) {
    id.is_connected = true;
    if (is_datagram(id)) {
        take_datagram_data(event, record);
    } else {
        take_connection_data(event, record);
    }
}

void on_joined(Id& id, const abi::CmEventRecord& record, Event& event) {
    auto* join = reinterpret_cast<Join*>(record.mc_cookie);
    event.join = join;
    take_datagram_data(event, record);
    event.param.ud.private_data = join->context;
    event.param.ud.private_data_len = 0;
    if (record.type == abi::CmEventType::kMulticastError) return;
    join->gid = event.param.ud.ah_attr.grh.dgid;
    if (id.qp == nullptr || join->is_send_only) return;
    int status = ibv_attach_mcast(id.qp, &join->gid, 0);
    if (status == 0) {
        join->is_attached = true;
        return;
    }
    event.event = RDMA_CM_EVENT_MULTICAST_ERROR;
    event.status = -status;
}

// After this side has refused the peer's answer, the end of the attempt is no news.
bool is_echo_of_failure(const Id& id, abi::CmEventType type) {
    return id.connect_failed &&
           (type == abi::CmEventType::kRejected || type == abi::CmEventType::kDisconnected);
}

// What goes with the event; false when the program is not to see it.
bool interpret(Id& id, const abi::CmEventRecord& record, Event& event) {
    switch (record.type) {
        case abi::CmEventType::kAddrResolved:
            take_addresses(id, record);
            event.status = -bind_to_device(id, record.device);
            if (event.status != 0) event.event = RDMA_CM_EVENT_ADDR_ERROR;
            return true;
        case abi::CmEventType::kRouteResolved:
            event.status = -refresh(id);
            if (event.status != 0) event.event = RDMA_CM_EVENT_ROUTE_ERROR;
            return true;
        case abi::CmEventType::kConnectRequest:
            return on_connect_request(id, record, event);
        case abi::CmEventType::kConnectResponse:
            on_connect_response(id, record, event);
            return true;
        case abi::CmEventType::kEstablished:
            on_established(id, record, event);
            return true;
        case abi::CmEventType::kRejected:
            if (is_echo_of_failure(id, record.type)) return false;
            take_connection_data(event, record);
            fail_qp(id);
            return true;
        case abi::CmEventType::kDisconnected:
            id.is_connected = false;
            if (is_echo_of_failure(id, record.type)) return false;
            take_connection_data(event, record);
            return true;
        case abi::CmEventType::kMulticastJoin:
        case abi::CmEventType::kMulticastError:
            on_joined(id, record, event);
            return true;
        case abi::CmEventType::kAddrError:
        case abi::CmEventType::kRouteError:
        case abi::CmEventType::kConnectError:
        case abi::CmEventType::kUnreachable:
        case abi::CmEventType::kDeviceRemoval:
        case abi::CmEventType::kAddrChange:
        case abi::CmEventType::kTimewaitExit:
            return true;
    }
    return false;
}

void count_read(Id& id, const abi::CmEventRecord& record) {
    std::lock_guard guard(id.mutex);
    auto* join = reinterpret_cast<Join*>(record.mc_cookie);
    ++(join != nullptr ? join->events_read : id.events_read);
}

bool process(const abi::CmEventRecord& record, Event& event) {
    Id& id = *reinterpret_cast<Id*>(record.cookie);
    count_read(id, record);
    event.id = &id;
    event.counted_on = &id;
    event.event = static_cast<rdma_cm_event_type>(record.type);
    event.status = record.status;
    if (record.text[0] != '\0') {
        verbs::complain_once("%.*s", static_cast<int>(sizeof record.text), record.text);
    }
    if (interpret(id, record, event)) return true;
    complete_event(id, event.join);
    return false;
}

// 1: a record, 0: the card is dead, -1 and errno: for the program (EAGAIN, EINTR). Does not return
// when another thread destroys the channel meanwhile.
int read_record(Channel& channel, abi::CmEventRecord& record) {
    if (channel.fd < 0) return 0;
    ChannelLife* life = channel.life;
    life->retain();
    ssize_t n = read(channel.fd, &record, sizeof record);
    int error = errno;
    while (n == 0 && life->is_over) pause();
    life->release();
    if (n == static_cast<ssize_t>(sizeof record)) return 1;
    if (n == 0) return 0;
    return fail(n < 0 ? error : EIO);
}

}  // namespace

}  // namespace rdmalab::rdmacm

using namespace rdmalab;
using namespace rdmalab::rdmacm;

extern "C" int rdma_get_cm_event(rdma_event_channel* public_channel, rdma_cm_event** out) {
    if (out == nullptr) return fail(EINVAL);
    Channel& channel = channel_of(public_channel);
    auto* event = new (std::nothrow) Event();
    if (event == nullptr) return fail(ENOMEM);
    for (;;) {
        abi::CmEventRecord record;
        int status = read_record(channel, record);
        if (status == 0) {
            channel.session->mark_dead();
            if (!report_removal(channel, *event)) status = fail(EIO);
        }
        if (status < 0) {
            delete event;
            return -1;
        }
        if (status == 0 || process(record, *event)) {
            *out = event;
            return 0;
        }
    }
}

extern "C" int rdma_ack_cm_event(rdma_cm_event* public_event) {
    if (public_event == nullptr) return fail(EINVAL);
    auto* event = static_cast<Event*>(public_event);
    complete_event(*event->counted_on, event->join);
    delete event;
    return 0;
}

extern "C" const char* rdma_event_str(rdma_cm_event_type event) {
    // By enum rdma_cm_event_type.
    static constexpr const char* kNames[] = {
        "RDMA_CM_EVENT_ADDR_RESOLVED",   "RDMA_CM_EVENT_ADDR_ERROR",
        "RDMA_CM_EVENT_ROUTE_RESOLVED",  "RDMA_CM_EVENT_ROUTE_ERROR",
        "RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
        "RDMA_CM_EVENT_CONNECT_ERROR",   "RDMA_CM_EVENT_UNREACHABLE",
        "RDMA_CM_EVENT_REJECTED",        "RDMA_CM_EVENT_ESTABLISHED",
        "RDMA_CM_EVENT_DISCONNECTED",    "RDMA_CM_EVENT_DEVICE_REMOVAL",
        "RDMA_CM_EVENT_MULTICAST_JOIN",  "RDMA_CM_EVENT_MULTICAST_ERROR",
        "RDMA_CM_EVENT_ADDR_CHANGE",     "RDMA_CM_EVENT_TIMEWAIT_EXIT",
    };
    auto index = static_cast<std::size_t>(event);
    return index < sizeof kNames / sizeof *kNames ? kNames[index] : "UNKNOWN EVENT";
}

// Making and ending connections.
#include <string.h>

#include <algorithm>

#include "verbs/rdmacm/event.h"
#include "verbs/rdmacm/id.h"
#include "verbs/rdmacm/marshal.h"

namespace rdmalab::rdmacm {

namespace {

constexpr std::uint8_t kRetriesMax = 7;  // a 3-bit field

bool are_depths_valid(const Id& id, const rdma_conn_param* param) {
    if (id.ps != RDMA_PS_TCP) return true;
    if (id.qp == nullptr && param == nullptr) return false;
    if (param == nullptr) return true;
    if (id.device == nullptr) return false;
    bool resources = param->responder_resources == RDMA_MAX_RESP_RES ||
                     param->responder_resources <= id.device->responder_resources_max;
    bool depth = param->initiator_depth == RDMA_MAX_INIT_DEPTH ||
                 param->initiator_depth <= id.device->initiator_depth_max;
    return resources && depth;
}

// 0 or an errno value.
int fill_request(Id& id, const rdma_conn_param* param, abi::CmConnectRequest& request) {
    request.id = id.handle;
    abi::CmConnParam& conn = request.conn;
    conn.responder_resources = id.responder_resources;
    conn.initiator_depth = id.initiator_depth;
    if (id.qp != nullptr) {
        conn.qp_num = id.qp->qp_num;
        conn.qp_type = static_cast<std::uint8_t>(id.qp->qp_type);
        conn.srq = id.qp->srq != nullptr;
    } else if (param != nullptr) {
        conn.qp_num = param->qp_num;
        conn.srq = param->srq;
    }
    request.ece = {.vendor_id = id.local_ece.vendor_id, .options = id.local_ece.options};
    set_private_data(request.private_data, id.connect_data, id.connect_data_length);
    if (param == nullptr) {
        conn.retry_count = conn.rnr_retry_count = kRetriesMax;
        return 0;
    }
    conn.flow_control = param->flow_control;
    conn.retry_count = std::min(param->retry_count, kRetriesMax);
    conn.rnr_retry_count = std::min(param->rnr_retry_count, kRetriesMax);
    bool fits =
        set_private_data(request.private_data, param->private_data, param->private_data_len);
    return fits ? 0 : EINVAL;
}

// What the QP of the id can say about itself; without one the program has told rdma_set_local_ece.
void take_qp_ece(Id& id) {
    if (id.qp == nullptr) return;
    ibv_ece ece{};
    if (ibv_query_ece(id.qp, &ece) == 0) id.local_ece = ece;
}

void choose_depths_to_offer(Id& id, const rdma_conn_param* param) {
    if (id.device == nullptr) return;
    bool has_resources = param != nullptr && param->responder_resources != RDMA_MAX_RESP_RES;
    bool has_depth = param != nullptr && param->initiator_depth != RDMA_MAX_INIT_DEPTH;
    id.responder_resources =
        has_resources ? param->responder_resources : id.device->responder_resources_max;
    id.initiator_depth = has_depth ? param->initiator_depth : id.device->initiator_depth_max;
}

void choose_depths_to_accept(Id& id, const rdma_conn_param* param) {
    if (id.device == nullptr) return;
    id.responder_resources =
        param != nullptr && param->responder_resources != RDMA_MAX_RESP_RES
            ? param->responder_resources
            : std::min(id.responder_resources, id.device->responder_resources_max);
    id.initiator_depth = param != nullptr && param->initiator_depth != RDMA_MAX_INIT_DEPTH
                             ? param->initiator_depth
                             : std::min(id.initiator_depth, id.device->initiator_depth_max);
}

bool has_connected_qp(const Id& id) { return id.qp != nullptr && !is_datagram(id); }

int reject(rdma_cm_id* public_id, const void* data, std::uint8_t length, std::uint16_t reason) {
    Id& id = id_of(public_id);
    abi::CmRejectRequest request{};
    request.id = id.handle;
    request.reason = reason;
    if (!set_private_data(request.private_data, data, length)) return fail(EINVAL);
    return answer(id.session->call(abi::CmOp::kReject, request));
}

}  // namespace

}  // namespace rdmalab::rdmacm

using namespace rdmalab;
using namespace rdmalab::rdmacm;

extern "C" int rdma_connect(rdma_cm_id* public_id, rdma_conn_param* param) {
    Id& id = id_of(public_id);
    if (!are_depths_valid(id, param)) return fail(EINVAL);
    choose_depths_to_offer(id, param);
    take_qp_ece(id);
    id.connect_failed = false;
    abi::CmConnectRequest request{};
    int status = fill_request(id, param, request);
    if (status == 0) status = id.session->call(abi::CmOp::kConnect, request);
    if (status != 0) return fail(status);
    return complete(id);
}

extern "C" int rdma_accept(rdma_cm_id* public_id, rdma_conn_param* param) {
    Id& id = id_of(public_id);
    if (!are_depths_valid(id, param)) return fail(EINVAL);
    choose_depths_to_accept(id, param);
    if (has_connected_qp(id)) {
        ibv_ece peers = id.remote_ece;
        if (peers.vendor_id != 0) ibv_set_ece(id.qp, &peers);
        if (int status = ready_qp(id, id.responder_resources, id.initiator_depth)) {
            return fail(status);
        }
    }
    take_qp_ece(id);
    abi::CmConnectRequest request{};
    int status = fill_request(id, param, request);
    if (status == 0) status = id.session->call(abi::CmOp::kAccept, request);
    if (status != 0) {
        fail_qp(id);
        return fail(status);
    }
    return is_datagram(id) ? 0 : complete(id);
}

extern "C" int rdma_reject(rdma_cm_id* id, const void* data, uint8_t length) {
    return reject(id, data, length, abi::kCmRejectConsumer);
}

extern "C" int rdma_reject_ece(rdma_cm_id* id, const void* data, uint8_t length) {
    return reject(id, data, length, abi::kCmRejectVendorOption);
}

extern "C" int rdma_establish(rdma_cm_id* public_id) {
    Id& id = id_of(public_id);
    if (id.qp != nullptr) return fail(EINVAL);
    int status = id.call(abi::CmOp::kEstablish);
    if (status == 0) id.is_connected = true;
    return answer(status);
}

extern "C" int rdma_disconnect(rdma_cm_id* public_id) {
    Id& id = id_of(public_id);
    if (int status = fail_qp(id)) return fail(status);
    if (int status = id.call(abi::CmOp::kDisconnect)) return fail(status);
    // Without a connection no event would come.
    return id.is_connected && !is_datagram(id) ? complete(id) : 0;
}

extern "C" int rdma_notify(rdma_cm_id* public_id, ibv_event_type event) {
    Id& id = id_of(public_id);
    abi::CmNotifyRequest request{.id = id.handle, .event = static_cast<std::uint32_t>(event)};
    return answer(id.session->call(abi::CmOp::kNotify, request));
}

extern "C" int rdma_set_local_ece(rdma_cm_id* public_id, ibv_ece* ece) {
    if (public_id->qp != nullptr || ece == nullptr || ece->vendor_id == 0 || ece->comp_mask != 0) {
        return fail(EINVAL);
    }
    id_of(public_id).local_ece = *ece;
    return 0;
}

extern "C" int rdma_get_remote_ece(rdma_cm_id* public_id, ibv_ece* ece) {
    if (public_id->qp != nullptr || ece == nullptr) return fail(EINVAL);
    *ece = id_of(public_id).remote_ece;
    ece->comp_mask = 0;
    return 0;
}

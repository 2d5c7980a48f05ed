// Queue pairs, completion queues and shared receive queues of an id.
#include "verbs/qp.h"

#include <string.h>

#include <algorithm>

#include "verbs/rdmacm/event.h"
#include "verbs/rdmacm/id.h"

namespace rdmalab::rdmacm {

namespace {

// What the QP needs for a state. `type` 0: a QP of the program's, of the type of the id.
int init_attributes(Id& id, int type, ibv_qp_state state, ibv_qp_attr& attributes, int& mask) {
    abi::CmInitQpAttrRequest request{.id = id.handle,
                                     .state = static_cast<std::uint32_t>(state),
                                     .qp_type = static_cast<std::uint32_t>(type)};
    abi::CmInitQpAttrReply reply{};
    int status = id.session->call(abi::CmOp::kInitQpAttr, request, reply);
    if (status != 0) return status;
    attributes = verbs::from_abi(reply.attributes);
    attributes.qp_state = state;
    mask = static_cast<int>(reply.mask);
    return 0;
}

int move_to_init(Id& id, ibv_qp& qp) {
    ibv_qp_attr attributes{};
    int mask = 0;
    if (int status = init_attributes(id, qp.qp_type, IBV_QPS_INIT, attributes, mask)) return status;
    return ibv_modify_qp(&qp, &attributes, mask);
}

int move_to_rtr(Id& id, ibv_qp& qp, std::uint8_t responder_resources) {
    ibv_qp_attr attributes{};
    int mask = 0;
    if (int status = init_attributes(id, qp.qp_type, IBV_QPS_RTR, attributes, mask)) return status;
    if (responder_resources != RDMA_MAX_RESP_RES) {
        attributes.max_dest_rd_atomic = responder_resources;
    }
    return ibv_modify_qp(&qp, &attributes, mask);
}

int move_to_rts(Id& id, ibv_qp& qp, std::uint8_t initiator_depth) {
    ibv_qp_attr attributes{};
    int mask = 0;
    if (int status = init_attributes(id, qp.qp_type, IBV_QPS_RTS, attributes, mask)) return status;
    if (initiator_depth != RDMA_MAX_INIT_DEPTH) attributes.max_rd_atomic = initiator_depth;
    return ibv_modify_qp(&qp, &attributes, mask);
}

// A datagram QP needs no peer: it goes all the way.
int ready_datagram_qp(Id& id, ibv_qp& qp) {
    if (int status = move_to_init(id, qp)) return status;
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    if (int status = ibv_modify_qp(&qp, &attributes, IBV_QP_STATE)) return status;
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = 0;
    return ibv_modify_qp(&qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

// A CQ with a channel of its own; 0 or an errno value.
int make_cq(Id& id, std::uint32_t entries, ibv_comp_channel*& channel, ibv_cq*& cq) {
    channel = ibv_create_comp_channel(id.verbs);
    if (channel == nullptr) return errno;
    cq = ibv_create_cq(id.verbs, static_cast<int>(std::max(entries, 1u)), &id, channel, 0);
    if (cq != nullptr) return 0;
    int status = errno;
    ibv_destroy_comp_channel(channel);
    channel = nullptr;
    return status;
}

void destroy_cq(ibv_comp_channel*& channel, ibv_cq*& cq) {
    if (cq != nullptr) ibv_destroy_cq(cq);
    if (channel != nullptr) ibv_destroy_comp_channel(channel);
    cq = nullptr;
    channel = nullptr;
}

void destroy_cqs(Id& id) {
    destroy_cq(id.recv_cq_channel, id.recv_cq);
    destroy_cq(id.send_cq_channel, id.send_cq);
}

int make_missing_cqs(Id& id, ibv_qp_init_attr_ex& init) {
    bool has_send = init.qp_type != IBV_QPT_XRC_RECV;
    bool has_recv = has_send && init.qp_type != IBV_QPT_XRC_SEND;
    if (has_send && init.send_cq == nullptr && id.send_cq == nullptr) {
        int status = make_cq(id, init.cap.max_send_wr, id.send_cq_channel, id.send_cq);
        if (status != 0) return status;
    }
    if (has_recv && init.recv_cq == nullptr && id.recv_cq == nullptr) {
        int status = make_cq(id, init.cap.max_recv_wr, id.recv_cq_channel, id.recv_cq);
        if (status != 0) return status;
    }
    if (init.send_cq == nullptr) init.send_cq = id.send_cq;
    if (init.recv_cq == nullptr) init.recv_cq = id.recv_cq;
    return 0;
}

// 0 or an errno value.
int complete_attributes(Id& id, ibv_qp_init_attr_ex& init) {
    if ((init.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || init.pd == nullptr) {
        init.comp_mask |= IBV_QP_INIT_ATTR_PD;
        init.pd = id.pd;
    } else if (init.pd->context != id.verbs) {
        return EINVAL;
    }
    if (init.qp_type == IBV_QPT_XRC_RECV) {
        if ((init.comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0 || init.xrcd == nullptr) {
            init.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
            init.xrcd = id.session->default_xrcd(*id.device);
            if (init.xrcd == nullptr) return errno;
        }
    } else if (init.srq == nullptr) {
        init.srq = id.srq;
    }
    return make_missing_cqs(id, init);
}

// QPs that need nothing but the classic attributes are made the classic way.
ibv_qp* make_qp(Id& id, ibv_qp_init_attr_ex& init) {
    if (init.comp_mask != IBV_QP_INIT_ATTR_PD) return ibv_create_qp_ex(id.verbs, &init);
    auto& classic = reinterpret_cast<ibv_qp_init_attr&>(init);
    return ibv_create_qp(init.pd, &classic);
}

int create_qp(Id& id, ibv_qp_init_attr_ex& init) {
    if (id.qp != nullptr || id.device == nullptr) return EINVAL;
    int status = complete_attributes(id, init);
    ibv_qp* qp = nullptr;
    if (status == 0) {
        qp = make_qp(id, init);
        status = qp == nullptr ? errno : 0;
    }
    if (status == 0) {
        status = is_datagram(id) ? ready_datagram_qp(id, *qp) : move_to_init(id, *qp);
    }
    if (status != 0) {
        if (qp != nullptr) ibv_destroy_qp(qp);
        destroy_cqs(id);
        return status;
    }
    id.pd = init.pd;
    id.qp = qp;
    return 0;
}

int create_srq(Id& id, ibv_srq_init_attr_ex& init) {
    if (id.srq != nullptr || id.device == nullptr) return EINVAL;
    if ((init.comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || init.pd == nullptr) {
        init.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        init.pd = id.pd;
    }
    bool is_xrc = (init.comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 && init.srq_type == IBV_SRQT_XRC;
    if (is_xrc && ((init.comp_mask & IBV_SRQ_INIT_ATTR_XRCD) == 0 || init.xrcd == nullptr)) {
        init.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
        init.xrcd = id.session->default_xrcd(*id.device);
        if (init.xrcd == nullptr) return errno;
    }
    if (is_xrc && ((init.comp_mask & IBV_SRQ_INIT_ATTR_CQ) == 0 || init.cq == nullptr)) {
        int status = make_cq(id, init.attr.max_wr, id.recv_cq_channel, id.recv_cq);
        if (status != 0) return status;
        init.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
        init.cq = id.recv_cq;
    }
    bool is_classic = (init.comp_mask & ~IBV_SRQ_INIT_ATTR_PD) == 0;
    ibv_srq_init_attr classic{.srq_context = init.srq_context, .attr = init.attr};
    ibv_srq* srq =
        is_classic ? ibv_create_srq(init.pd, &classic) : ibv_create_srq_ex(id.verbs, &init);
    if (srq == nullptr) {
        int status = errno;
        if (is_xrc) destroy_cq(id.recv_cq_channel, id.recv_cq);
        return status;
    }
    if (is_classic) init.attr = classic.attr;
    if (id.pd == nullptr || init.pd != id.pd) id.pd = init.pd;
    id.srq = srq;
    return 0;
}

}  // namespace

int ready_qp(Id& id, std::uint8_t responder_resources, std::uint8_t initiator_depth) {
    // The INIT attributes once more: what the peer may do with our memory is known only now.
    if (int status = move_to_init(id, *id.qp)) return status;
    if (int status = move_to_rtr(id, *id.qp, responder_resources)) return status;
    return move_to_rts(id, *id.qp, initiator_depth);
}

int fail_qp(Id& id) {
    if (id.qp == nullptr || is_datagram(id)) return 0;
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    return ibv_modify_qp(id.qp, &attributes, IBV_QP_STATE);
}

}  // namespace rdmalab::rdmacm

using namespace rdmalab;
using namespace rdmalab::rdmacm;

extern "C" int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* init) {
    return answer(create_qp(id_of(id), *init));
}

extern "C" int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* init) {
    ibv_qp_init_attr_ex extended{};
    memcpy(&extended, init, sizeof *init);
    extended.comp_mask = IBV_QP_INIT_ATTR_PD;
    extended.pd = pd;
    int status = create_qp(id_of(id), extended);
    memcpy(init, &extended, sizeof *init);
    return answer(status);
}

extern "C" void rdma_destroy_qp(rdma_cm_id* public_id) {
    Id& id = id_of(public_id);
    if (id.qp == nullptr) return;
    ibv_destroy_qp(id.qp);
    id.qp = nullptr;
    // The CQ of an XRC SRQ goes with that.
    if (id.srq == nullptr || id.qp_type != IBV_QPT_XRC_RECV) destroy_cqs(id);
}

extern "C" int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* init) {
    return answer(create_srq(id_of(id), *init));
}

extern "C" int rdma_create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* init) {
    ibv_srq_init_attr_ex extended{};
    extended.srq_context = init->srq_context;
    extended.attr = init->attr;
    extended.comp_mask = IBV_SRQ_INIT_ATTR_PD;
    extended.pd = pd;
    if (id->qp_type == IBV_QPT_XRC_RECV) {
        extended.comp_mask |= IBV_SRQ_INIT_ATTR_TYPE;
        extended.srq_type = IBV_SRQT_XRC;
    }
    int status = create_srq(id_of(id), extended);
    if (status == 0) init->attr = extended.attr;
    return answer(status);
}

extern "C" void rdma_destroy_srq(rdma_cm_id* public_id) {
    Id& id = id_of(public_id);
    if (id.srq == nullptr) return;
    ibv_destroy_srq(id.srq);
    id.srq = nullptr;
    if (id.qp == nullptr) destroy_cqs(id);
}

extern "C" int rdma_init_qp_attr(rdma_cm_id* public_id, ibv_qp_attr* attributes, int* mask) {
    Id& id = id_of(public_id);
    return answer(init_attributes(id, 0, attributes->qp_state, *attributes, *mask));
}

// Attributes in the structs of verbs.h and in those of the card.
#include <string.h>

#include "verbs/qp.h"

namespace rdmalab::verbs {

abi::AhAttributes to_abi(const ibv_ah_attr& in) {
    abi::AhAttributes out{};
    memcpy(out.dgid, in.grh.dgid.raw, sizeof out.dgid);
    out.flow_label = in.grh.flow_label;
    out.sgid_index = in.grh.sgid_index;
    out.hop_limit = in.grh.hop_limit;
    out.traffic_class = in.grh.traffic_class;
    out.is_global = in.is_global;
    out.service_level = in.sl;
    out.static_rate = in.static_rate;
    out.port = in.port_num;
    return out;
}

ibv_ah_attr from_abi(const abi::AhAttributes& in) {
    ibv_ah_attr out{};
    memcpy(out.grh.dgid.raw, in.dgid, sizeof in.dgid);
    out.grh.flow_label = in.flow_label;
    out.grh.sgid_index = in.sgid_index;
    out.grh.hop_limit = in.hop_limit;
    out.grh.traffic_class = in.traffic_class;
    out.is_global = in.is_global;
    out.sl = in.service_level;
    out.static_rate = in.static_rate;
    out.port_num = in.port;
    return out;
}

abi::QpAttributes to_abi(const ibv_qp_attr& in) {
    abi::QpAttributes out{};
    out.state = in.qp_state;
    out.current_state = in.cur_qp_state;
    out.path_mtu = in.path_mtu;
    out.qkey = in.qkey;
    out.rq_psn = in.rq_psn;
    out.sq_psn = in.sq_psn;
    out.destination_qpn = in.dest_qp_num;
    out.access = in.qp_access_flags;
    out.ah = to_abi(in.ah_attr);
    out.pkey_index = in.pkey_index;
    out.sqd_async_notify = in.en_sqd_async_notify;
    out.sq_draining = in.sq_draining;
    out.reads_outstanding = in.max_rd_atomic;
    out.responder_resources = in.max_dest_rd_atomic;
    out.min_rnr_timer = in.min_rnr_timer;
    out.port = in.port_num;
    out.timeout = in.timeout;
    out.retry_count = in.retry_cnt;
    out.rnr_retry = in.rnr_retry;
    out.rate_limit_kbps = in.rate_limit;
    out.send_wr_max = in.cap.max_send_wr;
    out.recv_wr_max = in.cap.max_recv_wr;
    out.send_sge_max = in.cap.max_send_sge;
    out.recv_sge_max = in.cap.max_recv_sge;
    out.inline_max = in.cap.max_inline_data;
    return out;
}

ibv_qp_attr from_abi(const abi::QpAttributes& in) {
    ibv_qp_attr out{};
    out.qp_state = static_cast<ibv_qp_state>(in.state);
    out.cur_qp_state = static_cast<ibv_qp_state>(in.state);
    out.path_mtu = static_cast<ibv_mtu>(in.path_mtu);
    out.path_mig_state = IBV_MIG_MIGRATED;
    out.qkey = in.qkey;
    out.rq_psn = in.rq_psn;
    out.sq_psn = in.sq_psn;
    out.dest_qp_num = in.destination_qpn;
    out.qp_access_flags = in.access;
    out.ah_attr = from_abi(in.ah);
    out.pkey_index = in.pkey_index;
    out.en_sqd_async_notify = in.sqd_async_notify;
    out.sq_draining = in.sq_draining;
    out.max_rd_atomic = in.reads_outstanding;
    out.max_dest_rd_atomic = in.responder_resources;
    out.min_rnr_timer = in.min_rnr_timer;
    out.port_num = in.port;
    out.timeout = in.timeout;
    out.retry_cnt = in.retry_count;
    out.rnr_retry = in.rnr_retry;
    out.rate_limit = in.rate_limit_kbps;
    return out;
}

}  // namespace rdmalab::verbs

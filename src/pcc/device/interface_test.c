/* Everything that programs written for the interface name: it must exist, with these values, sizes
 * and argument types, in each release that can be asked for. Compiled, not run. */
#include <doca_pcc_dev.h>
#include <doca_pcc_dev_algo_access.h>
#include <doca_pcc_dev_event.h>
#include <doca_pcc_dev_services.h>
#include <doca_pcc_dev_utils.h>
#include <doca_pcc_np_dev.h>
#include <doca_version.h>
#include <dpaintrin.h>

#pragma clang diagnostic push

_Static_assert(DOCA_PCC_DEV_LOG_MAX_RATE == 20 && DOCA_PCC_DEV_MAX_RATE == 1048576, "rates");
_Static_assert(DOCA_PCC_DEV_DEFAULT_RATE == 4096, "rates");
_Static_assert(DOCA_PCC_DEV_MAX_NUM_PORTS == 4 && DOCA_PCC_DEV_MAX_NUM_USER_SLOTS == 8, "limits");
_Static_assert(DOCA_PCC_DEV_MAX_NUM_ALGOS == 8, "limits");
_Static_assert(DOCA_PCC_DEV_ALGO_SLOT_INTERNAL == 15, "slots");
_Static_assert(DOCA_PCC_DEV_ALGO_INDEX_INTERNAL == 15, "slots");
_Static_assert(DOCA_PCC_DEV_ACK_NACK_TX_EVENT_DISABLED_SUPPORTED == 0, "BF3");
_Static_assert(DOCA_PCC_DEV_STATUS_OK == 0 && DOCA_PCC_DEV_STATUS_FAIL == 1, "status");
_Static_assert(DOCA_PCC_DEV_EVNT_NULL == 0 && DOCA_PCC_DEV_EVNT_FW == 1, "events");
_Static_assert(DOCA_PCC_DEV_EVNT_ROCE_CNP == 2 && DOCA_PCC_DEV_EVNT_ROCE_TX == 3, "events");
_Static_assert(DOCA_PCC_DEV_EVNT_ROCE_ACK == 4 && DOCA_PCC_DEV_EVNT_ROCE_NACK == 5, "events");
_Static_assert(DOCA_PCC_DEV_EVNT_RTT == 6 && DOCA_PCC_DEV_EVNT_ROCE_TX_FOR_ACK_NACK == 31,
               "events");
_Static_assert(DOCA_PCC_DEV_NACK_EVNT_NULL == 0 && DOCA_PCC_DEV_NACK_EVNT_RNR == 1, "NACK");
_Static_assert(DOCA_PCC_DEV_NACK_EVNT_OOS == 2 && DOCA_PCC_DEV_NACK_EVNT_DUP_READ == 3, "NACK");
_Static_assert(DOCA_PCC_DEV_TX_FLAG_ACK_EXPECTED == 1 && DOCA_PCC_DEV_TX_FLAG_OVERLOADED == 2,
               "TX");
_Static_assert(DOCA_PCC_DEV_TX_FLAG_RTT_REQ_SENT == 4, "TX");
_Static_assert(DOCA_PCC_DEV_NIC_COUNTER_TYPE_RX_BYTES == 1, "counters");
_Static_assert(DOCA_PCC_DEV_NIC_COUNTER_TYPE_TX_BYTES == 2, "counters");
_Static_assert(DOCA_PCC_DEV_GET_PORT_COUNTER_ID(3, 2, 1) == 0x1000123, "counters");
_Static_assert(DOCA_PCC_DEV_ALGO_SLOT(DOCA_PCC_DEV_TARGET_APP_NP, 5) == 0x10005, "slots");
#if RDMALAB_DOCA_VERSION >= 304
_Static_assert(DOCA_PCC_DEV_MAX_NUM_PARAMS_PER_ALGO == 0x2C, "3.4");
#elif RDMALAB_DOCA_VERSION >= 300
_Static_assert(DOCA_PCC_DEV_MAX_NUM_PARAMS_PER_ALGO == 0x26, "3.0");
#else
_Static_assert(DOCA_PCC_DEV_MAX_NUM_PARAMS_PER_ALGO == 0x1E, "2.x");
_Static_assert(DOCA_PCC_DEV_MAX_NUM_COUNTERS_PER_ALGO == 0xF, "2.x");
#endif
_Static_assert(sizeof(struct mlnx_cc_event_t) == sizeof(doca_pcc_dev_event_t), "names");
_Static_assert(sizeof(doca_pcc_dev_event_t) == 44, "12 reserved bytes, 4 words, 16 bytes");
_Static_assert(__builtin_offsetof(doca_pcc_dev_event_t, ev_attr) == 12, "event");
_Static_assert(__builtin_offsetof(doca_pcc_dev_event_t, ev_spec_attr) == 28, "event");
_Static_assert(sizeof(doca_pcc_dev_algo_ctxt_t) == 48, "48 bytes of a flow");
_Static_assert(sizeof(doca_pcc_dev_attr_t) == 4, "attributes");

static const char name[] = "everything";
static uint32_t ids[1], values[1];

void doca_pcc_dev_user_init(uint32_t* disable_event_bitmask) {
    struct doca_pcc_dev_algo_meta_data meta = {.algo_id = 1,
                                               .algo_major_version = 1,
                                               .algo_minor_version = 0,
                                               .algo_desc_size = sizeof(name),
                                               .algo_desc_addr = (uint64_t)name};
    doca_pcc_dev_error_t status = doca_pcc_dev_algo_init_metadata(0, &meta, 1, 1);
    status |= doca_pcc_dev_algo_init_param(0, 0, 5, 10, 1, 1, sizeof(name), (uint64_t)name);
    status |= doca_pcc_dev_algo_init_counter(0, 0, UINT32_MAX, 2, sizeof(name), (uint64_t)name);
    for (int port_num = 0; port_num < DOCA_PCC_DEV_MAX_NUM_PORTS; ++port_num)
        status |= doca_pcc_dev_init_algo_slot(port_num, 0, 0, 1);
    ids[0] = DOCA_PCC_DEV_GET_PORT_COUNTER_ID(0, DOCA_PCC_DEV_NIC_COUNTER_TYPE_TX_BYTES, 0);
    status |= doca_pcc_dev_nic_counters_config(ids, 1, values);
    *disable_event_bitmask = (1 << DOCA_PCC_DEV_EVNT_ROCE_ACK);
    doca_pcc_dev_printf("%s, mask=0x%x status=%d\n", __func__, *disable_event_bitmask, status);
    doca_pcc_dev_trace_5(0, 1, 2, 3, 4, 5);
    doca_pcc_dev_trace_flush();
}

static uint64_t read_event(doca_pcc_dev_event_t* event) {
    doca_pcc_dev_event_general_attr_t attr = doca_pcc_dev_get_ev_attr(event);
    doca_pcc_dev_roce_tx_cntrs_t cntrs = doca_pcc_dev_get_roce_tx_cntrs(event);
    doca_pcc_dev_ack_nack_cnp_extra_t extra = doca_pcc_dev_get_ack_nack_cnp_extra(event);
    uint64_t sum = attr.ev_type + attr.ev_subtype + attr.port_num + attr.flags;
    sum += cntrs.sent_32bytes + cntrs.sent_pkts + extra.num_coalesced;
    sum += doca_pcc_dev_get_flowtag(event) + doca_pcc_dev_get_sn(event);
    sum += doca_pcc_dev_get_timestamp(event) + doca_pcc_dev_get_ttl_hoplimit(event);
    sum += doca_pcc_dev_get_flow_qpn(event) + doca_pcc_dev_get_fw_settings(event, 2);
    sum += doca_pcc_dev_get_roce_first_timestamp(event) + doca_pcc_dev_get_roce_ack_first_sn(event);
    sum += doca_pcc_dev_get_rtt_req_send_timestamp(event);
    sum += doca_pcc_dev_get_rtt_req_recv_timestamp(event);
    sum += doca_pcc_dev_get_rtt_resp_send_timestamp(event);
    sum += doca_pcc_dev_get_rtt_raw_data(event)[0] + doca_pcc_dev_get_rtt_raw_data_size(event);
    sum += doca_pcc_dev_get_rtt_np_rx_byte_counter(event);
    sum += doca_pcc_dev_get_rtt_resp_version(event) + doca_pcc_dev_get_rtt_resp_port_type(event);
    return sum;
}

void doca_pcc_dev_user_algo(doca_pcc_dev_algo_ctxt_t* algo_ctxt, doca_pcc_dev_event_t* event,
                            const doca_pcc_dev_attr_t* attr, doca_pcc_dev_results_t* results) {
    uint32_t port_num = doca_pcc_dev_get_ev_attr(event).port_num;
    uint32_t* param = doca_pcc_dev_get_algo_params(port_num, attr->algo_slot);
    uint32_t* counter = doca_pcc_dev_get_counters(port_num, attr->algo_slot);
    if (attr->algo_slot == DOCA_PCC_DEV_ALGO_SLOT_INTERNAL) {
        doca_pcc_dev_default_internal_algo(algo_ctxt, event, attr, results);
        return;
    }
    counter[0] += doca_pcc_dev_get_algo_params_num(port_num, 0) +
                  doca_pcc_dev_get_counters_num(port_num, 0) +
                  doca_pcc_dev_get_algo_index(port_num, 0);
    algo_ctxt->data[0] = doca_pcc_dev_fxp_mult(param[0], (uint32_t)read_event(event));
    algo_ctxt->data[1] = doca_pcc_dev_fxp_recip(3) + doca_pcc_dev_fxp_power2(1) +
                         doca_pcc_dev_fxp_log2(1 << 17) + doca_pcc_dev_fls(9);
    algo_ctxt->data[2] = (uint32_t)doca_pcc_dev_mult(2, 3) + doca_pcc_dev_get_timer_lo();
    algo_ctxt->data[3] = (uint32_t)(doca_pcc_dev_get_timer() + doca_pcc_dev_get_thread_time());
    algo_ctxt->data[4] = doca_pcc_dev_thread_rank() + doca_pcc_dev_get_logical_ports();
    algo_ctxt->data[5] = doca_pcc_dev_get_port_planes(0) + doca_pcc_dev_get_port_speed(0);
    doca_pcc_dev_nic_counters_sample();
    doca_pcc_dev_fence_all();
    doca_pcc_dev_fence_memory();
    doca_pcc_dev_fence_io();
    doca_pcc_dev_fence_w_r();
    __dpa_thread_fence(__DPA_MEMORY, __DPA_W, __DPA_RW);
    results->rate = DOCA_PCC_DEV_MAX_RATE;
    results->rtt_req = 1;
    results->probe_req = results->rtt_req;
    results->probe_type_slot = results->credits = results->reload_credits = 0;
    /* As programs for DOCA before 2.8 read the QPN. */
    algo_ctxt->data[6] = __builtin_bswap32(*(uint32_t*)((char*)&event->ev_spec_attr.roce_tx + 8));
    if (DOCA_VERSION_LTE_CURRENT(2, 9, 0) || DOCA_VERSION_EQ_CURRENT(3, 1, 0))
        algo_ctxt->data[7] = (uint32_t)DOCA_CURRENT_VERSION_NUM;
}

doca_pcc_dev_error_t doca_pcc_dev_user_set_algo_params(uint32_t port_num, uint32_t algo_slot,
                                                       uint32_t param_id_base, uint32_t param_num,
                                                       const uint32_t* new_param_values,
                                                       uint32_t* params) {
    (void)port_num, (void)algo_slot, (void)params;
    return param_id_base + param_num > 1 || !new_param_values ? DOCA_PCC_DEV_STATUS_FAIL
                                                              : DOCA_PCC_DEV_STATUS_OK;
}

doca_pcc_dev_error_t doca_pcc_dev_user_mailbox_handle(void* request, uint32_t request_size,
                                                      uint32_t max_response_size, void* response,
                                                      uint32_t* response_size) {
    (void)request, (void)request_size, (void)max_response_size, (void)response;
    *response_size = 0;
    return DOCA_PCC_DEV_STATUS_OK;
}

void doca_pcc_dev_user_port_info_changed(uint32_t portid) { (void)portid; }

doca_pcc_dev_error_t doca_pcc_dev_np_user_packet_handler(
    struct doca_pcc_np_dev_request_packet* in, struct doca_pcc_np_dev_response_packet* out) {
    uint8_t present;
    uint16_t tci;
    doca_pcc_np_dev_get_vlan_tci(in, &present, &tci);
    out->size = (uint32_t)(doca_pcc_np_dev_get_raw_packet_size(in) +
                           doca_pcc_np_dev_get_l4_size(in) + doca_pcc_np_dev_get_payload_size(in));
    out->data[0] =
        (uint8_t)(doca_pcc_np_dev_get_raw_packet(in)[0] + doca_pcc_np_dev_get_l4_header(in)[0] +
                  doca_pcc_np_dev_get_payload(in)[0] + present + tci);
    out->data[1] = (uint8_t)(doca_pcc_np_dev_get_port_num(in) + doca_pcc_np_dev_get_plane_num(in) +
                             doca_pcc_np_dev_get_packet_probe_type_slot(in));
    doca_pcc_np_dev_set_response_prio(out, 3);
    return doca_pcc_np_dev_get_max_response_size(out) < out->size ? DOCA_PCC_DEV_STATUS_FAIL
                                                                  : DOCA_PCC_DEV_STATUS_OK;
}

#pragma clang diagnostic pop

/* Accessors of events. What an event of another type would hold is undefined. */
#pragma once

#include <doca_pcc_dev_data_structures.h>
#include <stddef.h>
#include <stdint.h>

/* One word of an event in the order of this processor. */
FORCE_INLINE uint32_t rdmalab_pcc_word(const void* word) {
    uint32_t value;
    __builtin_memcpy(&value, word, sizeof value);
    return __builtin_bswap32(value);
}

FORCE_INLINE doca_pcc_dev_event_general_attr_t
doca_pcc_dev_get_ev_attr(doca_pcc_dev_event_t* event) {
    const uint32_t word = rdmalab_pcc_word(&event->ev_attr);
    doca_pcc_dev_event_general_attr_t attr;
    __builtin_memcpy(&attr, &word, sizeof attr);
    return attr;
}

FORCE_INLINE uint32_t doca_pcc_dev_get_flowtag(doca_pcc_dev_event_t* event) {
    return rdmalab_pcc_word(&event->flow_tag);
}

FORCE_INLINE uint32_t doca_pcc_dev_get_sn(doca_pcc_dev_event_t* event) {
    return rdmalab_pcc_word(&event->sn);
}

/* Nanoseconds, modulo 2^32. */
FORCE_INLINE uint32_t doca_pcc_dev_get_timestamp(doca_pcc_dev_event_t* event) {
    return rdmalab_pcc_word(&event->timestamp);
}

/* Not delivered to this target. */
FORCE_INLINE uint32_t doca_pcc_dev_get_ttl_hoplimit(doca_pcc_dev_event_t* event) {
    (void)event;
    return 0;
}

/* TX events only. */
FORCE_INLINE uint32_t doca_pcc_dev_get_flow_qpn(doca_pcc_dev_event_t* event) {
    return rdmalab_pcc_word(&event->ev_spec_attr.roce_tx.extra) & 0xFFFFFF;
}

FORCE_INLINE uint32_t doca_pcc_dev_get_fw_settings(doca_pcc_dev_event_t* event, int n) {
    return rdmalab_pcc_word(&event->ev_spec_attr.fw_data.data[n]);
}

/* TX, ACK, NACK and CNP: the time of the first thing that the event stands for. */
FORCE_INLINE uint32_t doca_pcc_dev_get_roce_first_timestamp(doca_pcc_dev_event_t* event) {
    return rdmalab_pcc_word(&event->ev_spec_attr.roce_tx.first_timestamp);
}

FORCE_INLINE doca_pcc_dev_roce_tx_cntrs_t
doca_pcc_dev_get_roce_tx_cntrs(doca_pcc_dev_event_t* event) {
    const uint32_t word = rdmalab_pcc_word(&event->ev_spec_attr.roce_tx.cntrs);
    doca_pcc_dev_roce_tx_cntrs_t cntrs;
    __builtin_memcpy(&cntrs, &word, sizeof cntrs);
    return cntrs;
}

FORCE_INLINE uint32_t doca_pcc_dev_get_roce_ack_first_sn(doca_pcc_dev_event_t* event) {
    return rdmalab_pcc_word(&event->ev_spec_attr.ack_nack_cnp.first_sn);
}

FORCE_INLINE doca_pcc_dev_ack_nack_cnp_extra_t
doca_pcc_dev_get_ack_nack_cnp_extra(doca_pcc_dev_event_t* event) {
    const uint32_t word = rdmalab_pcc_word(&event->ev_spec_attr.ack_nack_cnp.extra);
    doca_pcc_dev_ack_nack_cnp_extra_t extra;
    __builtin_memcpy(&extra, &word, sizeof extra);
    return extra;
}

FORCE_INLINE uint32_t doca_pcc_dev_get_rtt_req_send_timestamp(doca_pcc_dev_event_t* event) {
    return rdmalab_pcc_word(&event->ev_spec_attr.rtt_tstamp.req_send_timestamp);
}

FORCE_INLINE uint32_t doca_pcc_dev_get_rtt_req_recv_timestamp(doca_pcc_dev_event_t* event) {
    return rdmalab_pcc_word(&event->ev_spec_attr.rtt_tstamp.req_recv_timestamp);
}

FORCE_INLINE uint32_t doca_pcc_dev_get_rtt_resp_send_timestamp(doca_pcc_dev_event_t* event) {
    return rdmalab_pcc_word(&event->ev_spec_attr.rtt_tstamp.resp_send_timestamp);
}

/* The three words of a probe's answer as they came, in network byte order. */
FORCE_INLINE unsigned char* doca_pcc_dev_get_rtt_raw_data(doca_pcc_dev_event_t* event) {
    return (unsigned char*)&event->ev_spec_attr.rtt_tstamp;
}

FORCE_INLINE size_t doca_pcc_dev_get_rtt_raw_data_size(doca_pcc_dev_event_t* event) {
    (void)event;
    return 12;
}

/* Not delivered to this target. */
FORCE_INLINE uint32_t doca_pcc_dev_get_rtt_np_rx_byte_counter(doca_pcc_dev_event_t* event) {
    (void)event;
    return 0;
}

FORCE_INLINE uint32_t doca_pcc_dev_get_rtt_resp_version(doca_pcc_dev_event_t* event) {
    (void)event;
    return 0;
}

FORCE_INLINE uint32_t doca_pcc_dev_get_rtt_resp_port_type(doca_pcc_dev_event_t* event) {
    (void)event;
    return 0;
}

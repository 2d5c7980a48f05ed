/* Events, flow contexts and attributes as the card lays them out: words of 32 bits in network byte
 * order. Read events by the accessors of doca_pcc_dev_event.h. */
#pragma once

#include <doca_pcc_dev_types.h>
#include <stdint.h>

struct mlnx_cc_event_general_attr_t {
    uint32_t ev_type : 8;
    uint32_t ev_subtype : 8;
    uint32_t port_num : 8;
    uint32_t flags : 8;
};

struct mlnx_cc_roce_tx_cntrs_t {
    uint32_t sent_32bytes : 16;
    uint32_t sent_pkts : 16;
};

struct mlnx_cc_roce_tx_extra_t {
    uint32_t flow_qpn : 24;
    uint32_t reserved : 8;
};

struct mlnx_cc_roce_tx_t {
    uint32_t first_timestamp;
    struct mlnx_cc_roce_tx_cntrs_t cntrs;
    struct mlnx_cc_roce_tx_extra_t extra;
    uint32_t reserved;
};

struct mlnx_cc_ack_nack_cnp_extra_t {
    uint32_t num_coalesced : 16;
    uint32_t reserved : 16;
};

struct mlnx_cc_ack_nack_cnp_t {
    uint32_t first_timestamp;
    uint32_t first_sn;
    struct mlnx_cc_ack_nack_cnp_extra_t extra;
    uint32_t reserved;
};

struct mlnx_cc_rtt_tstamp_t {
    uint32_t req_send_timestamp;
    uint32_t req_recv_timestamp;
    uint32_t resp_send_timestamp;
    uint32_t reserved;
};

struct mlnx_cc_fw_data_t {
    uint32_t data[3];
    uint32_t reserved;
};

union mlnx_cc_event_spec_attr_t {
    struct mlnx_cc_roce_tx_t roce_tx;
    struct mlnx_cc_ack_nack_cnp_t ack_nack_cnp;
    struct mlnx_cc_rtt_tstamp_t rtt_tstamp;
    struct mlnx_cc_fw_data_t fw_data;
};

struct mlnx_cc_event_t {
    uint32_t reserved[3];
    struct mlnx_cc_event_general_attr_t ev_attr;
    uint32_t flow_tag;
    uint32_t sn;
    uint32_t timestamp; /* ns */
    union mlnx_cc_event_spec_attr_t ev_spec_attr;
};

/* State of a flow: zeroed for a new one, else what the algorithm left there. */
struct mlnx_cc_algo_ctxt_t {
    uint32_t data[12];
};

struct mlnx_cc_attr_t {
    uint32_t algo_slot : 4;
    uint32_t overload : 1;
    uint32_t reserved : 27;
};

typedef struct mlnx_cc_event_general_attr_t doca_pcc_dev_event_general_attr_t;
typedef struct mlnx_cc_roce_tx_cntrs_t doca_pcc_dev_roce_tx_cntrs_t;
typedef struct mlnx_cc_roce_tx_t doca_pcc_dev_roce_tx_t;
typedef struct mlnx_cc_ack_nack_cnp_extra_t doca_pcc_dev_ack_nack_cnp_extra_t;
typedef struct mlnx_cc_ack_nack_cnp_t doca_pcc_dev_ack_nack_cnp_t;
typedef struct mlnx_cc_rtt_tstamp_t doca_pcc_dev_rtt_tstamp_t;
typedef struct mlnx_cc_fw_data_t doca_pcc_dev_fw_data_t;
typedef struct mlnx_cc_event_t doca_pcc_dev_event_t;
typedef struct mlnx_cc_algo_ctxt_t doca_pcc_dev_algo_ctxt_t;
typedef struct mlnx_cc_attr_t doca_pcc_dev_attr_t;

/* Ports and their counters. */
#pragma once

#include <doca_pcc_dev_types.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    DOCA_PCC_DEV_NIC_COUNTER_TYPE_RX_BYTES = 1,
    DOCA_PCC_DEV_NIC_COUNTER_TYPE_TX_BYTES = 2,
} doca_pcc_dev_nic_counter_type_enum;

#define DOCA_PCC_DEV_GET_PORT_COUNTER_ID(port, type, plane)                                     \
    ((uint32_t)(((port)&0xF) | (((uint32_t)(type)&0xF) << 4) | (((uint32_t)(plane)&0xF) << 8) | \
                (UINT32_C(1) << 24)))

/* From now on doca_pcc_dev_nic_counters_sample writes the counters `ids` to `values`, modulo 2^32.
 * One configuration at a time. */
doca_pcc_dev_error_t doca_pcc_dev_nic_counters_config(uint32_t* ids, uint32_t num,
                                                      uint32_t* values);
doca_pcc_dev_error_t doca_pcc_dev_nic_counters_sample(void);

/* Bit i is set when port i exists. */
uint32_t doca_pcc_dev_get_logical_ports(void);
uint8_t doca_pcc_dev_get_port_planes(uint32_t port);
/* Gb/s */
uint32_t doca_pcc_dev_get_port_speed(uint32_t port);

#ifdef __cplusplus
}
#endif

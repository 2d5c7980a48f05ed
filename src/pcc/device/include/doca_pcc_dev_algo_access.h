/* Registration of algorithms, their parameters and counters. To be called by
 * doca_pcc_dev_user_init; the getters by anybody. */
#pragma once

#include <doca_pcc_dev_types.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DOCA_PCC_DEV_TARGET_APP_RP (0)
#define DOCA_PCC_DEV_TARGET_APP_NP (1)
#define DOCA_PCC_DEV_ALGO_SLOT(app, slot) ((uint32_t)(app) << 16 | ((uint32_t)(slot)&0xFFFF))

struct doca_pcc_dev_algo_meta_data {
    uint32_t algo_id;
    uint32_t algo_major_version;
    uint32_t algo_minor_version;
    uint32_t algo_desc_size; /* bytes of text at algo_desc_addr */
    uint64_t algo_desc_addr;
};

doca_pcc_dev_error_t doca_pcc_dev_algo_init_metadata(uint32_t algo_idx,
                                                     const struct doca_pcc_dev_algo_meta_data* meta,
                                                     uint32_t param_num, uint32_t counter_num);

/* Permissions: bit 0 the host may set it, bit 1 the host may reset it. */
doca_pcc_dev_error_t doca_pcc_dev_algo_init_param(uint32_t algo_idx, uint32_t param_id,
                                                  uint32_t default_value, uint32_t max_value,
                                                  uint32_t min_value, uint32_t permissions,
                                                  uint32_t desc_size, uint64_t desc_addr);
doca_pcc_dev_error_t doca_pcc_dev_algo_init_counter(uint32_t algo_idx, uint32_t counter_id,
                                                    uint32_t max_value, uint32_t permissions,
                                                    uint32_t desc_size, uint64_t desc_addr);
doca_pcc_dev_error_t doca_pcc_dev_init_algo_slot(uint32_t port_num, uint32_t algo_slot,
                                                 uint32_t algo_idx, uint8_t algo_enable);

/* Values of the algorithm in a slot; NULL or 0 when there is none. */
uint32_t* doca_pcc_dev_get_algo_params(uint32_t port_num, uint32_t algo_slot);
uint32_t doca_pcc_dev_get_algo_params_num(uint32_t port_num, uint32_t algo_slot);
uint32_t* doca_pcc_dev_get_counters(uint32_t port_num, uint32_t algo_slot);
uint32_t doca_pcc_dev_get_counters_num(uint32_t port_num, uint32_t algo_slot);
uint32_t doca_pcc_dev_get_algo_index(uint32_t port_num, uint32_t algo_slot);

#ifdef __cplusplus
}
#endif

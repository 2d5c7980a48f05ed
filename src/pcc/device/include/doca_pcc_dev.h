/* The programming interface of congestion control algorithms, reaction point. Names, layouts and
 * constants are those of DOCA PCC, so that programs written for it compile unmodified:
 *
 *   cc -std=gnu11 -O2 -shared -fPIC -D__NV_DPA_BF3=1 -D__NV_DPA=__NV_DPA_BF3 \
 *      -I .../include my_algorithm.c -o my_algorithm.so
 *
 * The result runs in the process that `pcc --algo my_algorithm.so` starts, on the events of a
 * software card. A program supplies the functions under "supplied by the user" and may call all
 * others. */
#pragma once

#include <doca_pcc_dev_common.h>
#include <doca_pcc_dev_data_structures.h>
#include <doca_pcc_dev_services.h>
#include <doca_pcc_dev_utils.h>
#include <rdmalab_pcc_layout.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- Supplied by the user */

/* An event of a flow. `algo_ctxt` is the flow's own. `results` comes with the rate of the flow's
 * last answer (DOCA_PCC_DEV_MAX_RATE at first) and rtt_req 0. */
void doca_pcc_dev_user_algo(doca_pcc_dev_algo_ctxt_t* algo_ctxt, doca_pcc_dev_event_t* event,
                            const doca_pcc_dev_attr_t* attr, doca_pcc_dev_results_t* results);

/* Once, before all else. Bit n of the mask suppresses events of type n. */
void doca_pcc_dev_user_init(uint32_t* disable_event_bitmask);

/* The host wants to set parameters id_base .. id_base + num - 1. After OK the new values are copied
 * to `params`. */
doca_pcc_dev_error_t doca_pcc_dev_user_set_algo_params(uint32_t port_num, uint32_t algo_slot,
                                                       uint32_t param_id_base, uint32_t param_num,
                                                       const uint32_t* new_param_values,
                                                       uint32_t* params);

/* A request of the host; may be absent. */
__attribute__((weak)) doca_pcc_dev_error_t doca_pcc_dev_user_mailbox_handle(
    void* request, uint32_t request_size, uint32_t max_response_size, void* response,
    uint32_t* response_size);

/* A port has another speed, or has come or gone; may be absent. */
__attribute__((weak)) void doca_pcc_dev_user_port_info_changed(uint32_t portid);

/* --- Supplied by the library */

/* The built-in DCQCN, for flows in DOCA_PCC_DEV_ALGO_SLOT_INTERNAL. */
void doca_pcc_dev_default_internal_algo(doca_pcc_dev_algo_ctxt_t* algo_ctxt,
                                        doca_pcc_dev_event_t* event,
                                        const doca_pcc_dev_attr_t* attr,
                                        doca_pcc_dev_results_t* results);

#ifdef __cplusplus
}
#endif

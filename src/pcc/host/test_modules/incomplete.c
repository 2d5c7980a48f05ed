/* An algorithm that lacks doca_pcc_dev_user_set_algo_params. */
#include <doca_pcc_dev.h>

void doca_pcc_dev_user_init(uint32_t* disable_event_bitmask) { *disable_event_bitmask = 0; }
void doca_pcc_dev_user_algo(doca_pcc_dev_algo_ctxt_t* algo_ctxt, doca_pcc_dev_event_t* event,
                            const doca_pcc_dev_attr_t* attr, doca_pcc_dev_results_t* results) {
    doca_pcc_dev_default_internal_algo(algo_ctxt, event, attr, results);
}

/* Algorithms that do what none should, for tests. -DMISDEED picks one: it is committed at the first
 * CNP, so that a flow can be well for a while. */
#include <doca_pcc_dev.h>
#include <doca_pcc_dev_algo_access.h>
#include <doca_pcc_dev_event.h>

#define CRASH 1
#define LOOP 2
#define RATE_ZERO 3
#define RATE_ABOVE 4
#define CRASH_IN_INIT 5
#define LOOP_IN_INIT 6
#define OVERFLOW_STACK 7

static int* volatile nowhere;
static volatile uint32_t spins;

static uint32_t recurse(uint32_t depth) {
    volatile char frame[4096];
    frame[depth % sizeof frame] = (char)depth;
    return recurse(depth + 1) + (uint32_t)frame[0];
}

static void loop_forever(void) {
    while (spins + 1 != 0) spins &= 0xFF;
}

void doca_pcc_dev_user_init(uint32_t* disable_event_bitmask) {
    const struct doca_pcc_dev_algo_meta_data meta = {0xBAD, 0, 1, 0, 0};
    if (MISDEED == CRASH_IN_INIT) *nowhere = 1;
    if (MISDEED == LOOP_IN_INIT) loop_forever();
    doca_pcc_dev_algo_init_metadata(0, &meta, 0, 0);
    for (uint32_t port = 0; port < DOCA_PCC_DEV_MAX_NUM_PORTS; ++port)
        doca_pcc_dev_init_algo_slot(port, 0, 0, 1);
    *disable_event_bitmask = 0;
}

void doca_pcc_dev_user_algo(doca_pcc_dev_algo_ctxt_t* algo_ctxt, doca_pcc_dev_event_t* event,
                            const doca_pcc_dev_attr_t* attr, doca_pcc_dev_results_t* results) {
    (void)algo_ctxt;
    (void)attr;
    results->rate = DOCA_PCC_DEV_MAX_RATE;
    results->rtt_req = 0;
    if (doca_pcc_dev_get_ev_attr(event).ev_type != DOCA_PCC_DEV_EVNT_ROCE_CNP) return;
    if (MISDEED == CRASH) *nowhere = 1;
    if (MISDEED == LOOP) loop_forever();
    if (MISDEED == RATE_ZERO) results->rate = 0;
    if (MISDEED == RATE_ABOVE) results->rate = DOCA_PCC_DEV_MAX_RATE + 1;
    if (MISDEED == OVERFLOW_STACK) results->rate = recurse(1);
}

doca_pcc_dev_error_t doca_pcc_dev_user_set_algo_params(uint32_t port_num, uint32_t algo_slot,
                                                       uint32_t param_id_base, uint32_t param_num,
                                                       const uint32_t* new_param_values,
                                                       uint32_t* params) {
    (void)port_num;
    (void)algo_slot;
    (void)param_id_base;
    (void)param_num;
    (void)new_param_values;
    (void)params;
    return DOCA_PCC_DEV_STATUS_FAIL;
}

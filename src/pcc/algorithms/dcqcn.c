/* DCQCN as a loaded algorithm: the laws of pcc/dcqcn_law.h on events. Timers are looked at when
 * something happens to the flow; TX events are frequent enough for that. */
#include <registration.h>

#include "pcc/dcqcn_law.h"

enum {
    PARAM_G,
    PARAM_ALPHA_PERIOD,
    PARAM_INITIAL_ALPHA,
    PARAM_RATE_ON_FIRST_CNP,
    PARAM_MIN_DEC_FAC,
    PARAM_MIN_RATE,
    PARAM_GD,
    PARAM_MONITOR_PERIOD,
    PARAM_TIME_RESET,
    PARAM_BYTE_RESET,
    PARAM_THRESHOLD,
    PARAM_AI_RATE,
    PARAM_HAI_RATE,
    PARAM_COUNT
};
enum { COUNTER_TX, COUNTER_CNP, COUNTER_CUT, COUNTER_COUNT };

static const struct parameter_row parameters[PARAM_COUNT] = {
    [PARAM_G] = {1019, 1024, 1, "dce_tcp_g, of 1024"},
    [PARAM_ALPHA_PERIOD] = {1, 131071, 1, "dce_tcp_rtt, us"},
    [PARAM_INITIAL_ALPHA] = {1023, 1024, 1, "initial_alpha_value, of 1024"},
    [PARAM_RATE_ON_FIRST_CNP] = {0, 1000000, 0, "rate_to_set_on_first_cnp, Mb/s (0: none)"},
    [PARAM_MIN_DEC_FAC] = {50, 100, 0, "rpg_min_dec_fac, percent"},
    [PARAM_MIN_RATE] = {1, 1000000, 1, "rpg_min_rate, Mb/s"},
    [PARAM_GD] = {11, 15, 0, "rpg_gd"},
    [PARAM_MONITOR_PERIOD] = {4, 1000000, 0, "rate_reduce_monitor_period, us"},
    [PARAM_TIME_RESET] = {300, 1000000, 0, "rpg_time_reset, us (0: no timer)"},
    [PARAM_BYTE_RESET] = {10000000, UINT32_MAX, 0, "rpg_byte_reset, bytes (0: no byte counter)"},
    [PARAM_THRESHOLD] = {1, 31, 0, "rpg_threshold"},
    [PARAM_AI_RATE] = {5, 1000000, 1, "rpg_ai_rate, Mb/s"},
    [PARAM_HAI_RATE] = {50, 1000000, 1, "rpg_hai_rate, Mb/s"},
};
static const char* const counters[COUNTER_COUNT] = {"TX events", "CNPs", "rate cuts"};

_Static_assert(sizeof(struct dcqcn_parameters) == 4 * PARAM_COUNT, "same order, all words");
_Static_assert(sizeof(struct dcqcn_state) <= sizeof(doca_pcc_dev_algo_ctxt_t), "48 bytes");

void doca_pcc_dev_user_init(uint32_t* disable_event_bitmask) {
    register_algorithm(0x0DC1, 1, 0, "DCQCN", parameters, PARAM_COUNT, counters, COUNTER_COUNT);
    *disable_event_bitmask |= 1u << DOCA_PCC_DEV_EVNT_ROCE_ACK;
}

void doca_pcc_dev_user_algo(doca_pcc_dev_algo_ctxt_t* algo_ctxt, doca_pcc_dev_event_t* event,
                            const doca_pcc_dev_attr_t* attr, doca_pcc_dev_results_t* results) {
    struct dcqcn_state* state = (struct dcqcn_state*)algo_ctxt;
    const doca_pcc_dev_event_general_attr_t general = doca_pcc_dev_get_ev_attr(event);
    const uint32_t now = doca_pcc_dev_get_timestamp(event);
    const uint64_t line = (uint64_t)doca_pcc_dev_get_port_speed(general.port_num) * 1000;
    const uint32_t* values = doca_pcc_dev_get_algo_params(general.port_num, attr->algo_slot);
    uint32_t* counts = doca_pcc_dev_get_counters(general.port_num, attr->algo_slot);
    struct dcqcn_parameters laws;
    if (values == NULL || counts == NULL) {
        doca_pcc_dev_default_internal_algo(algo_ctxt, event, attr, results);
        return;
    }
    memcpy(&laws, values, sizeof laws);
    dcqcn_advance(state, &laws, line, now);
    if (general.ev_type == DOCA_PCC_DEV_EVNT_ROCE_CNP) {
        const uint32_t before = state->current;
        dcqcn_cnp(state, &laws, line, now);
        counts[COUNTER_CNP] += doca_pcc_dev_get_ack_nack_cnp_extra(event).num_coalesced;
        counts[COUNTER_CUT] += state->current < before;
    } else if (general.ev_type == DOCA_PCC_DEV_EVNT_ROCE_TX) {
        dcqcn_sent(state, &laws, line,
                   (uint32_t)doca_pcc_dev_get_roce_tx_cntrs(event).sent_32bytes * 32);
        ++counts[COUNTER_TX];
    }
    results->rate = state->current;
    results->rtt_req = 0;
}

doca_pcc_dev_error_t doca_pcc_dev_user_set_algo_params(uint32_t port_num, uint32_t algo_slot,
                                                       uint32_t param_id_base, uint32_t param_num,
                                                       const uint32_t* new_param_values,
                                                       uint32_t* params) {
    (void)port_num;
    (void)algo_slot;
    return check_request(param_id_base, param_num, PARAM_COUNT, new_param_values, params);
}

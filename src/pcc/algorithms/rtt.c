/* The RTT algorithm: a probe measures the round trip of each flow, the rate follows it. Two
 * generations from one source:
 *
 *   default           relative: the excess over the smallest round trip seen is compared
 *   -DRTT_ABSOLUTE=1  absolute (DOCA 2.9 to 3.2.0): the round trip itself is compared
 *
 * The rate changes only when a probe is answered; CNPs and NACKs are remembered until then. A probe
 * that does not come back is repeated: after 300 us, and twice as long each time. */
#include <registration.h>

#ifndef RTT_ABSOLUTE
#define RTT_ABSOLUTE 0
#endif

enum {
    PARAM_UPDATE_FACTOR,
    PARAM_AI,
    PARAM_BASE_RTT,
    PARAM_NEW_FLOW_RATE,
    PARAM_MIN_RATE,
    PARAM_MAX_DELAY,
    PARAM_COUNT
};
enum { COUNTER_TX, COUNTER_RTT, COUNTER_COUNT };

#define FACTOR_ONE (1u << 16)
#define INITIAL_MIN_RTT 200000u
#define ABORT_TIME 300000u
#define BURSTS_MAX 2
#define ABORTS_MAX 12         /* 300 us << 12 is about a second */
#define UTILIZATION_HOT 55704 /* 0.85 */
#define SAMPLE_INTERVAL_US 10

static const struct parameter_row parameters[PARAM_COUNT] = {
    [PARAM_UPDATE_FACTOR] = {6553, 10 * FACTOR_ONE, 1, "UPDATE_FACTOR, of 2^16"},
    [PARAM_AI] = {52428, DOCA_PCC_DEV_MAX_RATE, 1, "AI, of 2^20"},
#if RTT_ABSOLUTE
    [PARAM_BASE_RTT] = {13000, UINT32_MAX, 1, "BASE_RTT, ns"},
#else
    [PARAM_BASE_RTT] = {13000, UINT32_MAX, 1, "BASE_RELATIVE_RTT, ns"},
#endif
    [PARAM_NEW_FLOW_RATE] = {DOCA_PCC_DEV_MAX_RATE, DOCA_PCC_DEV_MAX_RATE, 1,
                             "NEW_FLOW_RATE, of 2^20"},
    [PARAM_MIN_RATE] = {64, DOCA_PCC_DEV_MAX_RATE, 1, "MIN_RATE, of 2^20"},
    [PARAM_MAX_DELAY] = {150000, UINT32_MAX, 1, "MAX_DELAY, ns"},
};
static const char* const counters[COUNTER_COUNT] = {"TX events", "RTT events"};

/* A flow's 48 bytes. */
struct flow {
    uint32_t cur_rate; /* 0: a new flow */
    uint32_t start_delay;
    uint32_t min_rtt;
    uint32_t rtt;
    uint8_t was_nack, was_cnp;
    uint8_t probe_seen; /* a TX event has told that the probe left */
    uint8_t sent;       /* TX events since the probe was asked for */
    uint8_t abort;
};
_Static_assert(sizeof(struct flow) <= sizeof(doca_pcc_dev_algo_ctxt_t), "48 bytes");

/* Time from `from` to `to` on a clock of 32 bits. */
static uint32_t elapsed(uint32_t from, uint32_t to) {
    return to >= from ? to - from : to + (UINT32_MAX - from);
}

#ifdef DOCA_PCC_SAMPLE_TX_BYTES
static uint32_t counter_ids[DOCA_PCC_DEV_MAX_NUM_PORTS];
static uint32_t counter_values[DOCA_PCC_DEV_MAX_NUM_PORTS];
static uint32_t bytes_before[DOCA_PCC_DEV_MAX_NUM_PORTS];
static uint32_t utilization[DOCA_PCC_DEV_MAX_NUM_PORTS]; /* of 2^16 */
static uint32_t sampled_us;

static void start_sampler(void) {
    for (uint32_t port = 0; port < DOCA_PCC_DEV_MAX_NUM_PORTS; ++port)
        counter_ids[port] =
            DOCA_PCC_DEV_GET_PORT_COUNTER_ID(port, DOCA_PCC_DEV_NIC_COUNTER_TYPE_TX_BYTES, 0);
    doca_pcc_dev_nic_counters_config(counter_ids, DOCA_PCC_DEV_MAX_NUM_PORTS, counter_values);
    doca_pcc_dev_nic_counters_sample();
    memcpy(bytes_before, counter_values, sizeof bytes_before);
    sampled_us = doca_pcc_dev_get_timer_lo();
}

static void sample(void) {
    const uint32_t now = doca_pcc_dev_get_timer_lo();
    const uint32_t span = now - sampled_us;
    if (doca_pcc_dev_thread_rank() != 0 || span < SAMPLE_INTERVAL_US) return;
    doca_pcc_dev_nic_counters_sample();
    for (uint32_t port = 0; port < DOCA_PCC_DEV_MAX_NUM_PORTS; ++port) {
        const uint64_t line = (uint64_t)doca_pcc_dev_get_port_speed(port) * 1000 / 8 * span;
        const uint64_t bytes = counter_values[port] - bytes_before[port];
        bytes_before[port] = counter_values[port];
        utilization[port] =
            line == 0 || bytes >= line ? FACTOR_ONE : (uint32_t)((bytes << 16) / line);
    }
    sampled_us = now;
}

static int is_hot(uint32_t port) {
    return port < DOCA_PCC_DEV_MAX_NUM_PORTS && utilization[port] > UTILIZATION_HOT;
}
#else
static void start_sampler(void) {}
static void sample(void) {}
static int is_hot(uint32_t port) {
    (void)port;
    return 0;
}
#endif

void doca_pcc_dev_user_init(uint32_t* disable_event_bitmask) {
    register_algorithm(0xBFFF, 0, RTT_ABSOLUTE ? 1 : 2,
                       RTT_ABSOLUTE ? "RTT, absolute" : "RTT, relative", parameters, PARAM_COUNT,
                       counters, COUNTER_COUNT);
    start_sampler();
    *disable_event_bitmask |= 1u << DOCA_PCC_DEV_EVNT_ROCE_ACK;
}

/* The rate times 1 - times * update_factor. */
static uint32_t cut(uint32_t rate, uint32_t update_factor, uint32_t times) {
    const uint64_t part = (uint64_t)update_factor * times;
    if (part >= FACTOR_ONE) return 0;
    return doca_pcc_dev_fxp_mult((uint32_t)(FACTOR_ONE - part), rate);
}

static uint32_t add(uint32_t rate, uint32_t step) {
    const uint64_t sum = (uint64_t)rate + step;
    return sum > DOCA_PCC_DEV_MAX_RATE ? DOCA_PCC_DEV_MAX_RATE : (uint32_t)sum;
}

static int is_too_long(struct flow* flow, const uint32_t* values) {
#if RTT_ABSOLUTE
    return flow->rtt > values[PARAM_BASE_RTT];
#else
    /* A new minimum is compared as it is, with nothing taken off. */
    uint32_t relative = flow->rtt;
    if (flow->rtt >= flow->min_rtt)
        relative = flow->rtt - flow->min_rtt;
    else
        flow->min_rtt = flow->rtt;
    return relative > values[PARAM_BASE_RTT];
#endif
}

static void update_rate(struct flow* flow, const uint32_t* values, uint32_t port) {
    const uint32_t factor = values[PARAM_UPDATE_FACTOR];
    const int hot = is_hot(port);
    const int is_late = flow->rtt >= values[PARAM_MAX_DELAY];
    uint32_t rate = flow->cur_rate;
    if (flow->was_nack && is_late) {
        rate = cut(rate, factor, hot ? 10 : 5);
        flow->was_nack = 0;
    } else if (flow->was_cnp || is_late) {
        rate = cut(rate, factor, hot ? 4 : 2);
        flow->was_cnp = 0;
    } else if (is_too_long(flow, values)) {
        rate = cut(rate, factor, hot ? 2 : 1);
    } else {
        rate = add(rate, values[PARAM_AI]);
    }
    if (rate > DOCA_PCC_DEV_MAX_RATE) rate = DOCA_PCC_DEV_MAX_RATE;
    flow->cur_rate = rate < values[PARAM_MIN_RATE] ? values[PARAM_MIN_RATE] : rate;
}

/* Returns whether a probe is wanted. */
static int handle_tx(struct flow* flow, uint32_t now, uint32_t flags) {
    uint32_t waited = elapsed(flow->start_delay, now);
    int is_lost;
    if ((flags & DOCA_PCC_DEV_TX_FLAG_RTT_REQ_SENT) && !flow->probe_seen) {
        flow->probe_seen = 1;
        flow->sent = 0;
        flow->start_delay = now;
        return 0;
    }
    if (!flow->probe_seen) {
        waited = 0;
        if (flow->sent < UINT8_MAX) ++flow->sent;
    }
    is_lost = waited > ((uint64_t)ABORT_TIME << flow->abort);
    if (!is_lost && flow->sent <= BURSTS_MAX) return 0;
    if (is_lost && flow->abort < ABORTS_MAX) ++flow->abort;
    flow->sent = 1;
    return 1;
}

/* Returns whether a probe is wanted. */
static int handle_rtt(struct flow* flow, doca_pcc_dev_event_t* event, const uint32_t* values,
                      uint32_t port) {
    const uint32_t end = doca_pcc_dev_get_timestamp(event);
    if (!flow->probe_seen && flow->sent == 0) return 0;
    flow->probe_seen = 0;
    flow->abort = 0;
    flow->rtt = elapsed(doca_pcc_dev_get_rtt_req_send_timestamp(event), end);
    if ((end & 0xFF) == 0) flow->min_rtt = INITIAL_MIN_RTT;
    update_rate(flow, values, port);
    flow->sent = 1;
    return 1;
}

void doca_pcc_dev_user_algo(doca_pcc_dev_algo_ctxt_t* algo_ctxt, doca_pcc_dev_event_t* event,
                            const doca_pcc_dev_attr_t* attr, doca_pcc_dev_results_t* results) {
    struct flow* flow = (struct flow*)algo_ctxt;
    const doca_pcc_dev_event_general_attr_t general = doca_pcc_dev_get_ev_attr(event);
    const uint32_t now = doca_pcc_dev_get_timestamp(event);
    const uint32_t* values = doca_pcc_dev_get_algo_params(general.port_num, attr->algo_slot);
    uint32_t* counts = doca_pcc_dev_get_counters(general.port_num, attr->algo_slot);
    int wants_probe = 0;
    if (values == NULL || counts == NULL) {
        doca_pcc_dev_default_internal_algo(algo_ctxt, event, attr, results);
        return;
    }
    sample();
    if (flow->cur_rate == 0) {
        memset(flow, 0, sizeof *flow);
        flow->cur_rate = values[PARAM_NEW_FLOW_RATE];
        flow->start_delay = now;
        flow->sent = 1;
        flow->min_rtt = INITIAL_MIN_RTT;
        wants_probe = 1;
    } else if (general.ev_type == DOCA_PCC_DEV_EVNT_ROCE_TX) {
        wants_probe = handle_tx(flow, now, general.flags);
        ++counts[COUNTER_TX];
    } else if (general.ev_type == DOCA_PCC_DEV_EVNT_RTT) {
        wants_probe = handle_rtt(flow, event, values, general.port_num);
        ++counts[COUNTER_RTT];
    } else if (general.ev_type == DOCA_PCC_DEV_EVNT_ROCE_CNP) {
        flow->was_cnp = 1;
    } else if (general.ev_type == DOCA_PCC_DEV_EVNT_ROCE_NACK) {
        flow->was_nack = 1;
    }
    results->rate = flow->cur_rate;
    results->rtt_req = (uint32_t)wants_probe;
}

doca_pcc_dev_error_t doca_pcc_dev_user_set_algo_params(uint32_t port_num, uint32_t algo_slot,
                                                       uint32_t param_id_base, uint32_t param_num,
                                                       const uint32_t* new_param_values,
                                                       uint32_t* params) {
    (void)port_num;
    (void)algo_slot;
    return check_request(param_id_base, param_num, PARAM_COUNT, new_param_values, params);
}

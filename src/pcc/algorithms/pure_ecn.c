/* The algorithm of path steering: CNPs and TX events move a rate that is a signal only. The card
 * always gets the full rate; the host program gets the computed one, when it has changed, as a
 * trace record (format 6: QPN, rate, worker, CNPs of the flow) and by mailbox.
 *
 * - A CNP takes 10 %.
 * - Of all TX events of all flows each thousandth gives the flow that it belongs to a quarter of
 * the AI step, 1.25 % of line rate. The count has no lock; workers that race lose some, as they do
 * on the adapter.
 * - RTT events are counted, a NACK is remembered, neither changes the rate. */
#include <registration.h>

enum {
    PARAM_CNP_FACTOR,
    PARAM_AI,
    PARAM_MIN_RATE,
    PARAM_NEW_FLOW_RATE,
    PARAM_TX_PERIOD,
    PARAM_COUNT
};
enum { COUNTER_TX, COUNTER_RTT, COUNTER_CNP, COUNTER_REPORTS, COUNTER_COUNT };

#define REPORT_FORMAT 6
#define CNPS_PER_LINE 500
#define FLUSH_INTERVAL_US 1000000u
#define WORKERS_MAX 64
#define BUCKETS 256

static const struct parameter_row parameters[PARAM_COUNT] = {
    [PARAM_CNP_FACTOR] = {58982, 1u << 16, 1, "rate factor of a CNP, of 2^16"},
    [PARAM_AI] = {52428, DOCA_PCC_DEV_MAX_RATE, 4, "AI, of 2^20 (a quarter of it is added)"},
    [PARAM_MIN_RATE] = {64, DOCA_PCC_DEV_MAX_RATE, 1, "MIN_RATE, of 2^20"},
    [PARAM_NEW_FLOW_RATE] = {DOCA_PCC_DEV_MAX_RATE, DOCA_PCC_DEV_MAX_RATE, 1,
                             "NEW_FLOW_RATE, of 2^20"},
    [PARAM_TX_PERIOD] = {1000, UINT32_MAX, 1, "TX events per increase"},
};
static const char* const counters[COUNTER_COUNT] = {"TX events", "RTT events", "CNPs", "reports"};

/* A flow's 48 bytes. */
struct flow {
    uint32_t cur_rate; /* 0: a new flow */
    uint32_t qpn;      /* from TX events; other events do not carry it */
    uint32_t reported;
    uint32_t cnps;
    uint8_t was_nack, is_announced;
};
_Static_assert(sizeof(struct flow) <= sizeof(doca_pcc_dev_algo_ctxt_t), "48 bytes");

struct bucket {
    uint32_t tx, rtt, cnp, cnps_before, rate, qpn, slot, port;
};

static uint32_t tx_events;
static uint32_t cnp_events;
static uint32_t flushed_us[WORKERS_MAX];
static uint32_t summary_us;
static struct bucket buckets[BUCKETS];

/* The mailbox: the last report of each flow, by QPN modulo 64 and on from there. */
#define MAILBOX_VERSION 1
#define MAILBOX_FLOWS 64
struct mailbox_entry {
    uint32_t qpn, rate;
};
struct mailbox_request {
    uint32_t version;
};
struct mailbox_response {
    uint32_t version, count, dropped;
    struct mailbox_entry entries[MAILBOX_FLOWS];
};
static struct mailbox_entry mailbox[MAILBOX_FLOWS];
static uint32_t mailbox_dropped;

void doca_pcc_dev_user_init(uint32_t* disable_event_bitmask) {
    register_algorithm(0xEC00, 1, 0, "pure ECN", parameters, PARAM_COUNT, counters, COUNTER_COUNT);
    *disable_event_bitmask |= 1u << DOCA_PCC_DEV_EVNT_ROCE_ACK;
}

static void put_in_mailbox(uint32_t qpn, uint32_t rate) {
    for (uint32_t i = 0; i < MAILBOX_FLOWS; ++i) {
        struct mailbox_entry* entry = &mailbox[(qpn + i) % MAILBOX_FLOWS];
        if (entry->qpn != qpn && entry->qpn != 0) continue;
        entry->rate = rate;
        entry->qpn = qpn;
        return;
    }
    ++mailbox_dropped;
}

/* At once for a flow that is new to the host, else at most once a second per worker. */
static void flush_reports(int at_once) {
    const uint32_t now = doca_pcc_dev_get_timer_lo();
    uint32_t* flushed = &flushed_us[doca_pcc_dev_thread_rank() % WORKERS_MAX];
    if (!at_once && now - *flushed < FLUSH_INTERVAL_US) return;
    *flushed = now;
    doca_pcc_dev_trace_flush();
}

static void report(struct flow* flow, uint32_t* counts) {
    if (flow->qpn == 0) return;
    if (flow->cur_rate != flow->reported) {
        doca_pcc_dev_trace_5(REPORT_FORMAT, flow->qpn, flow->cur_rate, doca_pcc_dev_thread_rank(),
                             flow->cnps, 0);
        put_in_mailbox(flow->qpn, flow->cur_rate);
        flow->reported = flow->cur_rate;
        ++counts[COUNTER_REPORTS];
    }
    flush_reports(!flow->is_announced);
    flow->is_announced = 1;
}

static void start_flow(struct flow* flow, const uint32_t* values) {
    memset(flow, 0, sizeof *flow);
    flow->cur_rate = values[PARAM_NEW_FLOW_RATE];
}

static void handle_cnp(struct flow* flow, const uint32_t* values) {
    const uint32_t rate = doca_pcc_dev_fxp_mult(values[PARAM_CNP_FACTOR], flow->cur_rate);
    flow->cur_rate = rate < values[PARAM_MIN_RATE] ? values[PARAM_MIN_RATE] : rate;
    ++flow->cnps;
    if (++cnp_events % CNPS_PER_LINE == 1) {
        doca_pcc_dev_printf("PURE_ECN cnp=%u rate=%u\n", cnp_events, flow->cur_rate);
        doca_pcc_dev_trace_flush();
    }
}

static void handle_tx(struct flow* flow, doca_pcc_dev_event_t* event, const uint32_t* values) {
    const uint32_t qpn = doca_pcc_dev_get_flow_qpn(event);
    if (flow->qpn != 0 && flow->qpn != qpn) {
        doca_pcc_dev_printf("QPN of a flow has changed: expected 0x%x, found 0x%x\n", flow->qpn,
                            qpn);
        start_flow(flow, values);
    }
    flow->qpn = qpn;
    if (++tx_events % values[PARAM_TX_PERIOD] != 0) return;
    const uint64_t rate = (uint64_t)flow->cur_rate + (values[PARAM_AI] >> 2);
    flow->cur_rate = rate > DOCA_PCC_DEV_MAX_RATE ? DOCA_PCC_DEV_MAX_RATE : (uint32_t)rate;
}

/* A line per bucket of QPs once a second. */
static void summarize(void) {
    const uint32_t now = doca_pcc_dev_get_timer_lo();
    if (doca_pcc_dev_thread_rank() != 0 || now - summary_us < FLUSH_INTERVAL_US) return;
    summary_us = now;
    for (uint32_t i = 0; i < BUCKETS; ++i) {
        struct bucket* b = &buckets[i];
        if (b->qpn == 0) continue;
        doca_pcc_dev_printf(
            "PCC: bucket=%u total=%u tx=%u rtt=%u cnp=%u cnp_s=%u slot=%u port=%u "
            "qpn=0x%x rate=%u\n",
            i, b->tx + b->rtt + b->cnp, b->tx, b->rtt, b->cnp, b->cnp - b->cnps_before, b->slot,
            b->port, b->qpn, b->rate);
        b->cnps_before = b->cnp;
    }
}

static void count(const struct flow* flow, uint32_t type, uint32_t port, uint32_t slot,
                  uint32_t* counts) {
    struct bucket* b = &buckets[flow->qpn % BUCKETS];
    const int is_tx = type == DOCA_PCC_DEV_EVNT_ROCE_TX, is_rtt = type == DOCA_PCC_DEV_EVNT_RTT,
              is_cnp = type == DOCA_PCC_DEV_EVNT_ROCE_CNP;
    counts[COUNTER_TX] += (uint32_t)is_tx;
    counts[COUNTER_RTT] += (uint32_t)is_rtt;
    counts[COUNTER_CNP] += (uint32_t)is_cnp;
    b->tx += (uint32_t)is_tx;
    b->rtt += (uint32_t)is_rtt;
    b->cnp += (uint32_t)is_cnp;
    b->rate = flow->cur_rate;
    b->qpn = flow->qpn;
    b->slot = slot;
    b->port = port;
}

void doca_pcc_dev_user_algo(doca_pcc_dev_algo_ctxt_t* algo_ctxt, doca_pcc_dev_event_t* event,
                            const doca_pcc_dev_attr_t* attr, doca_pcc_dev_results_t* results) {
    struct flow* flow = (struct flow*)algo_ctxt;
    const doca_pcc_dev_event_general_attr_t general = doca_pcc_dev_get_ev_attr(event);
    const uint32_t* values = doca_pcc_dev_get_algo_params(general.port_num, attr->algo_slot);
    uint32_t* counts = doca_pcc_dev_get_counters(general.port_num, attr->algo_slot);
    if (values == NULL || counts == NULL) {
        doca_pcc_dev_default_internal_algo(algo_ctxt, event, attr, results);
        return;
    }
    if (flow->cur_rate == 0) start_flow(flow, values);
    switch (general.ev_type) {
        case DOCA_PCC_DEV_EVNT_ROCE_CNP:
            handle_cnp(flow, values);
            break;
        case DOCA_PCC_DEV_EVNT_ROCE_TX:
            handle_tx(flow, event, values);
            break;
        case DOCA_PCC_DEV_EVNT_ROCE_NACK:
            flow->was_nack = 1;
            break;
        default:
            break;
    }
    count(flow, general.ev_type, general.port_num, attr->algo_slot, counts);
    report(flow, counts);
    summarize();
    results->rate = DOCA_PCC_DEV_MAX_RATE;
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

doca_pcc_dev_error_t doca_pcc_dev_user_mailbox_handle(void* request, uint32_t request_size,
                                                      uint32_t max_response_size, void* response,
                                                      uint32_t* response_size) {
    const struct mailbox_request* in = request;
    struct mailbox_response* out = response;
    if (request_size != sizeof *in || max_response_size < sizeof *out ||
        in->version != MAILBOX_VERSION)
        return DOCA_PCC_DEV_STATUS_FAIL;
    memset(out, 0, sizeof *out);
    out->version = MAILBOX_VERSION;
    out->dropped = mailbox_dropped;
    for (uint32_t i = 0; i < MAILBOX_FLOWS; ++i)
        if (mailbox[i].qpn != 0) out->entries[out->count++] = mailbox[i];
    *response_size = sizeof *out;
    return DOCA_PCC_DEV_STATUS_OK;
}

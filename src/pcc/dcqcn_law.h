/* DCQCN at the reaction point (Zhu et al., SIGCOMM 2015), as state and three steps, in integers.
 *
 * One header for the card's built-in algorithm and for the one that is loaded from a file, so that
 * both obey the same laws. C and C++. Times are nanoseconds modulo 2^32, rates parts of 2^20 of
 * line rate.
 *
 * - A flow without CNPs is not limited. The first CNP starts a limit at line rate with alpha =
 *   initial_alpha; when the rate has come back to line rate the limit is given up.
 * - Each CNP, at most one per monitor period: target = current, current -= current * alpha / 2
 *   (alpha / 2^gd in units of 1/1024), and the stages of the increase start anew.
 * - Each alpha period: alpha = g * alpha, plus (1 - g) if there was a CNP in it.
 * - Each increase event, of the timer or of the byte counter: current moves half way to target; and
 *   when one of both has had more than `threshold` events the target grows by ai_rate, when both
 *   have by (events beyond the threshold) * hai_rate. */
#pragma once

#include <stdint.h>

#define DCQCN_RATE_MAX (UINT32_C(1) << 20)
#define DCQCN_ALPHA_ONE (UINT32_C(1) << 20)

/* Names and defaults of the adapter's parameters, dce_tcp_* and rpg_*; rates in Mb/s. One default
 * is not the adapter's: rpg_byte_reset is often quoted as 32767 bytes, which at 100 Gb/s is an
 * increase every 2.6 us and undoes a cut long before the next mark. Here it is the 10 MB of the
 * paper. */
struct dcqcn_parameters {
    uint32_t g;                 /* of 1024 */
    uint32_t alpha_period_us;   /* dce_tcp_rtt */
    uint32_t initial_alpha;     /* of 1024 */
    uint32_t rate_on_first_cnp; /* 0: where the flow is */
    uint32_t min_dec_fac;       /* percent of the rate that a cut leaves at least */
    uint32_t min_rate;
    uint32_t gd;
    uint32_t monitor_period_us; /* rate_reduce_monitor_period */
    uint32_t time_reset_us;
    uint32_t byte_reset;
    uint32_t threshold;
    uint32_t ai_rate;
    uint32_t hai_rate;
};
#define DCQCN_DEFAULTS \
    { 1019, 1, 1023, 0, 50, 1, 11, 4, 300, 10000000, 1, 5, 50 }

struct dcqcn_state {
    uint32_t current, target; /* parts of 2^20; 0 in `current`: a new flow */
    uint32_t alpha;           /* parts of 2^20 */
    uint32_t alpha_time, increase_time, decrease_time;
    uint32_t bytes;
    uint16_t timer_events, byte_events; /* since the last cut */
    uint8_t is_limited, cnp_seen;       /* in this alpha period */
};

/* A rate in Mb/s as parts of 2^20 of the line rate, at least 1. */
static inline uint32_t dcqcn_part(uint32_t mbps, uint64_t line_mbps) {
    uint64_t part;
    if (line_mbps == 0) return 1;
    part = ((uint64_t)mbps << 20) / line_mbps;
    if (part > DCQCN_RATE_MAX) return DCQCN_RATE_MAX;
    return part == 0 ? 1 : (uint32_t)part;
}

/* base^n, 20 fraction bits. */
static inline uint32_t dcqcn_power(uint32_t base, uint32_t n) {
    uint64_t result = DCQCN_ALPHA_ONE, square = base;
    for (; n != 0 && result != 0; n >>= 1) {
        if (n & 1) result = (result * square) >> 20;
        square = (square * square) >> 20;
    }
    return (uint32_t)result;
}

static inline void dcqcn_release(struct dcqcn_state* s) {
    s->current = s->target = DCQCN_RATE_MAX;
    s->is_limited = 0;
}

static inline void dcqcn_increase(struct dcqcn_state* s, const struct dcqcn_parameters* p,
                                  uint64_t line_mbps) {
    const uint32_t most = s->timer_events > s->byte_events ? s->timer_events : s->byte_events;
    const uint32_t least = s->timer_events > s->byte_events ? s->byte_events : s->timer_events;
    if (most > p->threshold) {
        const uint64_t step = least > p->threshold ? (uint64_t)(least - p->threshold) *
                                                         dcqcn_part(p->hai_rate, line_mbps)
                                                   : dcqcn_part(p->ai_rate, line_mbps);
        const uint64_t target = s->target + step;
        s->target = target > DCQCN_RATE_MAX ? DCQCN_RATE_MAX : (uint32_t)target;
    }
    s->current = (s->current + s->target + 1) / 2;
    if (s->current >= DCQCN_RATE_MAX) dcqcn_release(s);
}

/* Time has come to `now`. */
static inline void dcqcn_advance(struct dcqcn_state* s, const struct dcqcn_parameters* p,
                                 uint64_t line_mbps, uint32_t now) {
    const uint32_t alpha_period = p->alpha_period_us * 1000, reset = p->time_reset_us * 1000;
    if (s->current == 0) dcqcn_release(s);
    if (!s->is_limited) return;
    if (alpha_period != 0) {
        uint32_t periods = (now - s->alpha_time) / alpha_period;
        s->alpha_time += periods * alpha_period;
        if (periods > 0 && s->cnp_seen) {
            s->alpha = (uint32_t)(((uint64_t)s->alpha * p->g) >> 10) + ((1024 - p->g) << 10);
            if (s->alpha > DCQCN_ALPHA_ONE) s->alpha = DCQCN_ALPHA_ONE;
            s->cnp_seen = 0;
            --periods;
        }
        s->alpha = (uint32_t)(((uint64_t)s->alpha * dcqcn_power(p->g << 10, periods)) >> 20);
    }
    while (reset != 0 && s->is_limited && now - s->increase_time >= reset) {
        s->increase_time += reset;
        if (s->timer_events < UINT16_MAX) ++s->timer_events;
        dcqcn_increase(s, p, line_mbps);
    }
}

/* A CNP. The state has been advanced to `now`. */
static inline void dcqcn_cnp(struct dcqcn_state* s, const struct dcqcn_parameters* p,
                             uint64_t line_mbps, uint32_t now) {
    const int is_first = !s->is_limited;
    const uint32_t floor = dcqcn_part(p->min_rate, line_mbps);
    if (is_first) {
        s->is_limited = 1;
        s->current = s->target = DCQCN_RATE_MAX;
        s->alpha = p->initial_alpha << 10;
        s->alpha_time = now;
        if (p->rate_on_first_cnp != 0) {
            s->current = s->target = dcqcn_part(p->rate_on_first_cnp, line_mbps);
        }
    }
    s->cnp_seen = 1;
    if (is_first || now - s->decrease_time >= p->monitor_period_us * 1000) {
        const uint32_t cut = (uint32_t)(((uint64_t)s->current * s->alpha) >> (10 + p->gd));
        const uint32_t least = (uint32_t)((uint64_t)s->current * p->min_dec_fac / 100);
        s->target = s->current;
        s->current = s->current - cut > least && cut <= s->current ? s->current - cut : least;
        if (s->current < floor) s->current = floor;
        s->decrease_time = now;
    }
    s->increase_time = now;
    s->bytes = 0;
    s->timer_events = s->byte_events = 0;
}

/* `bytes` were sent. The state has been advanced to `now`. */
static inline void dcqcn_sent(struct dcqcn_state* s, const struct dcqcn_parameters* p,
                              uint64_t line_mbps, uint32_t bytes) {
    if (!s->is_limited || p->byte_reset == 0) return;
    s->bytes += bytes;
    while (s->is_limited && s->bytes >= p->byte_reset) {
        s->bytes -= p->byte_reset;
        if (s->byte_events < UINT16_MAX) ++s->byte_events;
        dcqcn_increase(s, p, line_mbps);
    }
}

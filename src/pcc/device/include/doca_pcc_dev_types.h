/* Constants, event codes and the result of an algorithm. */
#pragma once

#include <doca_version.h>
#include <stdint.h>

/* The device that a program is built for is named on the command line:
 *   -D__NV_DPA_BF3=1 -D__NV_DPA=__NV_DPA_BF3
 */
#ifndef __NV_DPA_BF3
#define __NV_DPA_BF3 0x10000
#endif
#ifndef __NV_DPA_CX8
#define __NV_DPA_CX8 0x20000
#endif
#ifndef __NV_DPA
#error "no target: expected -D__NV_DPA=__NV_DPA_BF3 among the compiler's arguments"
#elif __NV_DPA != __NV_DPA_BF3
#error "unknown target: the card delivers events in the layout of __NV_DPA_BF3 only"
#endif

#define DOCA_DPA_DEVICE

#ifdef __cplusplus
#define FORCE_INLINE inline __attribute__((always_inline))
#else
#define FORCE_INLINE static inline __attribute__((always_inline))
#endif
#define ALWAYS_INLINE __attribute__((always_inline))
#define DOCA_STABLE __attribute__((visibility("default")))
#define DOCA_EXPERIMENTAL __attribute__((visibility("default")))
#define DOCA_DEPRECATED __attribute__((deprecated))

/* Rates: fixed point with 20 fraction bits, 1.0 is line rate. Legal rates are in (0, 1]. */
#define DOCA_PCC_DEV_LOG_MAX_RATE (20)
#define DOCA_PCC_DEV_MAX_RATE (1U << DOCA_PCC_DEV_LOG_MAX_RATE)
#define DOCA_PCC_DEV_DEFAULT_RATE \
    ((DOCA_PCC_DEV_MAX_RATE >> 8) > 1 ? (DOCA_PCC_DEV_MAX_RATE >> 8) : 1)

#define DOCA_PCC_DEV_MAX_NUM_PORTS (4)
#define DOCA_PCC_DEV_MAX_NUM_USER_SLOTS (8)
#define DOCA_PCC_DEV_MAX_NUM_ALGOS (8)
#define DOCA_PCC_DEV_ALGO_SLOT_INTERNAL (0xF)
#define DOCA_PCC_DEV_ALGO_INDEX_INTERNAL (0xF)

#if RDMALAB_DOCA_VERSION >= 304
#define DOCA_PCC_DEV_MAX_NUM_PARAMS_PER_ALGO (0x2C)
#elif RDMALAB_DOCA_VERSION >= 300
#define DOCA_PCC_DEV_MAX_NUM_PARAMS_PER_ALGO (0x26)
#else
#define DOCA_PCC_DEV_MAX_NUM_PARAMS_PER_ALGO (0x1E)
#endif
#if RDMALAB_DOCA_VERSION >= 300
#define DOCA_PCC_DEV_MAX_NUM_COUNTERS_PER_ALGO (0x3F)
#else
#define DOCA_PCC_DEV_MAX_NUM_COUNTERS_PER_ALGO (0xF)
#endif

/* Whether events of type ROCE_TX_FOR_ACK_NACK may be suppressed. */
#define DOCA_PCC_DEV_ACK_NACK_TX_EVENT_DISABLED_SUPPORTED (0)

typedef enum {
    DOCA_PCC_DEV_STATUS_OK = 0,
    DOCA_PCC_DEV_STATUS_FAIL = 1,
} doca_pcc_dev_error_t;

typedef enum {
    DOCA_PCC_DEV_EVNT_NULL = 0,
    DOCA_PCC_DEV_EVNT_FW = 1,
    DOCA_PCC_DEV_EVNT_ROCE_CNP = 2,
    DOCA_PCC_DEV_EVNT_ROCE_TX = 3,
    DOCA_PCC_DEV_EVNT_ROCE_ACK = 4,
    DOCA_PCC_DEV_EVNT_ROCE_NACK = 5,
    DOCA_PCC_DEV_EVNT_RTT = 6,
    DOCA_PCC_DEV_EVNT_ROCE_TX_FOR_ACK_NACK = 31,
} doca_pcc_dev_event_type_enum;

typedef enum {
    DOCA_PCC_DEV_NACK_EVNT_NULL = 0,
    DOCA_PCC_DEV_NACK_EVNT_RNR = 1,
    DOCA_PCC_DEV_NACK_EVNT_OOS = 2,
    DOCA_PCC_DEV_NACK_EVNT_DUP_READ = 3,
} doca_pcc_dev_nack_event_sub_type_enum;

/* Flags of a TX event. */
typedef enum {
    DOCA_PCC_DEV_TX_FLAG_ACK_EXPECTED = 1 << 0,
    DOCA_PCC_DEV_TX_FLAG_OVERLOADED = 1 << 1,
    DOCA_PCC_DEV_TX_FLAG_RTT_REQ_SENT = 1 << 2,
    DOCA_PCC_DEV_TX_FLAG_IS_REQUESTOR = 1 << 5,
} doca_pcc_dev_tx_flags_enum;

/* What an algorithm answers to an event. The card reads `rate` and `rtt_req`. */
struct mlnx_cc_results_t {
    uint32_t rate;
    union {
        uint32_t rtt_req; /* not 0: send a probe */
        uint32_t probe_req;
    };
    uint32_t probe_type_slot;
    uint32_t credits;
    uint32_t reload_credits;
};
typedef struct mlnx_cc_results_t doca_pcc_dev_results_t;

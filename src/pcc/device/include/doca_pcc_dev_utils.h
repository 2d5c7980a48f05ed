/* Arithmetic, fences and timers. */
#pragma once

#include <doca_pcc_dev_types.h>
#include <dpaintrin.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

FORCE_INLINE uint64_t doca_pcc_dev_mult(uint32_t a, uint32_t b) { return (uint64_t)a * b; }

/* Factors with 16 fraction bits; the low 32 bits of the result. */
FORCE_INLINE uint32_t doca_pcc_dev_fxp_mult(uint32_t a, uint32_t b) {
    return (uint32_t)(((uint64_t)a * b) >> 16);
}

/* The position of the highest bit that is set, counted from 1; 0 for 0. */
FORCE_INLINE uint32_t doca_pcc_dev_fls(uint32_t a) {
    return a == 0 ? 0 : 32 - (uint32_t)__builtin_clz(a);
}

FORCE_INLINE uint32_t doca_pcc_dev_fxp_recip(uint32_t a) { return __dpa_fxp_rcp(a); }
FORCE_INLINE uint32_t doca_pcc_dev_fxp_power2(uint32_t a) { return __dpa_fxp_pow2(a); }
FORCE_INLINE uint32_t doca_pcc_dev_fxp_log2(uint32_t a) { return __dpa_fxp_log2(a); }

FORCE_INLINE void doca_pcc_dev_fence_all(void) {
    __dpa_thread_fence(__DPA_SYSTEM, __DPA_RW, __DPA_RW);
}
FORCE_INLINE void doca_pcc_dev_fence_memory(void) {
    __dpa_thread_fence(__DPA_MEMORY, __DPA_RW, __DPA_RW);
}
FORCE_INLINE void doca_pcc_dev_fence_io(void) {
    __dpa_thread_fence(__DPA_MMIO, __DPA_RW, __DPA_RW);
}
FORCE_INLINE void doca_pcc_dev_fence_w_r(void) {
    __dpa_thread_fence(__DPA_SYSTEM, __DPA_W, __DPA_R);
}

/* Ticks of a microsecond. Events carry nanoseconds of the same clock. */
uint64_t doca_pcc_dev_get_timer(void);
FORCE_INLINE uint32_t doca_pcc_dev_get_timer_lo(void) { return (uint32_t)doca_pcc_dev_get_timer(); }
FORCE_INLINE uint64_t doca_pcc_dev_get_thread_time(void) { return __dpa_thread_time(); }

#ifdef __cplusplus
}
#endif

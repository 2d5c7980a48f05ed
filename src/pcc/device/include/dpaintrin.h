/* The intrinsics of the DPA core that device programs use, on an ordinary processor. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Memory spaces and kinds of access, for fences. */
#define __DPA_SYSTEM 0x00
#define __DPA_MEMORY 0x01
#define __DPA_MMIO 0x02
#define __DPA_R 0x01
#define __DPA_W 0x02
#define __DPA_RW (__DPA_R | __DPA_W)

/* Every fence is a full one here. */
#define __dpa_thread_fence(space, before, after) \
    do {                                         \
        (void)(space);                           \
        (void)(before);                          \
        (void)(after);                           \
        __atomic_thread_fence(__ATOMIC_SEQ_CST); \
    } while (0)

/* Ticks of a microsecond. */
uint64_t __dpa_thread_time(void);

/* Fixed point with 16 fraction bits. The reciprocal of 0 is the largest value. */
static inline uint32_t __dpa_fxp_rcp(uint32_t x) {
    return x <= 1 ? UINT32_MAX : (uint32_t)((UINT64_C(1) << 32) / x);
}

/* 2^x for x in [0, 16), by the whole part as a shift and the fraction bit by bit: bit i of it is a
 * factor of 2^(2^-i). */
static inline uint32_t __dpa_fxp_pow2(uint32_t x) {
    static const uint32_t factors[16] = {92682, 77936, 71468, 68438, 66971, 66250, 65892, 65714,
                                         65625, 65580, 65558, 65547, 65542, 65539, 65537, 65537};
    uint64_t result = UINT64_C(1) << 16;
    if (x >= (UINT32_C(16) << 16)) return UINT32_MAX;
    for (int i = 0; i < 16; ++i)
        if (x & (UINT32_C(0x8000) >> i)) result = (result * factors[i] + 0x8000) >> 16;
    result <<= x >> 16;
    return result > UINT32_MAX ? UINT32_MAX : (uint32_t)result;
}

/* log2(x) for x >= 1.0; 0 below. */
static inline uint32_t __dpa_fxp_log2(uint32_t x) {
    if (x <= (UINT32_C(1) << 16)) return 0;
    const uint32_t whole = 15 - (uint32_t)__builtin_clz(x);
    uint64_t mantissa = ((uint64_t)x << 15) >> whole; /* [1, 2) with 31 fraction bits */
    uint32_t fraction = 0;
    for (int i = 0; i < 16; ++i) {
        mantissa = (mantissa * mantissa) >> 31;
        fraction <<= 1;
        if (mantissa >= (UINT64_C(1) << 32)) {
            fraction |= 1;
            mantissa >>= 1;
        }
    }
    return whole << 16 | fraction;
}

#ifdef __cplusplus
}
#endif

/* What an algorithm may tell its host program. */
#pragma once

#include <doca_pcc_dev_types.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A line of text, at most 512 bytes. */
void doca_pcc_dev_printf(const char* format, ...) __attribute__((format(printf, 1, 2)));

/* A binary record. It is kept with the thread until the next flush, or until the thread's buffer is
 * full. */
void doca_pcc_dev_trace_5(int format_id, uint64_t arg1, uint64_t arg2, uint64_t arg3, uint64_t arg4,
                          uint64_t arg5);
void doca_pcc_dev_trace_flush(void);

/* Number of the thread that runs the caller, from 0. */
unsigned int doca_pcc_dev_thread_rank(void);

#ifdef __cplusplus
}
#endif

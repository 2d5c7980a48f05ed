/* What the shipped algorithms share: a table of parameters and counters, and its registration in
 * slot 0 of every port. */
#pragma once

#include <doca_pcc_dev.h>
#include <doca_pcc_dev_algo_access.h>
#include <doca_pcc_dev_event.h>
#include <stddef.h>
#include <string.h>

#define ALGORITHM_INDEX 0
#define ALGORITHM_SLOT 0
#define PERMIT_WRITE 1
#define PERMIT_RESET 2

struct parameter_row {
    uint32_t initial, max, min;
    const char* text;
};

static inline uint64_t address_of(const char* text) { return (uint64_t)(uintptr_t)text; }

static inline void register_algorithm(uint32_t id, uint32_t major, uint32_t minor, const char* text,
                                      const struct parameter_row* parameters,
                                      uint32_t parameter_count, const char* const* counters,
                                      uint32_t counter_count) {
    const struct doca_pcc_dev_algo_meta_data meta = {
        .algo_id = id,
        .algo_major_version = major,
        .algo_minor_version = minor,
        .algo_desc_size = (uint32_t)strlen(text) + 1,
        .algo_desc_addr = address_of(text),
    };
    doca_pcc_dev_algo_init_metadata(ALGORITHM_INDEX, &meta, parameter_count, counter_count);
    for (uint32_t i = 0; i < parameter_count; ++i) {
        const struct parameter_row* row = &parameters[i];
        doca_pcc_dev_algo_init_param(ALGORITHM_INDEX, i, row->initial, row->max, row->min,
                                     PERMIT_WRITE, (uint32_t)strlen(row->text) + 1,
                                     address_of(row->text));
    }
    for (uint32_t i = 0; i < counter_count; ++i) {
        doca_pcc_dev_algo_init_counter(ALGORITHM_INDEX, i, UINT32_MAX, PERMIT_RESET,
                                       (uint32_t)strlen(counters[i]) + 1, address_of(counters[i]));
    }
    for (uint32_t port = 0; port < DOCA_PCC_DEV_MAX_NUM_PORTS; ++port) {
        doca_pcc_dev_init_algo_slot(port, ALGORITHM_SLOT, ALGORITHM_INDEX, 1);
    }
}

/* Whether a request to set parameters names only those that exist. */
static inline doca_pcc_dev_error_t check_request(uint32_t base, uint32_t count, uint32_t total,
                                                 const uint32_t* values, const uint32_t* params) {
    if (values == NULL || params == NULL) return DOCA_PCC_DEV_STATUS_FAIL;
    if (count > total || base >= total || count > total - base) return DOCA_PCC_DEV_STATUS_FAIL;
    return DOCA_PCC_DEV_STATUS_OK;
}

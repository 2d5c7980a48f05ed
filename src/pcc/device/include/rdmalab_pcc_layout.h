/* Marks a module with the layouts that it was compiled with, so that a card of another version
 * refuses it instead of misreading it. */
#pragma once

#include <doca_pcc_dev_data_structures.h>
#include <stdint.h>

#define RDMALAB_PCC_LAYOUT_MAGIC 0x70636C79u
#ifndef RDMALAB_PCC_LAYOUT_VERSION
#define RDMALAB_PCC_LAYOUT_VERSION 1
#endif

struct rdmalab_pcc_layout_t {
    uint32_t magic;
    uint32_t layout_version;
    uint32_t interface_version; /* RDMALAB_DOCA_VERSION */
    uint32_t event_size, context_size, results_size;
};

#ifndef __cplusplus
__attribute__((weak, used, visibility("default")))
const struct rdmalab_pcc_layout_t rdmalab_pcc_layout = {
    RDMALAB_PCC_LAYOUT_MAGIC,     RDMALAB_PCC_LAYOUT_VERSION,       RDMALAB_DOCA_VERSION,
    sizeof(doca_pcc_dev_event_t), sizeof(doca_pcc_dev_algo_ctxt_t), sizeof(doca_pcc_dev_results_t),
};
#endif

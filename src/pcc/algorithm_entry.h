// The functions of an algorithm, and the C types that they speak.
#pragma once

#ifndef __NV_DPA_BF3
#define __NV_DPA_BF3 0x10000
#endif
#ifndef __NV_DPA
#define __NV_DPA __NV_DPA_BF3
#endif
#include "pcc/dcqcn_law.h"
#include "pcc/device/include/doca_pcc_dev.h"
#include "pcc/device/include/doca_pcc_dev_algo_access.h"
#include "pcc/device/include/doca_pcc_dev_event.h"

namespace rdmalab::pcc {

struct AlgorithmEntry {
    decltype(&doca_pcc_dev_user_init) init = nullptr;
    decltype(&doca_pcc_dev_user_algo) handle = nullptr;
    decltype(&doca_pcc_dev_user_set_algo_params) set_parameters = nullptr;
    decltype(&doca_pcc_dev_user_mailbox_handle) mailbox = nullptr;          // may be absent
    decltype(&doca_pcc_dev_user_port_info_changed) port_changed = nullptr;  // may be absent
};

static_assert(sizeof(doca_pcc_dev_event_t) == 44);
static_assert(sizeof(doca_pcc_dev_algo_ctxt_t) == 48);
static_assert(sizeof(dcqcn_state) <= sizeof(doca_pcc_dev_algo_ctxt_t));

}  // namespace rdmalab::pcc

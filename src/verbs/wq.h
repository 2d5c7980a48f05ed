// Receive work queues and indirection tables.
#pragma once

#include <atomic>

#include "verbs/objects.h"

namespace rdmalab::verbs {

struct Wq : ibv_wq {
    Wq() : ibv_wq{} {}
    Qp* queue = nullptr;
    std::atomic<std::uint32_t> uses{0};  // entries of tables
};

struct IndirectionTable : ibv_rwq_ind_table {
    IndirectionTable() : ibv_rwq_ind_table{} {}
    std::uint32_t length = 0;
    Wq* queues[abi::kHashTableMax] = {};
    std::atomic<std::uint32_t> uses{0};  // QPs
};

// A raw packet QP that spreads what it gets (RSS). Null and errno when it fails.
Qp* create_spreading_qp(const ibv_qp_init_attr_ex& init);

}  // namespace rdmalab::verbs

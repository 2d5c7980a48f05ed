// The functions that an algorithm may call. Each works on the runtime whose worker runs on this
// thread; outside of any (a constructor of the module, a thread of its own) they do nothing.
#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "pcc/runtime_impl.h"

namespace {

using rdmalab::pcc::current_worker;
using rdmalab::pcc::Runtime;
using rdmalab::pcc::Slot;
using rdmalab::pcc::Worker;

constexpr std::size_t kTextMax = 512;
constexpr std::uint32_t kDescriptionMax = 256;

Runtime::Impl* current() { return current_worker == nullptr ? nullptr : current_worker->runtime; }

std::string text_at(std::uint64_t address, std::uint32_t size) {
    const auto* const text = reinterpret_cast<const char*>(address);
    if (text == nullptr) return {};
    const auto* const end = text + std::min(size, kDescriptionMax);
    return {text, std::find(text, end, '\0')};
}

doca_pcc_dev_error_t fail(Runtime::Impl* runtime, std::string text) {
    if (runtime != nullptr && runtime->registration_error.empty())
        runtime->registration_error = std::move(text);
    return DOCA_PCC_DEV_STATUS_FAIL;
}

Slot* slot_of(std::uint32_t port, std::uint32_t slot) {
    Runtime::Impl* const runtime = current();
    Slot* const found = runtime == nullptr ? nullptr : runtime->slot(port, slot);
    return found != nullptr && found->is_enabled ? found : nullptr;
}

}  // namespace

namespace rdmalab::pcc {
void link_services() {}
}  // namespace rdmalab::pcc

extern "C" {

// --- Services

void doca_pcc_dev_printf(const char* format, ...) {
    Runtime::Impl* const runtime = current();
    if (runtime == nullptr || !runtime->options.print) return;
    char text[kTextMax];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    runtime->options.print(text);
}

void doca_pcc_dev_trace_5(int format_id, uint64_t arg1, uint64_t arg2, uint64_t arg3, uint64_t arg4,
                          uint64_t arg5) {
    if (Runtime::Impl* const runtime = current()) {
        runtime->trace(*current_worker, static_cast<std::uint32_t>(format_id),
                       {arg1, arg2, arg3, arg4, arg5});
    }
}

void doca_pcc_dev_trace_flush(void) {
    if (Runtime::Impl* const runtime = current()) runtime->flush(*current_worker);
}

unsigned int doca_pcc_dev_thread_rank(void) {
    return current_worker == nullptr ? 0 : current_worker->rank;
}

uint64_t doca_pcc_dev_get_timer(void) {
    Runtime::Impl* const runtime = current();
    return runtime == nullptr ? 0 : runtime->now_ns(*current_worker) / 1000;
}

uint64_t __dpa_thread_time(void) { return doca_pcc_dev_get_timer(); }

// --- Ports

doca_pcc_dev_error_t doca_pcc_dev_nic_counters_config(uint32_t* ids, uint32_t num,
                                                      uint32_t* values) {
    Runtime::Impl* const runtime = current();
    if (runtime == nullptr || ids == nullptr || values == nullptr) return DOCA_PCC_DEV_STATUS_FAIL;
    runtime->counter_ids.assign(ids, ids + num);
    runtime->counter_values = values;
    return DOCA_PCC_DEV_STATUS_OK;
}

doca_pcc_dev_error_t doca_pcc_dev_nic_counters_sample(void) {
    Runtime::Impl* const runtime = current();
    if (runtime == nullptr || runtime->counter_values == nullptr) return DOCA_PCC_DEV_STATUS_FAIL;
    for (std::size_t i = 0; i < runtime->counter_ids.size(); ++i) {
        const std::uint32_t port = runtime->counter_ids[i] & 0xf;
        const std::uint32_t type = runtime->counter_ids[i] >> 4 & 0xf;
        const bool is_known =
            type == DOCA_PCC_DEV_NIC_COUNTER_TYPE_TX_BYTES && port < rdmalab::pcc::kPorts;
        runtime->counter_values[i] =
            is_known ? runtime->tx_bytes[port].load(std::memory_order_relaxed) : 0;
    }
    return DOCA_PCC_DEV_STATUS_OK;
}

uint32_t doca_pcc_dev_get_logical_ports(void) { return (1u << rdmalab::pcc::kPorts) - 1; }
uint8_t doca_pcc_dev_get_port_planes(uint32_t) { return 1; }
uint32_t doca_pcc_dev_get_port_speed(uint32_t port) {
    Runtime::Impl* const runtime = current();
    return runtime == nullptr || port >= rdmalab::pcc::kPorts ? 0 : runtime->port_speed[port];
}

// --- Registration

doca_pcc_dev_error_t doca_pcc_dev_algo_init_metadata(uint32_t algo_idx,
                                                     const struct doca_pcc_dev_algo_meta_data* meta,
                                                     uint32_t param_num, uint32_t counter_num) {
    Runtime::Impl* const runtime = current();
    if (runtime == nullptr || algo_idx >= rdmalab::pcc::kAlgorithms || meta == nullptr ||
        param_num > DOCA_PCC_DEV_MAX_NUM_PARAMS_PER_ALGO ||
        counter_num > DOCA_PCC_DEV_MAX_NUM_COUNTERS_PER_ALGO) {
        return fail(runtime,
                    "doca_pcc_dev_algo_init_metadata: expected an index below 8, at most "
                    "44 parameters and 63 counters, found index " +
                        std::to_string(algo_idx) + ", " + std::to_string(param_num) + " and " +
                        std::to_string(counter_num));
    }
    rdmalab::pcc::RegisteredAlgorithm& algorithm = runtime->algorithms[algo_idx];
    algorithm.is_set = true;
    algorithm.id = meta->algo_id;
    algorithm.version_major = meta->algo_major_version;
    algorithm.version_minor = meta->algo_minor_version;
    algorithm.text = text_at(meta->algo_desc_addr, meta->algo_desc_size);
    algorithm.parameters.assign(param_num, {});
    algorithm.counters.assign(counter_num, {});
    return DOCA_PCC_DEV_STATUS_OK;
}

doca_pcc_dev_error_t doca_pcc_dev_algo_init_param(uint32_t algo_idx, uint32_t param_id,
                                                  uint32_t default_value, uint32_t max_value,
                                                  uint32_t min_value, uint32_t permissions,
                                                  uint32_t desc_size, uint64_t desc_addr) {
    Runtime::Impl* const runtime = current();
    if (runtime == nullptr || algo_idx >= rdmalab::pcc::kAlgorithms ||
        param_id >= runtime->algorithms[algo_idx].parameters.size()) {
        return fail(runtime, "doca_pcc_dev_algo_init_param: algorithm " + std::to_string(algo_idx) +
                                 " has no parameter " + std::to_string(param_id));
    }
    if (default_value < min_value || default_value > max_value) {
        return fail(runtime, "parameter " + std::to_string(param_id) + ": expected a default of " +
                                 std::to_string(min_value) + " to " + std::to_string(max_value) +
                                 ", found " + std::to_string(default_value));
    }
    runtime->algorithms[algo_idx].parameters[param_id] = {
        true, default_value, min_value, max_value, permissions, text_at(desc_addr, desc_size)};
    return DOCA_PCC_DEV_STATUS_OK;
}

doca_pcc_dev_error_t doca_pcc_dev_algo_init_counter(uint32_t algo_idx, uint32_t counter_id,
                                                    uint32_t max_value, uint32_t permissions,
                                                    uint32_t desc_size, uint64_t desc_addr) {
    Runtime::Impl* const runtime = current();
    if (runtime == nullptr || algo_idx >= rdmalab::pcc::kAlgorithms ||
        counter_id >= runtime->algorithms[algo_idx].counters.size()) {
        return fail(runtime, "doca_pcc_dev_algo_init_counter: algorithm " +
                                 std::to_string(algo_idx) + " has no counter " +
                                 std::to_string(counter_id));
    }
    runtime->algorithms[algo_idx].counters[counter_id] = {true, max_value, permissions,
                                                          text_at(desc_addr, desc_size)};
    return DOCA_PCC_DEV_STATUS_OK;
}

doca_pcc_dev_error_t doca_pcc_dev_init_algo_slot(uint32_t port_num, uint32_t algo_slot,
                                                 uint32_t algo_idx, uint8_t algo_enable) {
    Runtime::Impl* const runtime = current();
    Slot* const slot = runtime == nullptr ? nullptr : runtime->slot(port_num, algo_slot);
    if (slot == nullptr || algo_idx >= rdmalab::pcc::kAlgorithms ||
        !runtime->algorithms[algo_idx].is_set) {
        return fail(runtime,
                    "doca_pcc_dev_init_algo_slot: expected a port below 4, a slot below "
                    "16 and an algorithm with metadata, found port " +
                        std::to_string(port_num) + ", slot " + std::to_string(algo_slot) +
                        " and algorithm " + std::to_string(algo_idx));
    }
    const rdmalab::pcc::RegisteredAlgorithm& algorithm = runtime->algorithms[algo_idx];
    slot->algorithm = algo_idx;
    slot->is_enabled = algo_enable != 0;
    slot->parameters.clear();
    for (const auto& parameter : algorithm.parameters)
        slot->parameters.push_back(parameter.initial);
    slot->counters.assign(algorithm.counters.size(), 0);
    return DOCA_PCC_DEV_STATUS_OK;
}

uint32_t* doca_pcc_dev_get_algo_params(uint32_t port_num, uint32_t algo_slot) {
    Slot* const slot = slot_of(port_num, algo_slot);
    return slot == nullptr || slot->parameters.empty() ? nullptr : slot->parameters.data();
}
uint32_t doca_pcc_dev_get_algo_params_num(uint32_t port_num, uint32_t algo_slot) {
    const Slot* const slot = slot_of(port_num, algo_slot);
    return slot == nullptr ? 0 : static_cast<uint32_t>(slot->parameters.size());
}
uint32_t* doca_pcc_dev_get_counters(uint32_t port_num, uint32_t algo_slot) {
    Slot* const slot = slot_of(port_num, algo_slot);
    return slot == nullptr || slot->counters.empty() ? nullptr : slot->counters.data();
}
uint32_t doca_pcc_dev_get_counters_num(uint32_t port_num, uint32_t algo_slot) {
    const Slot* const slot = slot_of(port_num, algo_slot);
    return slot == nullptr ? 0 : static_cast<uint32_t>(slot->counters.size());
}
uint32_t doca_pcc_dev_get_algo_index(uint32_t port_num, uint32_t algo_slot) {
    const Slot* const slot = slot_of(port_num, algo_slot);
    return slot == nullptr ? DOCA_PCC_DEV_ALGO_INDEX_INTERNAL : slot->algorithm;
}

// --- The internal algorithm

void doca_pcc_dev_default_internal_algo(doca_pcc_dev_algo_ctxt_t* algo_ctxt,
                                        doca_pcc_dev_event_t* event, const doca_pcc_dev_attr_t*,
                                        doca_pcc_dev_results_t* results) {
    static constexpr dcqcn_parameters kParameters = DCQCN_DEFAULTS;
    auto* const state = reinterpret_cast<dcqcn_state*>(algo_ctxt);
    const doca_pcc_dev_event_general_attr_t attr = doca_pcc_dev_get_ev_attr(event);
    const uint32_t now = doca_pcc_dev_get_timestamp(event);
    const uint64_t line = uint64_t{doca_pcc_dev_get_port_speed(attr.port_num)} * 1000;
    if (current_worker != nullptr) ++current_worker->statistics.internal_events;
    dcqcn_advance(state, &kParameters, line, now);
    if (attr.ev_type == DOCA_PCC_DEV_EVNT_ROCE_CNP) dcqcn_cnp(state, &kParameters, line, now);
    if (attr.ev_type == DOCA_PCC_DEV_EVNT_ROCE_TX) {
        const uint32_t bytes = doca_pcc_dev_get_roce_tx_cntrs(event).sent_32bytes * 32u;
        dcqcn_sent(state, &kParameters, line, bytes);
    }
    results->rate = state->current;
    results->rtt_req = 0;
}

}  // extern "C"

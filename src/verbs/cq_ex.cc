// The newer way to poll (ibv_create_cq_ex(3)): the program looks at one completion at a time, in
// place. The CQ stays locked from start_poll to end_poll.
#include <errno.h>
#include <time.h>

#include "verbs/cq.h"
#include "verbs/idle.h"
#include "verbs/operations.h"

namespace rdmalab::verbs {

namespace {

constexpr std::uint64_t kOfferedFields =
    std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK | IBV_WC_EX_WITH_FLOW_TAG;

void show(Cq& cq, abi::Cqe& cqe) {
    cq.current_service_level = retire(cq, cqe);
    cq.current = &cqe;
    cq.wr_id = cqe.wr_id;
    cq.status = static_cast<ibv_wc_status>(cqe.status);
}

int next_poll(ibv_cq_ex* public_cq) {
    Cq& cq = cq_of(public_cq);
    abi::Cqe* cqe = next_completion(cq);
    if (cqe == nullptr) return ENOENT;
    show(cq, *cqe);
    return 0;
}

void end_poll(ibv_cq_ex* public_cq) {
    Cq& cq = cq_of(public_cq);
    publish_consumer(cq);
    cq.current = nullptr;
    if (cq.needs_lock) cq.lock.unlock();
}

// The CQ is locked; it is not any more when this returns.
int finish_miss(Cq& cq) {
    publish_consumer(cq);  // entries of destroyed QPs may have been skipped
    bool is_persistent = is_persistent_miss();
    std::uint32_t next = cq.consumer;
    if (is_persistent) cq.sleepers.fetch_add(1, std::memory_order_relaxed);
    if (cq.needs_lock) cq.lock.unlock();
    if (!is_persistent) return miss_status(cq) != 0 ? EIO : ENOENT;
    int status = wait_when_idle(cq, next);
    cq.sleepers.fetch_sub(1, std::memory_order_release);
    return status != 0 ? status : ENOENT;
}

int start_poll(ibv_cq_ex* public_cq, ibv_poll_cq_attr* attributes) {
    if (attributes != nullptr && attributes->comp_mask != 0) return EINVAL;
    Cq& cq = cq_of(public_cq);
    if (cq.needs_lock) cq.lock.lock();
    abi::Cqe* cqe = next_completion(cq);
    if (cqe == nullptr) return finish_miss(cq);
    show(cq, *cqe);
    note_hit();
    return 0;
}

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) { return wc_opcode(*cq_of(cq).current); }
std::uint32_t read_vendor_error(ibv_cq_ex* cq) { return cq_of(cq).current->vendor_error; }
std::uint32_t read_byte_length(ibv_cq_ex* cq) { return cq_of(cq).current->byte_length; }
__be32 read_immediate(ibv_cq_ex* cq) { return cq_of(cq).current->immediate; }
std::uint32_t read_qpn(ibv_cq_ex* cq) { return cq_of(cq).current->qpn; }
std::uint32_t read_source_qpn(ibv_cq_ex* cq) { return cq_of(cq).current->source_qpn; }
unsigned read_flags(ibv_cq_ex* cq) { return wc_flags(*cq_of(cq).current); }
std::uint32_t read_source_lid(ibv_cq_ex*) { return 0; }
std::uint8_t read_service_level(ibv_cq_ex* cq) { return cq_of(cq).current_service_level; }
std::uint8_t read_path_bits(ibv_cq_ex*) { return 0; }
std::uint32_t read_flow_tag(ibv_cq_ex* cq) { return cq_of(cq).current->flow_tag; }
std::uint64_t read_timestamp(ibv_cq_ex* cq) { return cq_of(cq).current->timestamp_ns; }

std::int64_t clock_ns(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

std::uint64_t read_wall_clock(ibv_cq_ex* cq) {
    std::int64_t offset = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
    return cq_of(cq).current->timestamp_ns + static_cast<std::uint64_t>(offset);
}

int check_init(const ibv_cq_init_attr_ex& init) {
    constexpr std::uint32_t kDefinedMask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    constexpr std::uint32_t kDefinedFlags =
        IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    if (init.comp_mask & ~kDefinedMask) return EINVAL;
    if (init.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) {
        if (init.parent_domain == nullptr) return EINVAL;
        if (pd_of(init.parent_domain).protection_domain == nullptr) return EINVAL;
    }
    if (init.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) {
        if (init.flags & ~kDefinedFlags) return EINVAL;
        if (init.flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) return EOPNOTSUPP;
    }
    return (init.wc_flags & ~kOfferedFields) ? EOPNOTSUPP : 0;
}

// The readers of fields that the program did not ask for stay null, as with other providers.
void install_readers(Cq& cq, std::uint64_t fields) {
    cq.start_poll = start_poll;
    cq.next_poll = next_poll;
    cq.end_poll = end_poll;
    cq.read_opcode = read_opcode;
    cq.read_vendor_err = read_vendor_error;
    cq.read_wc_flags = read_flags;
    if (fields & IBV_WC_EX_WITH_BYTE_LEN) cq.read_byte_len = read_byte_length;
    if (fields & IBV_WC_EX_WITH_IMM) cq.read_imm_data = read_immediate;
    if (fields & IBV_WC_EX_WITH_QP_NUM) cq.read_qp_num = read_qpn;
    if (fields & IBV_WC_EX_WITH_SRC_QP) cq.read_src_qp = read_source_qpn;
    if (fields & IBV_WC_EX_WITH_SLID) cq.read_slid = read_source_lid;
    if (fields & IBV_WC_EX_WITH_FLOW_TAG) cq.read_flow_tag = read_flow_tag;
    if (fields & IBV_WC_EX_WITH_SL) cq.read_sl = read_service_level;
    if (fields & IBV_WC_EX_WITH_DLID_PATH_BITS) cq.read_dlid_path_bits = read_path_bits;
    if (fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) cq.read_completion_ts = read_timestamp;
    if (fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) {
        cq.read_completion_wallclock_ns = read_wall_clock;
    }
}

}  // namespace

ibv_cq_ex* create_cq_extended(ibv_context* context, ibv_cq_init_attr_ex* init) {
    if (int status = check_init(*init)) return fail(status);
    bool single_threaded = (init->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
                           (init->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
    if (init->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) {
        single_threaded |= is_single_threaded(init->parent_domain);
    }
    Cq* cq = create_cq(context_of(context), {.entries = init->cqe,
                                             .cq_context = init->cq_context,
                                             .channel = init->channel,
                                             .vector = init->comp_vector,
                                             .needs_lock = !single_threaded});
    if (cq != nullptr) install_readers(*cq, init->wc_flags);
    return cq;
}

// Completion timestamps and this clock are the same: nanoseconds of CLOCK_MONOTONIC.
int query_rt_values(ibv_context*, ibv_values_ex* values) {
    std::uint32_t wanted = values->comp_mask;
    if (wanted & ~(IBV_VALUES_MASK_RESERVED - 1u)) return EINVAL;
    if (wanted & IBV_VALUES_MASK_RAW_CLOCK) clock_gettime(CLOCK_MONOTONIC, &values->raw_clock);
    return 0;
}

}  // namespace rdmalab::verbs

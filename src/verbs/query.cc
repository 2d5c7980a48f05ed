// What the device and its port can do, in the structs of verbs.h. Nothing is claimed here that the
// library does not offer: programs and tests choose their paths by it.
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "base/identity.h"
#include "base/link_speed.h"
#include "verbs/gids.h"
#include "verbs/objects.h"
#include "verbs/operations.h"

namespace rdmalab::verbs {

namespace {

// Bit of the kernel's ib_user_verbs.h; this verbs.h has the operation but not the capability.
constexpr std::uint64_t kAtomicWriteCap = 1ull << 40;
constexpr std::uint64_t kClockKhz = 1'000'000;  // timestamps count nanoseconds

void fill_limits(ibv_device_attr& out, const abi::OpenContextReply& limits) {
    out.max_qp = static_cast<int>(limits.qp_max);
    out.max_qp_wr = static_cast<int>(limits.wqe_max);
    out.max_sge = static_cast<int>(limits.sge_max);
    out.max_sge_rd = static_cast<int>(limits.sge_max);
    out.max_cq = static_cast<int>(limits.cq_max);
    out.max_cqe = static_cast<int>(limits.cqe_max);
    out.max_mr = static_cast<int>(limits.mr_max);
    out.max_pd = static_cast<int>(limits.pd_max);
    out.max_qp_rd_atom = static_cast<int>(limits.reads_max);
    out.max_qp_init_rd_atom = static_cast<int>(limits.reads_max);
    out.max_res_rd_atom = static_cast<int>(limits.reads_max * std::min(limits.qp_max, 65'536u));
    out.max_mcast_grp = static_cast<int>(limits.mcast_group_max);
    out.max_mcast_qp_attach = static_cast<int>(limits.mcast_qp_max);
    out.max_total_mcast_qp_attach = static_cast<int>(limits.mcast_group_max * limits.mcast_qp_max);
    out.max_ah = static_cast<int>(limits.ah_max);
    out.max_srq = static_cast<int>(limits.srq_max);
    out.max_srq_wr = static_cast<int>(limits.srq_wr_max);
    out.max_srq_sge = static_cast<int>(limits.sge_max);
    out.max_mw = static_cast<int>(limits.mw_max);
    out.max_raw_ethy_qp = static_cast<int>(limits.qp_max);
}

void fill_device(ibv_device_attr& out, const Context& context) {
    out = {};
    snprintf(out.fw_ver, sizeof out.fw_ver, "%s", RDMALAB_VERSION);
    out.node_guid = htobe64(context.attributes.node_guid);
    out.sys_image_guid = out.node_guid;
    out.max_mr_size = UINT64_MAX;
    // Any page size from the system's upwards.
    out.page_size_cap = ~(static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) - 1);
    out.vendor_id = identity::kVendorId;
    out.vendor_part_id = identity::kVendorPartId;
    out.hw_ver = 1;
    out.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
                           IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
                           IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_XRC |
                           IBV_DEVICE_RAW_IP_CSUM;
    if (context.attributes.features & abi::kFlowSteering) {
        out.device_cap_flags |= IBV_DEVICE_MANAGED_FLOW_STEERING;
    }
    out.atomic_cap = IBV_ATOMIC_HCA;
    out.max_pkeys = 1;
    out.phys_port_cnt = 1;
    fill_limits(out, context.attributes);
}

// The card reaches memory through the page tables of the process, and pages that are missing come
// when it does: that holds for every service and every operation.
void fill_odp(ibv_device_attr_ex& out) {
    constexpr std::uint32_t kUd =
        IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
    constexpr std::uint32_t kUc = kUd | IBV_ODP_SUPPORT_WRITE;
    constexpr std::uint32_t kRc = kUc | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
    out.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
    out.odp_caps.per_transport_caps = {kRc, kUc, kUd};
    out.xrc_odp_caps = kRc;
}

// Tables of the library cost the card nothing before a QP has one.
void fill_spreading(ibv_device_attr_ex& out, const abi::OpenContextReply& limits) {
    out.rss_caps.supported_qpts = 1u << IBV_QPT_RAW_PACKET;
    out.rss_caps.max_rwq_indirection_tables = limits.qp_max;
    out.rss_caps.max_rwq_indirection_table_size = abi::kHashTableMax;
    out.rss_caps.rx_hash_fields_mask =
        ((IBV_RX_HASH_IPSEC_SPI << 1) - 1) | static_cast<std::uint64_t>(IBV_RX_HASH_INNER);
    out.rss_caps.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ;
    out.max_wq_type_rq = limits.qp_max;
    out.raw_packet_caps = IBV_RAW_PACKET_CAP_IP_CSUM;
    // In kbit/s (IBV_QP_RATE_LIMIT).
    out.packet_pacing_caps = {.qp_rate_limit_min = 1,
                              .qp_rate_limit_max = 400'000'000,
                              .supported_qpts = 1u << IBV_QPT_RAW_PACKET};
}

void fill_device_extended(ibv_device_attr_ex& out, const Context& context) {
    out = {};
    fill_device(out.orig_attr, context);
    out.completion_timestamp_mask = UINT64_MAX;
    out.hca_core_clock = kClockKhz;
    out.device_cap_flags_ex = out.orig_attr.device_cap_flags | kAtomicWriteCap;
    out.max_dm_size = context.attributes.dm_max;
    fill_odp(out);
    fill_spreading(out, context.attributes);
    out.cq_mod_caps = {.max_cq_count = abi::kModerationCountMax,
                       .max_cq_period = abi::kModerationPeriodMax};
    out.phys_port_cnt_ex = out.orig_attr.phys_port_cnt;
}

// What the device is stays true in the child of a fork, which has no card; a dead card is none.
bool is_known(const Context& context) { return context.is_abandoned || !context.is_dead(); }

ibv_mtu mtu_code(std::uint32_t bytes) {
    if (bytes >= 4096) return IBV_MTU_4096;
    if (bytes >= 2048) return IBV_MTU_2048;
    if (bytes >= 1024) return IBV_MTU_1024;
    return bytes >= 512 ? IBV_MTU_512 : IBV_MTU_256;
}

int fill_port(Context& context, std::uint8_t port, ibv_port_attr& out) {
    constexpr std::uint8_t kLinkUp = 5, kPolling = 2;  // physical states, same clause
    if (!is_port(port)) return EINVAL;
    abi::QueryPortReply reply{};
    int status = context.connection.call(abi::Op::kQueryPort, ByteView(),
                                         std::as_writable_bytes(std::span(&reply, 1)));
    if (status != 0) return status;
    const LinkSpeed& speed = link_speed_for(reply.rate_bps);
    out = {};
    out.state = static_cast<ibv_port_state>(reply.state);
    out.max_mtu = mtu_code(reply.mtu_max);
    out.active_mtu = mtu_code(reply.mtu_active);
    out.gid_tbl_len = static_cast<int>(context.attributes.gid_max);
    out.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    out.max_msg_sz = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(context.attributes.message_max, UINT32_MAX));
    out.pkey_tbl_len = 1;
    out.max_vl_num = 1;
    out.active_width = speed.width;
    out.active_speed = speed.speed;
    out.phys_state = reply.state == IBV_PORT_ACTIVE ? kLinkUp : kPolling;
    out.link_layer = IBV_LINK_LAYER_ETHERNET;
    out.flags = IBV_QPF_GRH_REQUIRED;
    return 0;
}

}  // namespace

int query_port_extended(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes,
                        std::size_t size) {
    ibv_port_attr full{};
    if (int status = fill_port(context_of(context), port, full)) return status;
    memset(attributes, 0, size);
    memcpy(attributes, &full, std::min(size, sizeof full));
    return 0;
}

int query_device_extended(ibv_context* context, const ibv_query_device_ex_input* input,
                          ibv_device_attr_ex* attributes, std::size_t size) {
    if (input != nullptr && input->comp_mask != 0) return EINVAL;
    if (size < sizeof(ibv_device_attr)) return EINVAL;
    if (!is_known(context_of(context))) return EIO;
    ibv_device_attr_ex full;
    fill_device_extended(full, context_of(context));
    memset(attributes, 0, size);
    memcpy(attributes, &full, std::min(size, sizeof full));
    return 0;
}

}  // namespace rdmalab::verbs

using namespace rdmalab;
using namespace rdmalab::verbs;

extern "C" int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
    if (!is_known(context_of(context))) return EIO;
    fill_device(*attributes, context_of(context));
    return 0;
}

// The entry of old programs: their struct ends behind `flags`, and not a byte more may be written.
extern "C" int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* out) {
    constexpr std::size_t kCompatSize = offsetof(ibv_port_attr, flags) + 1;
    return query_port_extended(context, port, reinterpret_cast<ibv_port_attr*>(out), kCompatSize);
}

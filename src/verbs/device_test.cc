#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "verbs/fixture.h"

namespace rdmalab::verbs::testing {

namespace {

TEST(DeviceListTest, without_a_card_the_list_is_empty) {
    unsetenv("RDMALAB_SOCKET");
    unsetenv("RDMALAB_CARD");
    setenv("RDMALAB_RUNTIME_DIR", "/nonexistent", 1);
    int count = -1;
    ibv_device** list = ibv_get_device_list(&count);
    ASSERT_NE(list, nullptr);
    EXPECT_EQ(count, 0);
    EXPECT_EQ(list[0], nullptr);
    ibv_free_device_list(list);
    unsetenv("RDMALAB_RUNTIME_DIR");
}

TEST(DeviceListTest, a_card_that_was_named_and_is_not_there_is_an_error) {
    setenv("RDMALAB_RUNTIME_DIR", "/nonexistent", 1);
    setenv("RDMALAB_CARD", "absent", 1);
    int count = -1;
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(ibv_get_device_list(&count), nullptr);
    EXPECT_EQ(errno, ENOENT);
    std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("/nonexistent/absent.sock"), std::string::npos) << said;
    unsetenv("RDMALAB_CARD");
    unsetenv("RDMALAB_RUNTIME_DIR");
}

TEST_F(DeviceTest, devices_have_names_guids_and_room_behind_them) {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    ASSERT_EQ(count, 2);
    EXPECT_STREQ(ibv_get_device_name(list[0]), "mlx5_2");
    EXPECT_STREQ(list[1]->dev_name, "uverbs1");
    EXPECT_STREQ(list[1]->ibdev_path, "/sys/class/infiniband/mlx5_3");
    EXPECT_EQ(list[0]->node_type, IBV_NODE_CA);
    // What libmlx5 and libefa look at behind the public struct.
    auto* behind = reinterpret_cast<const std::byte*>(list[0] + 1);
    for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(behind[i], std::byte{0});
    ibv_device* first = list[0];
    ibv_free_device_list(list);
    list = ibv_get_device_list(nullptr);
    EXPECT_EQ(list[0], first);
    ibv_free_device_list(list);
}

TEST_F(DeviceTest, a_refused_handshake_is_reported_with_its_errno) {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    card_.refuse(abi::Op::kHello, EPERM, "yama forbids it");
    EXPECT_EQ(ibv_open_device(list[1]), nullptr);
    EXPECT_EQ(errno, EPERM);
    card_.refuse(abi::Op::kOpenContext, EMFILE, "too many");
    EXPECT_EQ(ibv_open_device(list[1]), nullptr);
    EXPECT_EQ(errno, EMFILE);
    ibv_free_device_list(list);
}

TEST_F(DeviceTest, attributes_claim_what_there_is_and_nothing_else) {
    ibv_device_attr_ex attributes{};
    ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &attributes), 0);
    EXPECT_EQ(attributes.orig_attr.max_qp_wr, static_cast<int>(limits::kWqeMax));
    EXPECT_GE(attributes.orig_attr.max_cqe, 4'000'000);
    EXPECT_EQ(attributes.orig_attr.atomic_cap, IBV_ATOMIC_HCA);
    EXPECT_NE(attributes.orig_attr.vendor_id, 0x02c9u);
    EXPECT_NE(attributes.orig_attr.vendor_id, 0u);
    EXPECT_EQ(attributes.odp_caps.general_caps, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
    EXPECT_EQ(attributes.odp_caps.per_transport_caps.ud_odp_caps & IBV_ODP_SUPPORT_WRITE, 0u);
    EXPECT_EQ(attributes.max_dm_size, limits::kDmMax);
    EXPECT_EQ(attributes.orig_attr.max_mw, static_cast<int>(limits::kMrMax));
    EXPECT_EQ(attributes.raw_packet_caps, std::uint32_t{IBV_RAW_PACKET_CAP_IP_CSUM});
    EXPECT_EQ(attributes.tm_caps.max_num_tags, 0u);
    EXPECT_EQ(attributes.hca_core_clock, 1'000'000u);
    constexpr unsigned kClaimed =
        IBV_DEVICE_XRC | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    EXPECT_EQ(attributes.orig_attr.device_cap_flags & kClaimed, kClaimed);
    EXPECT_FALSE(attributes.orig_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A);
    ibv_wq_init_attr wq{};
    EXPECT_EQ(ibv_create_wq(context_, &wq), nullptr);
    EXPECT_EQ(errno, EINVAL);  // offered, but not without a CQ
}

TEST_F(DeviceTest, objects_that_cannot_be_are_refused_before_the_card_is_asked) {
    EXPECT_EQ(ibv_alloc_mw(pd_, static_cast<ibv_mw_type>(3)), nullptr);
    EXPECT_EQ(errno, EINVAL);
    ibv_xrcd_init_attr xrcd{};
    EXPECT_EQ(ibv_open_xrcd(context_, &xrcd), nullptr);
    EXPECT_EQ(errno, EINVAL);
    ibv_alloc_dm_attr dm{.length = limits::kDmMax + 1, .log_align_req = 0, .comp_mask = 0};
    EXPECT_EQ(ibv_alloc_dm(context_, &dm), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    dm.comp_mask = 1;
    EXPECT_EQ(ibv_alloc_dm(context_, &dm), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_import_device(-1), nullptr);
}

TEST_F(DeviceTest, the_old_entry_of_query_port_writes_only_the_old_struct) {
#undef ibv_query_port
    struct {
        ibv_port_attr attributes;
        std::uint16_t behind;
    } out;
    memset(&out, 0xee, sizeof out);
    auto* old = reinterpret_cast<_compat_ibv_port_attr*>(&out.attributes);
    ASSERT_EQ(ibv_query_port(context_, 1, old), 0);
    EXPECT_EQ(out.attributes.state, IBV_PORT_ACTIVE);
    EXPECT_EQ(out.attributes.active_mtu, IBV_MTU_4096);
    EXPECT_EQ(out.attributes.flags, IBV_QPF_GRH_REQUIRED);
    EXPECT_EQ(out.attributes.port_cap_flags2, 0xeeee);
    EXPECT_EQ(ibv_query_port(context_, 2, old), EINVAL);
    EXPECT_EQ(ibv_query_port(context_, 0, old), EINVAL);
}

TEST_F(DeviceTest, gids_are_found_by_all_three_calls) {
    ibv_gid gid{};
    ASSERT_EQ(ibv_query_gid(context_, 1, 1, &gid), 0);
    EXPECT_EQ(gid.raw[12], 10);
    ASSERT_EQ(ibv_query_gid(context_, 1, 5, &gid), 0);
    EXPECT_EQ(gid.global.subnet_prefix, 0u);
    EXPECT_EQ(ibv_query_gid(context_, 1, 16, &gid), -1);
    EXPECT_EQ(errno, EINVAL);
    ibv_gid_entry entry{};
    ASSERT_EQ(ibv_query_gid_ex(context_, 1, 1, &entry, 0), 0);
    EXPECT_EQ(entry.gid_type, static_cast<std::uint32_t>(IBV_GID_TYPE_ROCE_V2));
    EXPECT_EQ(ibv_query_gid_ex(context_, 1, 5, &entry, 0), ENODATA);
    EXPECT_EQ(ibv_query_gid_ex(context_, 1, 99, &entry, 0), EINVAL);
    ibv_gid_entry table[4] = {};
    EXPECT_EQ(ibv_query_gid_table(context_, table, 4, 0), 2);
    EXPECT_EQ(table[1].gid_index, 1u);
    EXPECT_EQ(ibv_query_gid_table(context_, table, 1, 0), -EINVAL);
}

TEST_F(DeviceTest, pkeys_are_the_default_one) {
    __be16 pkey = 0;
    ASSERT_EQ(ibv_query_pkey(context_, 1, 0, &pkey), 0);
    EXPECT_EQ(pkey, 0xffff);
    EXPECT_EQ(ibv_query_pkey(context_, 1, 1, &pkey), -1);
    EXPECT_EQ(ibv_get_pkey_index(context_, 1, 0xffff), 0);
    EXPECT_EQ(ibv_get_pkey_index(context_, 1, 0x1234), -1);
}

TEST_F(DeviceTest, registration_tells_bad_memory_from_good) {
    char* page = static_cast<char*>(
        mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    munmap(page + 4096, 4096);
    EXPECT_EQ(ibv_reg_mr(pd_, page, 8192, IBV_ACCESS_LOCAL_WRITE), nullptr);
    EXPECT_EQ(errno, EFAULT);
    mprotect(page, 4096, PROT_NONE);
    EXPECT_EQ(ibv_reg_mr(pd_, page, 4096, IBV_ACCESS_REMOTE_READ), nullptr);
    EXPECT_EQ(errno, EFAULT);
    mprotect(page, 4096, PROT_READ);
    EXPECT_EQ(ibv_reg_mr(pd_, page, 4096, IBV_ACCESS_LOCAL_WRITE), nullptr);
    EXPECT_EQ(errno, EFAULT);
    ibv_mr* readable = ibv_reg_mr(pd_, page, 4096, IBV_ACCESS_REMOTE_READ);
    ASSERT_NE(readable, nullptr);
    EXPECT_EQ(ibv_dereg_mr(readable), 0);
    EXPECT_EQ(ibv_reg_mr(pd_, page, 4096, IBV_ACCESS_REMOTE_WRITE), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_reg_mr(pd_, page, 0, 0), nullptr);
    EXPECT_EQ(errno, EINVAL);
    munmap(page, 4096);
    // On demand, and nothing is there yet.
    ibv_mr* later = ibv_reg_mr(pd_, page, 4096, IBV_ACCESS_ON_DEMAND);
    ASSERT_NE(later, nullptr);
    EXPECT_EQ(ibv_dereg_mr(later), 0);
    ibv_mr* all = ibv_reg_mr(pd_, nullptr, SIZE_MAX, IBV_ACCESS_ON_DEMAND);
    ASSERT_NE(all, nullptr);
    EXPECT_EQ(ibv_dereg_mr(all), 0);
}

TEST_F(DeviceTest, re_registering_keeps_the_region_when_it_fails) {
    char memory[64], other[32];
    ibv_mr* mr = ibv_reg_mr(pd_, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(ibv_rereg_mr(mr, 0, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0),
              IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(
        ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE),
        IBV_REREG_MR_ERR_INPUT);
    card_.refuse(abi::Op::kReregMr, EBUSY);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0),
              IBV_REREG_MR_ERR_CMD);
    EXPECT_EQ(errno, EBUSY);
    EXPECT_EQ(mr->addr, memory);
    const std::uint32_t lkey = mr->lkey;
    ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, other, sizeof other, 0),
              0);
    EXPECT_EQ(mr->addr, other);
    EXPECT_EQ(mr->length, sizeof other);
    EXPECT_EQ(mr->lkey, lkey);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(DeviceTest, a_parent_domain_holds_its_parts) {
    ibv_td_init_attr td_init{};
    ibv_td* td = ibv_alloc_td(context_, &td_init);
    ASSERT_NE(td, nullptr);
    ibv_parent_domain_init_attr init{};
    EXPECT_EQ(ibv_alloc_parent_domain(context_, &init), nullptr);
    EXPECT_EQ(errno, EINVAL);
    init.pd = pd_;
    init.td = td;
    ibv_pd* parent = ibv_alloc_parent_domain(context_, &init);
    ASSERT_NE(parent, nullptr);
    EXPECT_EQ(parent->handle, pd_->handle);
    EXPECT_EQ(ibv_dealloc_pd(pd_), EBUSY);
    EXPECT_EQ(ibv_dealloc_td(td), EBUSY);
    ibv_cq_init_attr_ex cq_init{};
    cq_init.cqe = 4;
    cq_init.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    cq_init.parent_domain = pd_;
    EXPECT_EQ(ibv_create_cq_ex(context_, &cq_init), nullptr);
    EXPECT_EQ(errno, EINVAL);
    cq_init.parent_domain = parent;
    ibv_cq_ex* cq = ibv_create_cq_ex(context_, &cq_init);
    ASSERT_NE(cq, nullptr);
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
    EXPECT_EQ(ibv_dealloc_pd(parent), 0);
    EXPECT_EQ(ibv_dealloc_td(td), 0);
}

TEST_F(DeviceTest, completion_queues_out_of_range_are_refused) {
    EXPECT_EQ(ibv_create_cq(context_, static_cast<int>(limits::kCqeMax) + 1, nullptr, nullptr, 0),
              nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_create_cq(context_, 10, nullptr, nullptr, context_->num_comp_vectors), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_create_cq(context_, 0, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(DeviceTest, the_address_of_a_received_ipv4_packet_is_found_in_its_tail) {
    ibv_grh grh{};
    auto* bytes = reinterpret_cast<std::uint8_t*>(&grh);
    memset(bytes, 0xaa, 20);
    std::uint8_t ip[20] = {0x45, 0x20, 0,  60, 0, 0, 0x40, 0, 17, 17,
                           0,    0,    10, 0,  0, 2, 10,   0, 0,  1};
    std::uint32_t sum = 0;
    for (int i = 0; i < 20; i += 2) sum += static_cast<std::uint32_t>(ip[i] << 8 | ip[i + 1]);
    sum = (sum & 0xffff) + (sum >> 16);
    ip[10] = static_cast<std::uint8_t>(~sum >> 8);
    ip[11] = static_cast<std::uint8_t>(~sum);
    memcpy(bytes + 20, ip, sizeof ip);
    ibv_wc wc{};
    wc.wc_flags = IBV_WC_GRH;
    ibv_ah_attr address{};
    ASSERT_EQ(ibv_init_ah_from_wc(context_, 1, &wc, &grh, &address), 0);
    EXPECT_EQ(address.is_global, 1);
    EXPECT_EQ(address.grh.sgid_index, 1);
    EXPECT_EQ(address.grh.traffic_class, 0x20);
    EXPECT_EQ(address.grh.dgid.raw[15], 2);
    EXPECT_EQ(address.grh.dgid.raw[11], 0xff);
}

TEST_F(DeviceTest, the_child_of_a_fork_cannot_use_the_parents_device) {
    pid_t child = fork();
    if (child == 0) {
        bool refused = ibv_alloc_pd(context_) == nullptr && errno == EIO;
        bool closed = context_->async_fd == -1;
        ibv_context* own = open_first_device();
        _exit(refused && closed && own != nullptr ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 0);
    ibv_pd* pd = ibv_alloc_pd(context_);
    EXPECT_NE(pd, nullptr);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(DeviceTest, link_layer_addresses_follow_from_the_gid_where_they_can) {
    std::uint8_t mac[6] = {};
    std::uint16_t vlan = 0;
    ibv_ah_attr address{};
    const std::uint8_t link_local[16] = {0xfe, 0x80, 0,    0,    0,    0,    0,    0,
                                         0x00, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55};
    memcpy(address.grh.dgid.raw, link_local, 16);
    ASSERT_EQ(ibv_resolve_eth_l2_from_gid(context_, &address, mac, &vlan), 0);
    const std::uint8_t expected[6] = {0x02, 0x11, 0x22, 0x33, 0x44, 0x55};
    EXPECT_EQ(memcmp(mac, expected, 6), 0);
    EXPECT_EQ(vlan, 0xffff);
    // Another address is the card's to know.
    address.grh.dgid.raw[0] = 0x20;
    card_.refuse(abi::Op::kResolveAddress, EHOSTUNREACH);
    EXPECT_EQ(ibv_resolve_eth_l2_from_gid(context_, &address, mac, &vlan), -EHOSTUNREACH);
    EXPECT_EQ(ibv_resolve_eth_l2_from_gid(context_, &address, mac, &vlan), 0);
}

}  // namespace

}  // namespace rdmalab::verbs::testing

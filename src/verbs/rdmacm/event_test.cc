#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>

#include "verbs/rdmacm/testing.h"

namespace rdmalab::rdmacm::testing {
namespace {

using namespace std::chrono_literals;

TEST_F(RdmaCmTest, a_non_blocking_channel_answers_eagain_and_can_be_polled) {
    rdma_cm_id* id = make_id();
    fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_get_cm_event(channel_, &event), -1);
    EXPECT_EQ(errno, EAGAIN);
    cm_.raise(handle_of(id), abi::CmEventType::kUnreachable, -ETIMEDOUT);
    pollfd entry{.fd = channel_->fd, .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&entry, 1, 1000), 1);
    EXPECT_EQ(expect(RDMA_CM_EVENT_UNREACHABLE).status, -ETIMEDOUT);
    rdma_destroy_id(id);
}

TEST_F(RdmaCmTest, destroying_an_id_waits_for_events_that_are_not_acknowledged) {
    rdma_cm_id* id = make_id();
    cm_.raise(handle_of(id), abi::CmEventType::kAddrChange);
    rdma_cm_event* event = next_event();
    auto destroyed = std::async(std::launch::async, [&] { return rdma_destroy_id(id); });
    EXPECT_EQ(destroyed.wait_for(50ms), std::future_status::timeout);
    rdma_ack_cm_event(event);
    EXPECT_EQ(destroyed.get(), 0);
}

TEST_F(RdmaCmTest, destroying_an_id_does_not_wait_for_events_that_nobody_has_read) {
    rdma_cm_id* id = make_id();
    rdma_cm_id* other = make_id();
    cm_.raise(handle_of(id), abi::CmEventType::kAddrChange);
    cm_.raise(handle_of(other), abi::CmEventType::kDisconnected);
    EXPECT_EQ(rdma_destroy_id(id), 0);
    EXPECT_EQ(expect(RDMA_CM_EVENT_DISCONNECTED).id, other);
    rdma_destroy_id(other);
}

TEST_F(RdmaCmTest, after_the_card_has_died_each_bound_id_hears_of_it_once) {
    rdma_cm_id* bound = make_resolved_id();
    rdma_cm_id* unbound = make_id();
    cm_.die();
    EXPECT_EQ(expect(RDMA_CM_EVENT_DEVICE_REMOVAL).id, bound);
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_get_cm_event(channel_, &event), -1);
    EXPECT_EQ(errno, EIO);
    EXPECT_EQ(rdma_resolve_route(bound, 1000), -1);
    EXPECT_EQ(errno, EIO);
    EXPECT_EQ(rdma_destroy_id(bound), 0);
    EXPECT_EQ(rdma_destroy_id(unbound), 0);
}

TEST_F(RdmaCmTest, a_synchronous_id_waits_and_shows_the_event) {
    rdma_cm_id* id = nullptr;
    setenv("RDMALAB_SOCKET", card_.path().c_str(), 1);
    ASSERT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
    ASSERT_NE(id->channel, nullptr);
    sockaddr_storage peer = address("10.0.0.2", 7471);
    ASSERT_EQ(rdma_resolve_addr(id, nullptr, as_sockaddr(peer), 1000), 0);
    ASSERT_NE(id->event, nullptr);
    EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
    ASSERT_EQ(rdma_resolve_route(id, 1000), 0);
    EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
    make_qp(id);
    cm_.raise(handle_of(id), abi::CmEventType::kRejected, 28);
    rdma_conn_param param{};
    EXPECT_EQ(rdma_connect(id, &param), -1);
    EXPECT_EQ(errno, ECONNREFUSED);
    EXPECT_EQ(rdma_disconnect(id), 0);  // nothing to wait for
    rdma_destroy_ep(id);
}

TEST_F(RdmaCmTest, an_endpoint_gives_its_qp_attributes_to_what_it_accepts) {
    rdma_addrinfo hints{}, *found = nullptr;
    hints.ai_flags = RAI_PASSIVE;
    hints.ai_port_space = RDMA_PS_TCP;
    ASSERT_EQ(rdma_getaddrinfo("10.0.0.1", "7471", &hints, &found), 0);
    ibv_qp_init_attr init{};
    init.cap = {.max_send_wr = 4,
                .max_recv_wr = 4,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    rdma_cm_id *listener = nullptr, *id = nullptr;
    ASSERT_EQ(rdma_create_ep(&listener, found, nullptr, &init), 0);
    rdma_freeaddrinfo(found);
    ASSERT_EQ(rdma_listen(listener, 0), 0);
    std::uint32_t handle = cm_.raise_request(handle_of(listener));
    ASSERT_EQ(rdma_get_request(listener, &id), 0);
    ASSERT_NE(id->qp, nullptr);
    EXPECT_EQ(id->qp->qp_type, IBV_QPT_RC);
    EXPECT_EQ(id->event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_NE(id->channel, listener->channel);
    cm_.raise(handle, abi::CmEventType::kEstablished);
    EXPECT_EQ(rdma_accept(id, nullptr), 0);
    EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
    rdma_destroy_ep(id);
    rdma_destroy_ep(listener);
}

TEST_F(RdmaCmTest, an_id_moves_to_another_channel) {
    rdma_cm_id* id = make_resolved_id();
    rdma_event_channel* other = rdma_create_event_channel();
    if (other == nullptr) GTEST_SKIP();
    ASSERT_EQ(rdma_migrate_id(id, other), 0);
    EXPECT_EQ(id->channel, other);
    cm_.raise(handle_of(id), abi::CmEventType::kAddrChange);
    rdma_cm_event* event = nullptr;
    ASSERT_EQ(rdma_get_cm_event(other, &event), 0);
    EXPECT_EQ(event->id, id);
    rdma_ack_cm_event(event);
    rdma_destroy_id(id);
    rdma_destroy_event_channel(other);
}

TEST_F(RdmaCmTest, joining_a_group_attaches_the_qp_and_leaving_detaches_it) {
    rdma_cm_id* id = make_resolved_id(RDMA_PS_UDP);
    make_qp(id, IBV_QPT_UD);
    sockaddr_storage group = address("239.1.1.1", 0);
    int context = 0;
    ASSERT_EQ(rdma_join_multicast(id, as_sockaddr(group), &context), 0);
    auto request = cm_.last<abi::CmJoinMcastRequest>(abi::CmOp::kJoinMcast);
    EXPECT_EQ(request.join_flags, std::uint32_t{RDMA_MC_JOIN_FLAG_FULLMEMBER});
    cm_.raise(handle_of(id), abi::CmEventType::kMulticastJoin, 0, [&](abi::CmEventRecord& r) {
        r.mc_cookie = request.cookie;
        r.ud.qp_num = 0xffffff;
        r.ud.ah.dgid[0] = 0xff;
    });
    rdma_cm_event* event = next_event();
    EXPECT_EQ(event->event, RDMA_CM_EVENT_MULTICAST_JOIN);
    EXPECT_EQ(event->param.ud.private_data, &context);
    EXPECT_EQ(event->param.ud.qp_num, 0xffffffu);
    EXPECT_EQ(card_.requests(abi::Op::kAttachMcast), 1u);
    rdma_ack_cm_event(event);
    EXPECT_EQ(rdma_leave_multicast(id, as_sockaddr(group)), 0);
    EXPECT_EQ(card_.requests(abi::Op::kDetachMcast), 1u);
    EXPECT_EQ(rdma_leave_multicast(id, as_sockaddr(group)), -1);
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
}

TEST_F(RdmaCmTest, a_send_only_member_is_not_attached) {
    rdma_cm_id* id = make_resolved_id(RDMA_PS_UDP);
    make_qp(id, IBV_QPT_UD);
    sockaddr_storage group = address("239.1.1.1", 0);
    rdma_cm_join_mc_attr_ex attributes{};
    attributes.comp_mask = RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    attributes.addr = as_sockaddr(group);
    EXPECT_EQ(rdma_join_multicast_ex(id, &attributes, nullptr), -1);
    EXPECT_EQ(errno, EINVAL);  // no address
    attributes.comp_mask |= RDMA_CM_JOIN_MC_ATTR_ADDRESS;
    attributes.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
    ASSERT_EQ(rdma_join_multicast_ex(id, &attributes, nullptr), 0);
    auto request = cm_.last<abi::CmJoinMcastRequest>(abi::CmOp::kJoinMcast);
    cm_.raise(handle_of(id), abi::CmEventType::kMulticastJoin, 0,
              [&](abi::CmEventRecord& r) { r.mc_cookie = request.cookie; });
    expect(RDMA_CM_EVENT_MULTICAST_JOIN);
    EXPECT_EQ(card_.requests(abi::Op::kAttachMcast), 0u);
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
}

TEST_F(RdmaCmTest, options_are_passed_on) {
    rdma_cm_id* id = make_id();
    std::uint8_t tos = 0x28;
    ASSERT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos), 0);
    auto sent = cm_.last<abi::CmSetOptionRequest>(abi::CmOp::kSetOption);
    EXPECT_EQ(sent.value, 0x28u);
    EXPECT_EQ(sent.length, 1u);
    char long_value[64] = {};
    EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, 0, long_value, sizeof long_value), -1);
    EXPECT_EQ(errno, EINVAL);
    rdma_destroy_id(id);
}

TEST_F(RdmaCmTest, a_given_path_resolves_the_route) {
    rdma_cm_id* id = make_resolved_id();
    ibv_path_data path{};
    ASSERT_EQ(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof path), 0);
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, 3), -1);
    rdma_destroy_id(id);
}

TEST_F(RdmaCmTest, the_devices_are_those_of_the_session) {
    int count = 0;
    ibv_context** list = rdma_get_devices(&count);
    ASSERT_NE(list, nullptr);
    EXPECT_EQ(count, 2);
    EXPECT_STREQ(ibv_get_device_name(list[1]->device), "mlx5_3");
    EXPECT_EQ(list[2], nullptr);
    rdma_free_devices(list);
}

TEST_F(RdmaCmTest, the_child_of_a_fork_has_a_session_of_its_own) {
    rdma_cm_id* id = make_resolved_id();
    pid_t child = fork();
    if (child == 0) {
        // The parent's objects are of no use; new ones are made with the card that is named now.
        bool is_cut_off = rdma_resolve_route(id, 100) == -1 && errno == EIO;
        _exit(is_cut_off && channel_->fd == -1 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(rdma_resolve_route(id, 1000), 0);
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    rdma_destroy_id(id);
}

TEST(GetAddrInfo, a_node_and_a_service_become_the_destination) {
    rdma_addrinfo* found = nullptr;
    ASSERT_EQ(rdma_getaddrinfo("10.0.0.2", "7471", nullptr, &found), 0);
    ASSERT_NE(found->ai_dst_addr, nullptr);
    EXPECT_EQ(found->ai_dst_addr->sa_family, AF_INET);
    EXPECT_EQ(found->ai_src_len, 0u);
    EXPECT_EQ(found->ai_qp_type, IBV_QPT_RC);
    EXPECT_EQ(found->ai_port_space, RDMA_PS_TCP);
    EXPECT_EQ(found->ai_next, nullptr);
    rdma_freeaddrinfo(found);
}

TEST(GetAddrInfo, the_passive_side_gets_a_source) {
    rdma_addrinfo hints{}, *found = nullptr;
    hints.ai_flags = RAI_PASSIVE;
    hints.ai_port_space = RDMA_PS_UDP;
    ASSERT_EQ(rdma_getaddrinfo(nullptr, "7471", &hints, &found), 0);
    EXPECT_NE(found->ai_src_addr, nullptr);
    EXPECT_EQ(found->ai_dst_addr, nullptr);
    EXPECT_EQ(found->ai_qp_type, IBV_QPT_UD);
    rdma_freeaddrinfo(found);
}

TEST(GetAddrInfo, hints_may_carry_the_addresses) {
    sockaddr_storage source = address("10.0.0.1", 0), destination = address("10.0.0.2", 5);
    rdma_addrinfo hints{}, *found = nullptr;
    hints.ai_src_addr = as_sockaddr(source);
    hints.ai_src_len = sizeof(sockaddr_in);
    hints.ai_dst_addr = as_sockaddr(destination);
    hints.ai_dst_len = sizeof(sockaddr_in);
    ASSERT_EQ(rdma_getaddrinfo(nullptr, nullptr, &hints, &found), 0);
    EXPECT_EQ(found->ai_family, AF_INET);
    ASSERT_NE(found->ai_dst_addr, nullptr);
    EXPECT_EQ(memcmp(found->ai_dst_addr, &destination, sizeof(sockaddr_in)), 0);
    EXPECT_EQ(memcmp(found->ai_src_addr, &source, sizeof(sockaddr_in)), 0);
    rdma_freeaddrinfo(found);
}

TEST(GetAddrInfo, a_gid_becomes_an_address_of_its_own_family) {
    rdma_addrinfo hints{}, *found = nullptr;
    hints.ai_flags = RAI_NUMERICHOST | RAI_FAMILY;
    hints.ai_family = AF_IB;
    hints.ai_port_space = RDMA_PS_TCP;
    ASSERT_EQ(rdma_getaddrinfo("::ffff:10.0.0.2", "7471", &hints, &found), 0);
    ASSERT_EQ(found->ai_dst_addr->sa_family, AF_IB);
    EXPECT_EQ(found->ai_dst_len, sizeof(sockaddr_ib));
    auto* gid = reinterpret_cast<sockaddr_ib*>(found->ai_dst_addr);
    EXPECT_EQ(be64toh(gid->sib_sid), RDMA_IB_IP_PS_TCP | 7471);
    EXPECT_EQ(gid->sib_addr.sib_raw[15], 2);
    rdma_freeaddrinfo(found);
}

TEST(GetAddrInfo, nothing_to_look_up_is_an_error) {
    rdma_addrinfo* found = nullptr;
    EXPECT_EQ(rdma_getaddrinfo(nullptr, nullptr, nullptr, &found), -1);
    EXPECT_EQ(errno, EINVAL);
    rdma_addrinfo hints{};
    hints.ai_flags = RAI_NUMERICHOST;
    EXPECT_EQ(rdma_getaddrinfo("no-number", nullptr, &hints, &found), EAI_NONAME);
}

TEST(EventNames, every_event_has_a_name) {
    EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_ADDR_RESOLVED), "RDMA_CM_EVENT_ADDR_RESOLVED");
    EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT");
}

}  // namespace
}  // namespace rdmalab::rdmacm::testing

#include <arpa/inet.h>
#include <fcntl.h>
#include <string.h>

#include <chrono>
#include <future>

#include "base/limits.h"
#include "verbs/rdmacm/id.h"
#include "verbs/rdmacm/testing.h"

namespace rdmalab::rdmacm::testing {
namespace {

using namespace std::chrono_literals;

TEST_F(RdmaCmTest, binding_to_an_address_finds_the_device) {
    rdma_cm_id* id = make_id();
    sockaddr_storage local = address("10.0.0.1", 7471);
    ASSERT_EQ(rdma_bind_addr(id, as_sockaddr(local)), 0);
    ASSERT_NE(id->verbs, nullptr);
    EXPECT_STREQ(ibv_get_device_name(id->verbs->device), "mlx5_2");
    EXPECT_NE(id->pd, nullptr);
    EXPECT_EQ(id->port_num, 1);
    EXPECT_EQ(rdma_get_src_port(id), htons(7471));
    EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(RdmaCmTest, binding_to_the_wildcard_finds_none) {
    rdma_cm_id* id = make_id();
    sockaddr_storage local = address("0.0.0.0", 0);
    ASSERT_EQ(rdma_bind_addr(id, as_sockaddr(local)), 0);
    EXPECT_EQ(id->verbs, nullptr);
    EXPECT_NE(rdma_get_src_port(id), 0);
    EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(RdmaCmTest, ids_on_one_device_share_context_and_protection_domain) {
    rdma_cm_id* first = make_resolved_id();
    rdma_cm_id* second = make_resolved_id();
    EXPECT_EQ(first->verbs, second->verbs);
    EXPECT_EQ(first->pd, second->pd);
    rdma_destroy_id(first);
    rdma_destroy_id(second);
    EXPECT_EQ(card_.requests(abi::Op::kOpenContext), 1u);
    EXPECT_EQ(card_.requests(abi::Op::kDeallocPd), 1u);
}

TEST_F(RdmaCmTest, an_address_of_no_device_is_refused_with_the_cards_status) {
    rdma_cm_id* id = make_id();
    cm_.refuse(abi::CmOp::kBind, EADDRNOTAVAIL, "10.9.9.9 is an address of no device");
    sockaddr_storage local = address("10.9.9.9", 0);
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(rdma_bind_addr(id, as_sockaddr(local)), -1);
    EXPECT_EQ(errno, EADDRNOTAVAIL);
    EXPECT_NE(::testing::internal::GetCapturedStderr().find("10.9.9.9"), std::string::npos);
    rdma_destroy_id(id);
}

TEST_F(RdmaCmTest, a_resolved_route_has_one_path) {
    rdma_cm_id* id = make_resolved_id();
    ASSERT_EQ(id->route.num_paths, 1);
    EXPECT_EQ(id->route.path_rec->mtu, IBV_MTU_4096);
    EXPECT_EQ(id->route.path_rec->pkey, htons(0xffff));
    EXPECT_EQ(id->route.addr.addr.ibaddr.dgid.raw[15], 2);
    EXPECT_EQ(rdma_get_dst_port(id), htons(7471));
    rdma_destroy_id(id);
}

TEST_F(RdmaCmTest, an_answer_to_a_connection_with_a_qp_makes_it_ready_and_is_shown_as_established) {
    rdma_cm_id* id = make_resolved_id();
    make_qp(id);
    EXPECT_EQ(state_of(id->qp), IBV_QPS_INIT);
    rdma_conn_param param{};
    param.private_data = "hello";
    param.private_data_len = 5;
    param.initiator_depth = 2;
    ASSERT_EQ(rdma_connect(id, &param), 0);
    auto sent = cm_.last<abi::CmConnectRequest>(abi::CmOp::kConnect);
    EXPECT_EQ(sent.conn.qp_num, id->qp->qp_num);
    EXPECT_EQ(sent.conn.qp_type, IBV_QPT_RC);
    EXPECT_EQ(sent.conn.initiator_depth, 2);
    EXPECT_EQ(sent.private_data.length, 5u);
    EXPECT_EQ(memcmp(sent.private_data.bytes, "hello", 5), 0);

    cm_.raise(handle_of(id), abi::CmEventType::kConnectResponse, 0, [](abi::CmEventRecord& r) {
        r.conn.responder_resources = 9;
        r.private_data.length = abi::kCmAcceptData;
        memcpy(r.private_data.bytes, "welcome", 7);
    });
    rdma_cm_event* event = next_event();
    EXPECT_EQ(event->event, RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(event->param.conn.responder_resources, 9);
    ASSERT_EQ(event->param.conn.private_data_len, abi::kCmAcceptData);
    EXPECT_EQ(memcmp(event->param.conn.private_data, "welcome", 7), 0);
    rdma_ack_cm_event(event);
    EXPECT_EQ(state_of(id->qp), IBV_QPS_RTS);
    EXPECT_EQ(cm_.requests(abi::CmOp::kEstablish), 1u);
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
}

TEST_F(RdmaCmTest, without_a_qp_the_program_sees_the_answer_and_establishes) {
    rdma_cm_id* id = make_resolved_id();
    rdma_conn_param param{};
    param.qp_num = 0x123;
    param.srq = 1;
    ASSERT_EQ(rdma_connect(id, &param), 0);
    auto sent = cm_.last<abi::CmConnectRequest>(abi::CmOp::kConnect);
    EXPECT_EQ(sent.conn.qp_num, 0x123u);
    EXPECT_EQ(sent.conn.srq, 1);
    cm_.raise(handle_of(id), abi::CmEventType::kConnectResponse);
    expect(RDMA_CM_EVENT_CONNECT_RESPONSE);
    EXPECT_EQ(cm_.requests(abi::CmOp::kEstablish), 0u);
    ibv_qp_attr attributes{};
    int mask = 0;
    attributes.qp_state = IBV_QPS_RTR;
    ASSERT_EQ(rdma_init_qp_attr(id, &attributes, &mask), 0);
    EXPECT_EQ(attributes.dest_qp_num, 0x77u);
    EXPECT_NE(mask & IBV_QP_DEST_QPN, 0);
    EXPECT_EQ(rdma_establish(id), 0);
    EXPECT_EQ(cm_.requests(abi::CmOp::kEstablish), 1u);
    rdma_destroy_id(id);
}

TEST_F(RdmaCmTest, an_answer_that_cannot_be_used_is_refused_and_shown_as_one_error) {
    rdma_cm_id* id = make_resolved_id();
    make_qp(id);
    rdma_conn_param param{};
    ASSERT_EQ(rdma_connect(id, &param), 0);
    cm_.refuse(abi::CmOp::kEstablish, EINVAL);
    cm_.raise(handle_of(id), abi::CmEventType::kConnectResponse);
    EXPECT_EQ(expect(RDMA_CM_EVENT_CONNECT_ERROR).status, -EINVAL);
    EXPECT_EQ(cm_.requests(abi::CmOp::kReject), 1u);
    EXPECT_EQ(state_of(id->qp), IBV_QPS_ERR);
    cm_.raise(handle_of(id), abi::CmEventType::kRejected, 28);
    cm_.raise(handle_of(id), abi::CmEventType::kTimewaitExit);
    expect(RDMA_CM_EVENT_TIMEWAIT_EXIT);  // the rejection is no news
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
}

TEST_F(RdmaCmTest, a_rejection_tells_reason_and_private_data_and_fails_the_qp) {
    rdma_cm_id* id = make_resolved_id();
    make_qp(id);
    rdma_conn_param param{};
    ASSERT_EQ(rdma_connect(id, &param), 0);
    cm_.raise(handle_of(id), abi::CmEventType::kRejected, 28, [](abi::CmEventRecord& r) {
        r.private_data.length = abi::kCmRejectData;
        memcpy(r.private_data.bytes, "no", 2);
    });
    rdma_cm_event* event = next_event();
    EXPECT_EQ(event->event, RDMA_CM_EVENT_REJECTED);
    EXPECT_EQ(event->status, 28);
    EXPECT_EQ(memcmp(event->param.conn.private_data, "no", 2), 0);
    rdma_ack_cm_event(event);
    EXPECT_EQ(state_of(id->qp), IBV_QPS_ERR);
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
}

TEST_F(RdmaCmTest, a_request_gives_a_new_id_which_accepts_with_its_own_depths) {
    rdma_cm_id* listener = make_id();
    sockaddr_storage local = address("10.0.0.1", 7471);
    ASSERT_EQ(rdma_bind_addr(listener, as_sockaddr(local)), 0);
    ASSERT_EQ(rdma_listen(listener, 5), 0);
    EXPECT_EQ(cm_.last<abi::CmListenRequest>(abi::CmOp::kListen).backlog, 5);
    abi::CmEventRecord record{};
    record.conn.responder_resources = 7;
    record.conn.initiator_depth = 200;  // more than the device has
    std::uint32_t handle = cm_.raise_request(handle_of(listener), record);
    rdma_cm_event* event = next_event();
    ASSERT_EQ(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(event->listen_id, listener);
    rdma_cm_id* id = event->id;
    EXPECT_EQ(handle_of(id), handle);
    EXPECT_EQ(id->context, listener->context);
    EXPECT_EQ(id->route.num_paths, 1);
    EXPECT_EQ(cm_.requests(abi::CmOp::kAdopt), 1u);
    make_qp(id);
    ASSERT_EQ(rdma_accept(id, nullptr), 0);
    auto sent = cm_.last<abi::CmConnectRequest>(abi::CmOp::kAccept);
    EXPECT_EQ(sent.conn.responder_resources, 7);
    EXPECT_EQ(sent.conn.initiator_depth, limits::kReadsMax);
    EXPECT_EQ(state_of(id->qp), IBV_QPS_RTS);
    EXPECT_EQ(attributes_of(id->qp).reads_outstanding, limits::kReadsMax);
    rdma_ack_cm_event(event);
    cm_.raise(handle, abi::CmEventType::kEstablished);
    EXPECT_EQ(expect(RDMA_CM_EVENT_ESTABLISHED).id, id);
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
    rdma_destroy_id(listener);
}

TEST_F(RdmaCmTest, rejecting_names_the_reason) {
    rdma_cm_id* listener = make_id();
    cm_.raise_request(handle_of(listener));
    rdma_cm_event* event = next_event();
    char data[255] = "go away";
    EXPECT_EQ(rdma_reject(event->id, data, 255), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(rdma_reject(event->id, data, 7), 0);
    EXPECT_EQ(cm_.last<abi::CmRejectRequest>(abi::CmOp::kReject).reason, 28);
    EXPECT_EQ(rdma_reject_ece(event->id, data, 7), 0);
    EXPECT_EQ(cm_.last<abi::CmRejectRequest>(abi::CmOp::kReject).reason, 35);
    rdma_cm_id* id = event->id;
    rdma_ack_cm_event(event);
    rdma_destroy_id(id);
    rdma_destroy_id(listener);
}

TEST_F(RdmaCmTest, disconnecting_fails_the_qp) {
    rdma_cm_id* id = make_resolved_id();
    make_qp(id);
    ASSERT_EQ(rdma_disconnect(id), 0);
    EXPECT_EQ(state_of(id->qp), IBV_QPS_ERR);
    EXPECT_EQ(cm_.requests(abi::CmOp::kDisconnect), 1u);
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
}

TEST_F(RdmaCmTest, depths_beyond_the_device_are_invalid) {
    rdma_cm_id* id = make_resolved_id();
    make_qp(id);
    rdma_conn_param param{};
    param.responder_resources = 100;
    EXPECT_EQ(rdma_connect(id, &param), -1);
    EXPECT_EQ(errno, EINVAL);
    param.responder_resources = RDMA_MAX_RESP_RES;
    param.initiator_depth = RDMA_MAX_INIT_DEPTH;
    EXPECT_EQ(rdma_connect(id, &param), 0);
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
}

TEST_F(RdmaCmTest, a_datagram_qp_is_ready_at_once) {
    rdma_cm_id* id = make_resolved_id(RDMA_PS_UDP);
    make_qp(id, IBV_QPT_UD);
    EXPECT_EQ(state_of(id->qp), IBV_QPS_RTS);
    ASSERT_EQ(rdma_connect(id, nullptr), 0);
    cm_.raise(handle_of(id), abi::CmEventType::kEstablished, 0, [](abi::CmEventRecord& r) {
        r.ud.qp_num = 0x55;
        r.ud.qkey = RDMA_UDP_QKEY;
        r.ud.ah.is_global = 1;
    });
    rdma_cm_event event = expect(RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(event.param.ud.qp_num, 0x55u);
    EXPECT_EQ(event.param.ud.qkey, std::uint32_t{RDMA_UDP_QKEY});
    EXPECT_EQ(event.param.ud.ah_attr.is_global, 1);
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
}

TEST_F(RdmaCmTest, ece_is_for_ids_without_a_qp) {
    rdma_cm_id* id = make_resolved_id();
    ibv_ece ece{.vendor_id = 0x15b3, .options = 5, .comp_mask = 0};
    EXPECT_EQ(rdma_set_local_ece(id, &ece), 0);
    rdma_conn_param param{};
    ASSERT_EQ(rdma_connect(id, &param), 0);
    EXPECT_EQ(cm_.last<abi::CmConnectRequest>(abi::CmOp::kConnect).ece.vendor_id, 0x15b3u);
    cm_.raise(handle_of(id), abi::CmEventType::kConnectResponse, 0,
              [](abi::CmEventRecord& r) { r.remote_ece = {.vendor_id = 0x42, .options = 3}; });
    expect(RDMA_CM_EVENT_CONNECT_RESPONSE);
    ASSERT_EQ(rdma_get_remote_ece(id, &ece), 0);
    EXPECT_EQ(ece.vendor_id, 0x42u);
    make_qp(id);
    EXPECT_EQ(rdma_get_remote_ece(id, &ece), -1);
    EXPECT_EQ(rdma_set_local_ece(id, &ece), -1);
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
}

TEST_F(RdmaCmTest, completion_queues_that_are_not_given_are_made_with_channels) {
    rdma_cm_id* id = make_resolved_id();
    make_qp(id);
    ASSERT_NE(id->send_cq, nullptr);
    ASSERT_NE(id->recv_cq, nullptr);
    EXPECT_NE(id->send_cq_channel->fd, id->recv_cq_channel->fd);
    EXPECT_EQ(id->send_cq->cq_context, id);
    EXPECT_EQ(id->qp->send_cq, id->send_cq);
    rdma_destroy_qp(id);
    EXPECT_EQ(id->send_cq, nullptr);
    EXPECT_EQ(id->recv_cq_channel, nullptr);
    EXPECT_EQ(card_.requests(abi::Op::kDestroyCq), 2u);
    rdma_destroy_id(id);
}

TEST_F(RdmaCmTest, an_id_has_one_qp) {
    rdma_cm_id* id = make_resolved_id();
    make_qp(id);
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_RC;
    EXPECT_EQ(rdma_create_qp(id, nullptr, &init), -1);
    EXPECT_EQ(errno, EINVAL);
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
}

TEST_F(RdmaCmTest, a_shared_receive_queue_serves_the_qp) {
    rdma_cm_id* id = make_resolved_id();
    ibv_srq_init_attr attributes{};
    attributes.attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0};
    ASSERT_EQ(rdma_create_srq(id, nullptr, &attributes), 0);
    ASSERT_NE(id->srq, nullptr);
    make_qp(id);
    EXPECT_EQ(id->qp->srq, id->srq);
    rdma_destroy_qp(id);
    rdma_destroy_srq(id);
    EXPECT_EQ(id->srq, nullptr);
    rdma_destroy_id(id);
}

}  // namespace
}  // namespace rdmalab::rdmacm::testing

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "verbs/fixture.h"

namespace rdmalab::verbs::testing {

namespace {

class EventsTest : public QpTest {
protected:
    void SetUp() override {
        QpTest::SetUp();
        channel_ = ibv_create_comp_channel(context_);
        ASSERT_NE(channel_, nullptr);
        armed_ = ibv_create_cq(context_, 8, &tag_, channel_, 0);
        ASSERT_NE(armed_, nullptr);
    }
    void TearDown() override {
        if (armed_ != nullptr) {
            EXPECT_EQ(ibv_destroy_cq(armed_), 0);
        }
        if (channel_ != nullptr) {
            EXPECT_EQ(ibv_destroy_comp_channel(channel_), 0);
        }
        QpTest::TearDown();
    }
    std::uint32_t channel_handle() { return card_.context().cq_channels.at(armed_->handle); }
    void notify(std::uint32_t cq) { card_.notify(channel_handle(), {cq, cq + 1000}); }

    int tag_ = 0;
    ibv_comp_channel* channel_ = nullptr;
    ibv_cq* armed_ = nullptr;
};

TEST_F(EventsTest, arming_is_seen_by_the_card_and_never_narrowed) {
    abi::CqHeader& header = card_.cq_header(armed_->handle);
    ASSERT_EQ(ibv_req_notify_cq(armed_, 1), 0);
    EXPECT_EQ(header.arm, abi::kArmSolicited);
    ASSERT_EQ(ibv_req_notify_cq(armed_, 0), 0);
    EXPECT_EQ(header.arm, abi::kArmAny);
    ASSERT_EQ(ibv_req_notify_cq(armed_, 1), 0);
    EXPECT_EQ(header.arm, abi::kArmAny);
}

TEST_F(EventsTest, an_event_names_its_cq_and_the_programs_context) {
    notify(armed_->handle);
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel_, &cq, &cq_context), 0);
    EXPECT_EQ(cq, armed_);
    EXPECT_EQ(cq_context, &tag_);
    ibv_ack_cq_events(cq, 1);
}

TEST_F(EventsTest, events_of_destroyed_queues_are_skipped) {
    fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
    ibv_cq* gone = ibv_create_cq(context_, 8, nullptr, channel_, 0);
    notify(gone->handle);
    ASSERT_EQ(ibv_destroy_cq(gone), 0);
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    EXPECT_EQ(ibv_get_cq_event(channel_, &cq, &cq_context), -1);
    EXPECT_EQ(errno, EAGAIN);
    card_.notify(channel_handle(), {armed_->handle, 1});  // of a former owner of the handle
    notify(armed_->handle);
    ASSERT_EQ(ibv_get_cq_event(channel_, &cq, &cq_context), 0);
    ibv_ack_cq_events(cq, 1);
    EXPECT_EQ(ibv_get_cq_event(channel_, &cq, &cq_context), -1);
}

TEST_F(EventsTest, destroying_a_cq_waits_until_its_events_are_acknowledged) {
    notify(armed_->handle);
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel_, &cq, &cq_context), 0);
    std::atomic<bool> destroyed{false};
    std::thread destroyer([&] {
        ibv_destroy_cq(armed_);
        destroyed = true;
    });
    std::this_thread::sleep_for(std::chrono::microseconds(30'000));
    EXPECT_FALSE(destroyed);
    ibv_ack_cq_events(cq, 1);
    destroyer.join();
    armed_ = nullptr;
}

TEST_F(EventsTest, a_channel_with_queues_is_busy) {
    EXPECT_EQ(ibv_destroy_comp_channel(channel_), EBUSY);
}

TEST_F(EventsTest, asynchronous_events_find_their_objects) {
    card_.raise({IBV_EVENT_QP_ACCESS_ERR, qpn(), qpn() + 1000, 0});
    card_.raise({IBV_EVENT_CQ_ERR, armed_->handle, armed_->handle + 1000, 0});
    card_.raise({IBV_EVENT_QP_FATAL, 0x777777, 1, 0});  // long gone
    card_.raise({IBV_EVENT_PORT_ACTIVE, 1, 0, 0});
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
    EXPECT_EQ(event.element.qp, qp_);
    ibv_ack_async_event(&event);
    ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
    EXPECT_EQ(event.element.cq, armed_);
    ibv_ack_async_event(&event);
    ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ACTIVE);
    EXPECT_EQ(event.element.port_num, 1);
    ibv_ack_async_event(&event);
}

TEST_F(EventsTest, the_end_of_the_card_is_one_fatal_event_and_eio_everywhere) {
    card_.die();
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_DEVICE_FATAL);
    ibv_ack_async_event(&event);
    EXPECT_EQ(ibv_get_async_event(context_, &event), -1);
    EXPECT_EQ(errno, EIO);

    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    EXPECT_EQ(ibv_get_cq_event(channel_, &cq, &cq_context), -1);
    EXPECT_EQ(errno, EIO);
    ibv_wc wc{};
    EXPECT_LT(ibv_poll_cq(cq_, 1, &wc), 0);
    ibv_sge list[] = {sge(0, 8)};
    EXPECT_EQ(send(1, list, 1), EIO);
    EXPECT_EQ(recv(1, list, 1), EIO);
    EXPECT_EQ(ibv_alloc_pd(context_), nullptr);
    EXPECT_EQ(errno, EIO);
    ibv_port_attr port{};
    EXPECT_EQ(ibv_query_port(context_, 1, &port), EIO);
}

TEST_F(EventsTest, a_poller_alone_notices_the_end_of_the_card) {
    card_.die();
    ibv_wc wc{};
    int status = 0;
    for (int i = 0; i < 100'000 && status == 0; ++i) status = ibv_poll_cq(cq_, 1, &wc);
    EXPECT_LT(status, 0);
}

}  // namespace

}  // namespace rdmalab::verbs::testing

#include "card/rings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/limits.h"

namespace rdmalab::card {
namespace {

using transport::QpType;
using transport::RecvWqe;
using transport::SendWqe;
using transport::WrOpcode;

// Memory as a client shares it: zeroed, aligned.
struct SharedMemory {
    explicit SharedMemory(std::size_t length) : chunks((length + 63) / 64) {}
    std::byte* base() { return reinterpret_cast<std::byte*>(chunks.data()); }
    struct alignas(64) Chunk {
        std::byte bytes[64]{};
    };
    std::vector<Chunk> chunks;
};

class SendRingTest : public ::testing::Test {
protected:
    static constexpr std::uint32_t kCapacity = 4, kSgeMax = 2;
    SendRingTest()
        : stride(send_stride(kSgeMax, 0)), memory(send_region_length(kCapacity, stride)) {
        use(QpType::kRc);
    }
    void use(QpType type) { ring = SendRing(memory.base(), {kCapacity, stride, kSgeMax, type}); }
    std::byte* entry(std::uint32_t index) {
        return memory.base() + abi::kRingHeaderSize + (index % kCapacity) * stride;
    }
    void publish(std::uint32_t producer) {
        reinterpret_cast<abi::QueueHeader*>(memory.base())->producer.store(producer);
    }
    void post(std::uint32_t index, const abi::SendEntry& head,
              const std::vector<abi::Sge>& sges = {}, const std::string& payload = {}) {
        std::byte* at = entry(index);
        store_bytes(at, head);
        std::copy(sges.begin(), sges.end(), reinterpret_cast<abi::Sge*>(at + 64));
        std::memcpy(at + 64 + sges.size() * sizeof(abi::Sge), payload.c_str(), payload.size());
        publish(index + 1);
    }
    static abi::SendEntry head_of(abi::SendOpcode opcode, std::uint8_t sge_count = 0) {
        abi::SendEntry head{};
        head.opcode = static_cast<std::uint8_t>(opcode);
        head.sge_count = sge_count;
        return head;
    }
    bool malformed(const abi::SendEntry& head, const std::vector<abi::Sge>& sges = {},
                   const std::string& payload = {}) {
        post(0, head, sges, payload);
        use(ring_type);
        EXPECT_TRUE(ring.fetch(wqe));
        return wqe.malformed;
    }

    std::uint32_t stride;
    SharedMemory memory;
    SendRing ring;
    SendWqe wqe;
    QpType ring_type = QpType::kRc;
};

TEST_F(SendRingTest, strides_follow_the_rules_of_the_abi) {
    EXPECT_EQ(send_stride(1, 0), 384u);  // 64 + 16 + 256 for small payload
    EXPECT_EQ(send_stride(32, 1024), 1600u);
    EXPECT_EQ(recv_stride(1), 320u);
    EXPECT_EQ(recv_stride(32), 832u);
}

TEST_F(SendRingTest, an_entry_comes_out_with_all_its_fields) {
    abi::SendEntry head = head_of(abi::SendOpcode::kWriteImm, 2);
    head.wr_id = 77;
    head.flags = abi::kSendSignaled | abi::kSendFence;
    head.immediate = 0xaabbccdd;
    head.remote_address = 0x1000;
    head.rkey = 0x202;
    post(0, head, {{0x10, 100, 1}, {0x20, 28, 2}});
    ASSERT_TRUE(ring.fetch(wqe));
    EXPECT_FALSE(wqe.malformed);
    EXPECT_EQ(wqe.wr_id, 77u);
    EXPECT_EQ(wqe.ring_index, 0u);
    EXPECT_EQ(wqe.opcode, WrOpcode::kWriteImm);
    EXPECT_TRUE(wqe.signaled && wqe.fence);
    EXPECT_FALSE(wqe.solicited || wqe.is_inline);
    EXPECT_EQ(wqe.immediate, 0xaabbccddu);
    EXPECT_EQ(wqe.remote_address, 0x1000u);
    EXPECT_EQ(wqe.rkey.value, 0x202u);
    EXPECT_EQ(wqe.length, 128u);
    EXPECT_EQ(wqe.sges[1].address, 0x20u);
    EXPECT_EQ(wqe.sges[1].lkey.value, 2u);
    EXPECT_FALSE(ring.fetch(wqe));
    EXPECT_FALSE(ring.is_broken());
}

TEST_F(SendRingTest, indexes_wrap_around_capacity_and_keep_growing) {
    for (std::uint32_t i = 0; i < 3 * kCapacity; ++i) {
        abi::SendEntry head = head_of(abi::SendOpcode::kSend);
        head.wr_id = i;
        post(i, head);
        ASSERT_TRUE(ring.fetch(wqe));
        EXPECT_EQ(wqe.wr_id, i);
        EXPECT_EQ(wqe.ring_index, i);
    }
}

TEST_F(SendRingTest, inline_data_hides_the_sges_and_small_payload_keeps_them) {
    abi::SendEntry head = head_of(abi::SendOpcode::kSend, 1);
    head.data_length = 5;
    head.flags = abi::kSendInline;
    post(0, head, {{0x10, 5, 1}}, "hello");
    ASSERT_TRUE(ring.fetch(wqe));
    EXPECT_TRUE(wqe.is_inline);
    EXPECT_EQ(wqe.sge_count, 0);
    EXPECT_EQ(wqe.length, 5u);
    EXPECT_EQ(std::memcmp(wqe.inline_data.data(), "hello", 5), 0);

    head.flags = abi::kSendSmall;
    post(1, head, {{0x10, 5, 1}}, "world");
    ASSERT_TRUE(ring.fetch(wqe));
    EXPECT_FALSE(wqe.is_inline);
    EXPECT_EQ(wqe.sge_count, 1);
    EXPECT_EQ(std::memcmp(wqe.inline_data.data(), "world", 5), 0);
}

TEST_F(SendRingTest, entries_that_make_no_sense_are_malformed) {
    abi::SendEntry head = head_of(abi::SendOpcode::kSend);
    EXPECT_FALSE(malformed(head));
    head.opcode = 11;
    EXPECT_TRUE(malformed(head));
    head.opcode = 255;
    EXPECT_TRUE(malformed(head));
    head = head_of(abi::SendOpcode::kSend, kSgeMax + 1);
    EXPECT_TRUE(malformed(head));
    head.sge_count = 255;
    EXPECT_TRUE(malformed(head));

    head = head_of(abi::SendOpcode::kSend);
    head.flags = abi::kSendInline;
    head.data_length = stride - 64;
    EXPECT_FALSE(malformed(head));
    head.data_length = stride - 63;  // reaches into the next entry
    EXPECT_TRUE(malformed(head));
    head.data_length = 0xffff'ffff;
    EXPECT_TRUE(malformed(head));
    head = head_of(abi::SendOpcode::kRead);
    head.flags = abi::kSendInline;
    EXPECT_TRUE(malformed(head));
    head = head_of(abi::SendOpcode::kSend, 1);
    head.flags = abi::kSendSmall;
    head.data_length = 4;
    EXPECT_TRUE(malformed(head, {{0x10, 5, 1}}, "four"));  // not what the SGEs say
}

TEST_F(SendRingTest, each_service_has_its_operations) {
    ring_type = QpType::kUc;
    EXPECT_FALSE(malformed(head_of(abi::SendOpcode::kWriteImm)));
    EXPECT_TRUE(malformed(head_of(abi::SendOpcode::kRead)));
    EXPECT_TRUE(malformed(head_of(abi::SendOpcode::kFetchAdd)));
    ring_type = QpType::kUd;
    EXPECT_FALSE(malformed(head_of(abi::SendOpcode::kSendImm)));
    EXPECT_TRUE(malformed(head_of(abi::SendOpcode::kWrite)));
}

TEST_F(SendRingTest, lengths_that_overflow_stay_too_long) {
    abi::SendEntry head = head_of(abi::SendOpcode::kSend, 2);
    post(0, head, {{0x10, 0xffff'ffff, 1}, {0x10, 0xffff'ffff, 1}});
    ASSERT_TRUE(ring.fetch(wqe));
    EXPECT_EQ(wqe.length, 0xffff'ffffu);
}

TEST_F(SendRingTest, a_producer_beyond_the_capacity_breaks_the_ring) {
    publish(kCapacity + 1);
    EXPECT_FALSE(ring.fetch(wqe));
    EXPECT_TRUE(ring.is_broken());
    publish(1);  // too late
    EXPECT_FALSE(ring.fetch(wqe));
}

TEST_F(SendRingTest, a_producer_that_goes_back_breaks_the_ring) {
    post(0, head_of(abi::SendOpcode::kSend));
    post(1, head_of(abi::SendOpcode::kSend));
    ASSERT_TRUE(ring.fetch(wqe));
    ASSERT_TRUE(ring.fetch(wqe));
    publish(1);
    EXPECT_FALSE(ring.fetch(wqe));
    EXPECT_TRUE(ring.is_broken());
}

TEST_F(SendRingTest, discard_skips_what_is_posted_and_mends_the_ring) {
    publish(100);
    EXPECT_FALSE(ring.fetch(wqe));
    ring.discard();
    EXPECT_FALSE(ring.is_broken());
    EXPECT_FALSE(ring.fetch(wqe));
    post(100, head_of(abi::SendOpcode::kSend));
    ASSERT_TRUE(ring.fetch(wqe));
    EXPECT_EQ(wqe.ring_index, 100u);
}

class RecvRingTest : public ::testing::Test {
protected:
    static constexpr std::uint32_t kCapacity = 4, kSgeMax = 2;
    RecvRingTest()
        : stride(recv_stride(kSgeMax)),
          memory(recv_region_length(kCapacity, stride)),
          ring(memory.base(), {kCapacity, stride, kSgeMax}) {}
    std::byte* entry(std::uint32_t index) {
        return memory.base() + abi::kRingHeaderSize + 64 + index * stride;
    }
    void publish(std::uint32_t producer) {
        reinterpret_cast<abi::QueueHeader*>(memory.base())->producer.store(producer);
    }
    void post(std::uint32_t position, std::uint32_t index, std::uint8_t sge_count = 1) {
        if (index < kCapacity) {
            abi::RecvEntry head{};
            head.wr_id = 1000 + index;
            head.sge_count = sge_count;
            store_bytes(entry(index), head);
            store_bytes(entry(index) + 16, abi::Sge{0x40, 64, 9});
        }
        store_bytes(memory.base() + abi::kRingHeaderSize + (position % kCapacity) * 4, index);
        publish(position + 1);
    }
    std::uint32_t stride;
    SharedMemory memory;
    RecvRing ring;
    RecvWqe wqe;
};

TEST_F(RecvRingTest, entries_come_in_the_order_of_the_index_ring) {
    post(0, 3);
    post(1, 0);
    EXPECT_EQ(ring.depth(), 2u);
    ASSERT_TRUE(ring.fetch(wqe));
    EXPECT_EQ(wqe.ring_index, 3u);
    EXPECT_EQ(wqe.wr_id, 1003u);
    EXPECT_EQ(wqe.sge_count, 1);
    EXPECT_EQ(wqe.sges[0].length, 64u);
    ASSERT_EQ(wqe.small_area.size(), limits::kSmallPayloadMax);
    EXPECT_EQ(wqe.small_area.data() + limits::kSmallPayloadMax, entry(3) + stride);
    ASSERT_TRUE(ring.fetch(wqe));
    EXPECT_EQ(wqe.ring_index, 0u);
    EXPECT_EQ(ring.depth(), 0u);
    EXPECT_FALSE(ring.fetch(wqe));
}

TEST_F(RecvRingTest, an_index_outside_the_table_breaks_the_ring) {
    post(0, kCapacity);
    EXPECT_FALSE(ring.fetch(wqe));
    EXPECT_TRUE(ring.is_broken());
    EXPECT_EQ(ring.depth(), 0u);
}

TEST_F(RecvRingTest, too_many_sges_break_the_ring) {
    post(0, 1, kSgeMax + 1);
    EXPECT_FALSE(ring.fetch(wqe));
    EXPECT_TRUE(ring.is_broken());
}

TEST_F(RecvRingTest, a_producer_beyond_the_capacity_breaks_the_ring) {
    publish(0x8000'0000);
    EXPECT_EQ(ring.depth(), 0u);
    EXPECT_TRUE(ring.is_broken());
}

TEST_F(RecvRingTest, a_queue_without_entries_is_empty_and_sound) {
    RecvRing none;
    EXPECT_FALSE(none.fetch(wqe));
    EXPECT_EQ(none.depth(), 0u);
    none.discard();
    EXPECT_FALSE(none.is_broken());
}

class CompletionRingTest : public ::testing::Test {
protected:
    static constexpr std::uint32_t kCapacity = 4;
    CompletionRingTest() : memory(cq_region_length(64)), ring(memory.base(), kCapacity) {}
    abi::CqHeader& header() { return *reinterpret_cast<abi::CqHeader*>(memory.base()); }
    abi::Cqe& entry(std::uint32_t index) {
        return reinterpret_cast<abi::Cqe*>(memory.base() + 128)[index % kCapacity];
    }
    bool push(std::uint64_t wr_id, bool solicited = false,
              transport::WcStatus status = transport::WcStatus::kSuccess) {
        transport::Completion completion;
        completion.wr_id = wr_id;
        completion.solicited = solicited;
        completion.status = status;
        return ring.push(completion, 5);
    }
    SharedMemory memory;
    CompletionRing ring;
};

TEST_F(CompletionRingTest, an_entry_has_all_fields_and_its_sequence) {
    transport::Completion c;
    c.wr_id = 1;
    c.ring_index = 2;
    c.qpn = {3};
    c.status = transport::WcStatus::kLocLenErr;
    c.opcode = transport::WcOpcode::kRecvWriteImm;
    c.is_recv = c.from_srq = c.has_immediate = c.has_grh = c.in_small_area = true;
    c.byte_length = 6;
    c.immediate = 7;
    c.source_qpn = {8};
    c.vendor_error = 9;
    c.time = {10};
    ASSERT_TRUE(ring.push(c, 11));
    const abi::Cqe& cqe = entry(0);
    EXPECT_EQ(cqe.sequence, 1u);
    EXPECT_EQ(cqe.wr_id, 1u);
    EXPECT_EQ(cqe.ring_index, 2u);
    EXPECT_EQ(cqe.qpn, 3u);
    EXPECT_EQ(cqe.status, 1);
    EXPECT_EQ(cqe.opcode, static_cast<int>(abi::CqeOpcode::kRecvWriteImm));
    EXPECT_EQ(cqe.flags,
              abi::kCqeRecv | abi::kCqeSrq | abi::kCqeImmediate | abi::kCqeGrh | abi::kCqeSmall);
    EXPECT_EQ(cqe.byte_length, 6u);
    EXPECT_EQ(cqe.immediate, 7u);
    EXPECT_EQ(cqe.source_qpn, 8u);
    EXPECT_EQ(cqe.vendor_error, 9u);
    EXPECT_EQ(cqe.timestamp_ns, 10u);
    EXPECT_EQ(cqe.queue_slot, 11u);
    EXPECT_EQ(header().producer, 0u);
    ring.publish();
    EXPECT_EQ(header().producer, 1u);
}

TEST_F(CompletionRingTest, a_full_ring_overflows_for_good) {
    for (std::uint32_t i = 0; i < kCapacity; ++i) EXPECT_TRUE(push(i));
    EXPECT_FALSE(push(99));
    EXPECT_EQ(entry(0).wr_id, 0u);  // nothing was overwritten
    header().consumer = kCapacity;
    EXPECT_FALSE(push(99));
}

TEST_F(CompletionRingTest, polled_entries_make_room) {
    for (std::uint32_t i = 0; i < 10 * kCapacity; ++i) {
        ASSERT_TRUE(push(i));
        EXPECT_EQ(entry(i).sequence, i + 1);
        header().consumer = i + 1;
    }
}

TEST_F(CompletionRingTest, a_consumer_ahead_of_the_card_counts_as_overflow) {
    for (std::uint32_t i = 0; i < kCapacity; ++i) ASSERT_TRUE(push(i));
    header().consumer = 1000;
    EXPECT_FALSE(push(99));
}

TEST_F(CompletionRingTest, an_armed_queue_gives_one_event) {
    push(1);
    EXPECT_FALSE(ring.publish().event);
    header().arm = abi::kArmAny;
    push(2);
    push(3);
    EXPECT_TRUE(ring.publish().event);
    EXPECT_EQ(header().arm, abi::kArmNone);
    push(4);
    EXPECT_FALSE(ring.publish().event);
}

TEST_F(CompletionRingTest, solicited_arming_waits_for_a_solicited_entry_or_an_error) {
    header().arm = abi::kArmSolicited;
    push(1);
    EXPECT_FALSE(ring.publish().event);
    EXPECT_EQ(header().arm, abi::kArmSolicited);
    push(2, true);
    EXPECT_TRUE(ring.publish().event);
    header().arm = abi::kArmSolicited;
    push(3, false, transport::WcStatus::kWrFlushErr);
    EXPECT_TRUE(ring.publish().event);
}

TEST_F(CompletionRingTest, sleepers_are_woken) {
    push(1);
    EXPECT_FALSE(ring.publish().wake);
    header().waiters = 1;
    push(2);
    EXPECT_TRUE(ring.publish().wake);
}

class MovedCompletionRing : public CompletionRingTest {
protected:
    MovedCompletionRing() : target(cq_region_length(8)) {}
    abi::Cqe& moved(std::uint32_t index) {
        return reinterpret_cast<abi::Cqe*>(target.base() + 128)[index % 8];
    }
    SharedMemory target;
};

TEST_F(MovedCompletionRing, unpolled_entries_keep_their_indexes) {
    for (std::uint32_t i = 0; i < 7; ++i) {
        header().consumer = i;
        ASSERT_TRUE(push(i));
    }
    header().consumer = 4;
    header().arm = abi::kArmAny;
    CompletionRing larger(target.base(), 8);
    ASSERT_TRUE(ring.move_to(larger));
    for (std::uint32_t i = 4; i < 7; ++i) {
        EXPECT_EQ(moved(i).wr_id, i);
        EXPECT_EQ(moved(i).sequence, i + 1);
    }
    const auto& head = *reinterpret_cast<abi::CqHeader*>(target.base());
    EXPECT_EQ(head.producer, 7u);
    EXPECT_EQ(head.consumer, 4u);
    EXPECT_EQ(head.arm, abi::kArmAny);
    transport::Completion completion;
    completion.wr_id = 7;
    ASSERT_TRUE(larger.push(completion, 0));
    EXPECT_EQ(moved(7).wr_id, 7u);
    EXPECT_TRUE(larger.publish().event);
}

TEST_F(MovedCompletionRing, entries_that_do_not_fit_stay_where_they_are) {
    for (std::uint32_t i = 0; i < 3; ++i) push(i);
    CompletionRing smaller(target.base(), 2);
    EXPECT_FALSE(ring.move_to(smaller));
    header().consumer = 1;
    EXPECT_TRUE(ring.move_to(smaller));
    header().consumer = 0x9000'0000;
    EXPECT_FALSE(ring.move_to(smaller));
}

}  // namespace
}  // namespace rdmalab::card

#include "card/cable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "card/testing.h"
#include "wire/testing.h"

namespace rdmalab::card {
namespace {

using testing::DirectMemory;
using wire::testing::Bytes;

class CableTest : public ::testing::Test {
protected:
    void use(const Impairments& impairments, std::uint64_t seed = 1, bool as_bytes = false) {
        cable = std::make_unique<CableDirection>(seed, as_bytes, buffers, memory, faults);
        cable->set_impairments(impairments);
    }
    // A UC SEND Only whose immediate number `id` can be found again at the other end.
    wire::Frame make(std::uint32_t id, std::size_t length = 64) {
        payloads.push_back(std::make_unique<Bytes>(length));
        Bytes& payload = *payloads.back();
        store_bytes(payload.data(), id);
        memory.add(SpaceId{1}, payload);
        const wire::OpcodeInfo& info = *wire::find_opcode(
            wire::opcode_value(wire::Service::kUc, wire::PacketKind::kSend, wire::Position::kOnly));
        wire::Frame frame;
        Prng prng(id);
        wire::Path path = wire::testing::path_of(false);
        path.traffic_class = wire::kEcnEct0;
        wire::start_roce(frame, wire::make_lower_template(path), info);
        wire::header_at<wire::Bth>(frame, frame.bth_offset)->psn = id;
        frame.add_segment({SpaceId{1}, static_cast<std::uint32_t>(length),
                           reinterpret_cast<std::uintptr_t>(payload.data())});
        wire::finish_roce(frame);
        return frame;
    }
    void send(std::uint32_t first, std::uint32_t count) {
        for (std::uint32_t i = 0; i < count; ++i) cable->handle_frame(make(first + i), now);
    }
    std::vector<std::uint32_t> arrivals() {
        std::vector<std::uint32_t> ids;
        wire::Frame frame;
        while (cable->poll_frame(now, frame, unreadable)) {
            ids.push_back(wire::header_at<wire::Bth>(frame, frame.bth_offset)->psn);
            last = frame;
        }
        return ids;
    }
    std::vector<std::uint32_t> all_arrivals() {
        std::vector<std::uint32_t> ids;
        while (!cable->next_deadline().is_never()) {
            now = std::max(now, cable->next_deadline());
            for (const std::uint32_t id : arrivals()) ids.push_back(id);
            buffers.reclaim();
        }
        return ids;
    }

    FrameBuffers buffers;
    DirectMemory memory;
    std::vector<transport::CopyFault> faults;
    std::vector<std::unique_ptr<Bytes>> payloads;
    std::unique_ptr<CableDirection> cable;
    wire::Frame last;
    std::uint64_t unreadable = 0;
    Instant now{1'000};
};

TEST_F(CableTest, without_impairments_it_is_direct) {
    use({});
    EXPECT_TRUE(cable->is_direct());
    use({}, 1, true);
    EXPECT_FALSE(cable->is_direct());
    Impairments impairments;
    impairments.loss = 0.5;
    use(impairments);
    EXPECT_FALSE(cable->is_direct());
}

TEST_F(CableTest, a_frame_as_bytes_comes_out_with_payload_and_right_icrc) {
    use({}, 1, true);
    const wire::Frame sent = make(5, 63);
    cable->handle_frame(sent, now);
    EXPECT_EQ(arrivals(), std::vector<std::uint32_t>{5});
    EXPECT_EQ(last.icrc_state, wire::IcrcState::kPresent);
    EXPECT_EQ(last.payload_length, 63u);
    ASSERT_EQ(last.header_length, sent.header_length);
    EXPECT_TRUE(std::ranges::equal(last.header_bytes(), sent.header_bytes()));
    const auto* bytes = reinterpret_cast<const std::byte*>(last.segments[0].address);
    EXPECT_EQ(load_bytes<std::uint32_t>(bytes), 5u);
    wire::Icrc icrc(last);
    icrc.add({bytes, 64});  // with its pad
    EXPECT_EQ(icrc.value(), last.icrc);
}

TEST_F(CableTest, a_rewritten_invariant_field_arrives_with_a_wrong_icrc) {
    use({}, 1, true);
    wire::Frame frame = make(5);
    frame.keep_emitted_header();
    wire::header_at<wire::Bth>(frame, frame.bth_offset)->destination_qp = 0x77;
    cable->handle_frame(frame, now);
    ASSERT_EQ(arrivals().size(), 1u);
    wire::Icrc icrc(last);
    icrc.add({reinterpret_cast<const std::byte*>(last.segments[0].address), 64});
    EXPECT_NE(icrc.value(), last.icrc);
}

TEST_F(CableTest, delay_holds_every_frame_for_that_time) {
    Impairments impairments;
    impairments.delay = microseconds(10);
    use(impairments);
    send(0, 2);
    EXPECT_TRUE(arrivals().empty());
    EXPECT_EQ(cable->next_deadline(), now + microseconds(10));
    now = now + microseconds(10) - nanoseconds(1);
    EXPECT_TRUE(arrivals().empty());
    now = now + nanoseconds(1);
    EXPECT_EQ(arrivals(), (std::vector<std::uint32_t>{0, 1}));
    EXPECT_TRUE(cable->next_deadline().is_never());
}

TEST_F(CableTest, rate_spaces_frames_by_their_length) {
    Impairments impairments;
    impairments.rate = {1'000'000'000};  // 8 ns per byte
    use(impairments);
    const std::size_t length = wire::wire_length(make(0));
    send(0, 3);
    const Instant start = now;
    for (std::uint32_t i = 0; i < 3; ++i) {
        const auto due = start + nanoseconds(static_cast<std::int64_t>(8 * length * (i + 1)));
        EXPECT_EQ(cable->next_deadline(), due);
        now = due;
        EXPECT_EQ(arrivals(), std::vector<std::uint32_t>{i});
    }
}

TEST_F(CableTest, a_backlog_beyond_its_bound_is_dropped_and_counted) {
    Impairments impairments;
    impairments.rate = {1'000'000};
    use(impairments);
    send(0, 1'100);
    EXPECT_EQ(cable->counters().frames, 1'100u);
    EXPECT_EQ(cable->counters().overflowed, 1'100u - CableDirection::kBacklogFramesMax);
    EXPECT_EQ(all_arrivals().size(), CableDirection::kBacklogFramesMax);
    // Once it has drained there is room again.
    send(0, 1);
    EXPECT_EQ(all_arrivals().size(), 1u);
}

TEST_F(CableTest, the_backlog_is_bounded_in_bytes_too) {
    Impairments impairments;
    impairments.rate = {1'000'000};
    use(impairments);
    const std::size_t length = wire::wire_length(make(0, 4096 + 4096));
    for (std::uint32_t i = 0; i < 600; ++i) cable->handle_frame(make(i, 4096 + 4096), now);
    EXPECT_EQ(cable->counters().overflowed, 600 - CableDirection::kBacklogBytesMax / length);
}

TEST_F(CableTest, frames_under_way_are_not_backlog) {
    Impairments impairments;
    impairments.delay = milliseconds(10);
    use(impairments);
    send(0, 3'000);
    EXPECT_EQ(cable->counters().overflowed, 0u);
    EXPECT_EQ(all_arrivals().size(), 3'000u);
}

TEST_F(CableTest, jitter_varies_the_delay_and_keeps_the_order) {
    Impairments impairments;
    impairments.delay = microseconds(10);
    impairments.jitter = microseconds(5);
    use(impairments);
    std::vector<std::int64_t> delays;
    for (std::uint32_t i = 0; i < 100; ++i) {
        send(i, 1);
        const Instant start = now;
        now = cable->next_deadline();
        delays.push_back((now - start).ns);
        EXPECT_EQ(arrivals(), std::vector<std::uint32_t>{i});
    }
    const auto [least, most] = std::minmax_element(delays.begin(), delays.end());
    EXPECT_GE(*least, 10'000);
    EXPECT_LT(*most, 15'000);
    EXPECT_LT(*least, 11'000);
    EXPECT_GT(*most, 14'000);
    send(0, 1'000);
    const std::vector<std::uint32_t> ids = all_arrivals();
    EXPECT_EQ(ids.size(), 1'000u);
    EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
}

TEST_F(CableTest, loss_takes_its_share_and_the_seed_says_which) {
    Impairments impairments;
    impairments.loss = 0.1;
    use(impairments, 42);
    send(0, 10'000);
    const std::vector<std::uint32_t> first = arrivals();
    EXPECT_EQ(cable->counters().lost, 10'000 - first.size());
    EXPECT_NEAR(static_cast<double>(cable->counters().lost), 1'000, 100);
    use(impairments, 42);
    send(0, 10'000);
    EXPECT_EQ(arrivals(), first);
    use(impairments, 43);
    send(0, 10'000);
    EXPECT_NE(arrivals(), first);
}

TEST_F(CableTest, duplicates_arrive_twice) {
    Impairments impairments;
    impairments.duplicate = 1;
    use(impairments);
    send(0, 2);
    EXPECT_EQ(arrivals(), (std::vector<std::uint32_t>{0, 0, 1, 1}));
    EXPECT_EQ(cable->counters().duplicated, 2u);
}

TEST_F(CableTest, a_reordered_frame_comes_after_one_to_three_others) {
    Impairments impairments;
    impairments.reorder = 0.05;
    use(impairments);
    send(0, 5'000);
    const std::vector<std::uint32_t> ids = all_arrivals();
    ASSERT_EQ(ids.size(), 5'000u);
    std::size_t late = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto shift = static_cast<std::int64_t>(i) - ids[i];
        EXPECT_LE(shift, 6);  // three, and those that wait beside it
        if (shift > 0) ++late;
    }
    EXPECT_NEAR(static_cast<double>(cable->counters().reordered), 250, 60);
    EXPECT_GT(late, 200u);
    EXPECT_LE(late, cable->counters().reordered + 10);
}

TEST_F(CableTest, a_reordered_frame_that_nobody_follows_is_only_late) {
    Impairments impairments;
    impairments.reorder = 1;
    use(impairments);
    send(0, 1);
    EXPECT_TRUE(arrivals().empty());
    EXPECT_EQ(cable->next_deadline(), now + CableDirection::kReorderHold);
    EXPECT_EQ(all_arrivals(), std::vector<std::uint32_t>{0});
}

TEST_F(CableTest, damage_is_noticed_by_the_parser_or_the_icrc) {
    Impairments impairments;
    impairments.corrupt = 1;
    use(impairments);
    const wire::Frame sent = make(7);
    std::size_t readable = 0, noticed = 0;
    for (int i = 0; i < 1'000; ++i) {
        cable->handle_frame(sent, now);
        if (!cable->poll_frame(now, last, unreadable)) continue;
        ++readable;
        if (last.icrc_state == wire::IcrcState::kPresent) {
            const wire::PayloadSegment& segment = last.segments[0];
            wire::Icrc icrc(last);
            icrc.add({reinterpret_cast<const std::byte*>(segment.address), segment.length});
            if (icrc.value() != last.icrc) ++noticed;
        }
        buffers.reclaim();
    }
    EXPECT_EQ(cable->counters().corrupted, 1'000u);
    EXPECT_EQ(readable + unreadable, 1'000u);
    EXPECT_GT(unreadable, 100u);  // lengths, versions, the IP checksum
    EXPECT_GT(noticed, 500u);
}

TEST_F(CableTest, ce_marks_only_frames_that_allow_it) {
    Impairments impairments;
    impairments.ce = 1;
    use(impairments);
    send(0, 1);
    ASSERT_EQ(arrivals().size(), 1u);
    EXPECT_EQ(wire::ecn(last), wire::kEcnCe);
    EXPECT_EQ(cable->counters().ce_marked, 1u);
    wire::Frame frame = make(1);
    wire::set_ecn(frame, wire::kEcnNotEct);
    cable->handle_frame(frame, now);
    ASSERT_EQ(arrivals().size(), 1u);
    EXPECT_EQ(wire::ecn(last), wire::kEcnNotEct);
    EXPECT_EQ(cable->counters().ce_marked, 1u);
    // The mark is no damage.
    EXPECT_EQ(last.icrc_state, wire::IcrcState::kPresent);
}

TEST_F(CableTest, a_payload_that_cannot_be_read_is_blamed_and_not_sent) {
    use({}, 1, true);
    const wire::Frame frame = make(1);
    memory.remove(SpaceId{1});
    cable->handle_frame(frame, now);
    EXPECT_TRUE(arrivals().empty());
    ASSERT_EQ(faults.size(), 1u);
    EXPECT_TRUE(faults[0].at_source);
}

TEST_F(CableTest, a_receiver_that_does_not_check_takes_damage_for_right) {
    Impairments impairments;
    impairments.corrupt = 1;
    impairments.verify_icrc = false;
    use(impairments);
    for (std::uint32_t i = 0; i < 100; ++i) {
        send(i, 1);
        arrivals();
        EXPECT_NE(last.icrc_state, wire::IcrcState::kPresent);
    }
}

TEST_F(CableTest, frames_under_way_keep_their_order_when_impairments_end) {
    Impairments impairments;
    impairments.delay = microseconds(10);
    use(impairments);
    send(0, 1);
    cable->set_impairments({});
    EXPECT_FALSE(cable->is_direct());
    send(1, 1);
    EXPECT_TRUE(arrivals().empty());
    EXPECT_EQ(all_arrivals(), (std::vector<std::uint32_t>{0, 1}));
    EXPECT_TRUE(cable->is_direct());
}

TEST_F(CableTest, buffers_are_reused) {
    use({}, 1, true);
    for (std::uint32_t i = 0; i < 10; ++i) {
        cable->handle_frame(make(0), now);
        ASSERT_EQ(arrivals().size(), 1u);
        EXPECT_TRUE(buffers.any_retired());
        buffers.reclaim();
    }
    FrameBuffers::Buffer first = buffers.take();
    EXPECT_FALSE(first->empty());  // the one that all ten frames lay in
    EXPECT_TRUE(buffers.take()->empty());
}

}  // namespace
}  // namespace rdmalab::card

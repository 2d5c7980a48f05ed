#include "flow/frame_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "base/prng.h"

namespace rdmalab::flow {
namespace {

TEST(FrameQueue, frames_come_out_as_they_went_in_until_there_is_no_room) {
    constexpr std::uint64_t kSeed = 4;
    Prng random(kSeed);
    FrameQueue queue(1'000);
    std::deque<CapturedFrame> model;
    std::uint64_t dropped = 0;
    for (int step = 0; step < 20'000; ++step) {
        if (random.chance(0.5)) {
            CapturedFrame frame;
            frame.queue = static_cast<std::uint16_t>(random.below(8));
            frame.port = PortId{static_cast<std::uint16_t>(random.below(8))};
            frame.bytes.resize(1 + random.below(300));
            for (std::byte& byte : frame.bytes) byte = static_cast<std::byte>(random.next());
            const ByteSpan place = queue.push(frame.queue, frame.port, frame.bytes.size());
            if (place.empty()) {
                ++dropped;
                continue;
            }
            std::copy(frame.bytes.begin(), frame.bytes.end(), place.begin());
            model.push_back(std::move(frame));
        } else {
            std::vector<CapturedFrame> out;
            ASSERT_EQ(queue.pop(out, SIZE_MAX), !model.empty()) << "seed " << kSeed;
            if (out.empty()) continue;
            EXPECT_EQ(out[0].bytes, model.front().bytes);
            EXPECT_EQ(out[0].queue, model.front().queue);
            EXPECT_EQ(out[0].port, model.front().port);
            model.pop_front();
        }
    }
    EXPECT_GT(dropped, 100u);
    EXPECT_EQ(queue.take_dropped(), dropped);
    EXPECT_EQ(queue.take_dropped(), 0u);
}

TEST(FrameQueue, a_frame_that_is_too_long_for_the_reader_waits) {
    FrameQueue queue;
    queue.push(0, PortId{1}, 500);
    std::vector<CapturedFrame> out;
    EXPECT_FALSE(queue.pop(out, 499));
    EXPECT_TRUE(queue.pop(out, 500));
    EXPECT_TRUE(queue.push(0, PortId{1}, 2 * FrameQueue::kBytesDefault).empty());
}

}  // namespace
}  // namespace rdmalab::flow

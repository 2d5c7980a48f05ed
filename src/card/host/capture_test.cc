#include "card/host/capture.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "card/host/memory_port.h"
#include "wire/headers.h"
#include "wire/testing.h"

namespace rdmalab::card::host {
namespace {

constexpr TapPoint kPort0{true, 0};
constexpr std::size_t kNameP0Header = 28 + 40;  // section and interface block of "p0"

class Capturing : public ::testing::Test {
protected:
    Capturing()
        : captures_(poller_, memory_, [this](TapPoint point, bool on) {
              if (point == kPort0) tapped_ = on;
          }) {
        EXPECT_TRUE(poller_.open().ok());
        payload_.resize(18, std::byte{0x77});
        Prng prng(1);
        wire::testing::make_frame(frame_, false, *wire::testing::all_opcodes().front(), payload_,
                                  prng);
    }

    std::uint32_t start(UniqueFd out, std::uint32_t snap_length = 262'144) {
        const auto id = captures_.start(1, kPort0, "p0", snap_length, std::move(out));
        EXPECT_TRUE(id.ok());
        return id.ok() ? *id : 0;
    }
    static std::vector<std::byte> contents(int fd) {
        struct stat facts {};
        ::fstat(fd, &facts);
        std::vector<std::byte> bytes(static_cast<std::size_t>(facts.st_size));
        EXPECT_EQ(::pread(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
        return bytes;
    }

    Poller poller_;
    ProcessMemory memory_;
    bool tapped_ = false;
    Captures captures_;
    std::vector<std::byte> payload_;
    wire::Frame frame_;
};

TEST_F(Capturing, a_frame_is_written_whole_with_its_payload_and_icrc) {
    const UniqueFd file(::memfd_create("capture", MFD_CLOEXEC));
    start(UniqueFd(::dup(file.value())));
    EXPECT_TRUE(tapped_);
    captures_.record(kPort0, frame_, true);
    captures_.flush();
    const auto bytes = contents(file.value());
    const std::vector<std::byte> expected = wire::testing::written(frame_, payload_);
    ASSERT_GE(bytes.size(), kNameP0Header + 28 + expected.size());
    EXPECT_EQ(load_bytes<std::uint32_t>(&bytes[kNameP0Header]), 6u) << "an enhanced packet block";
    EXPECT_EQ(load_bytes<std::uint32_t>(&bytes[kNameP0Header + 20]), expected.size());
    EXPECT_EQ(load_bytes<std::uint32_t>(&bytes[kNameP0Header + 24]), expected.size());
    const auto begin = bytes.begin() + kNameP0Header + 28;
    EXPECT_EQ(std::vector<std::byte>(begin, begin + static_cast<std::ptrdiff_t>(expected.size())),
              expected);
}

TEST_F(Capturing, a_long_frame_is_cut_to_the_snap_length_and_keeps_its_original_length) {
    const UniqueFd file(::memfd_create("capture", MFD_CLOEXEC));
    start(UniqueFd(::dup(file.value())), 64);
    captures_.record(kPort0, frame_, true);
    captures_.flush();
    const auto bytes = contents(file.value());
    EXPECT_EQ(load_bytes<std::uint32_t>(&bytes[kNameP0Header + 20]), 64u);
    EXPECT_EQ(load_bytes<std::uint32_t>(&bytes[kNameP0Header + 24]),
              wire::testing::written(frame_, payload_).size());
}

TEST_F(Capturing, frames_of_other_taps_are_not_written) {
    const UniqueFd file(::memfd_create("capture", MFD_CLOEXEC));
    const std::uint32_t id = start(UniqueFd(::dup(file.value())));
    captures_.record(TapPoint{true, 1}, frame_, true);
    captures_.record(TapPoint{false, 0}, frame_, true);
    EXPECT_EQ(captures_.stop(1, id)->frames, 0u);
}

TEST_F(Capturing, the_tap_is_closed_with_its_last_capture) {
    const UniqueFd file(::memfd_create("capture", MFD_CLOEXEC));
    const std::uint32_t first = start(UniqueFd(::dup(file.value())));
    const std::uint32_t second = start(UniqueFd(::dup(file.value())));
    EXPECT_TRUE(captures_.stop(1, first).ok());
    EXPECT_TRUE(tapped_);
    EXPECT_TRUE(captures_.stop(1, second).ok());
    EXPECT_FALSE(tapped_);
    EXPECT_EQ(captures_.stop(1, second).error().code, ENOENT);
}

TEST_F(Capturing, only_the_connection_that_started_a_capture_may_stop_it) {
    const UniqueFd file(::memfd_create("capture", MFD_CLOEXEC));
    const std::uint32_t id = start(UniqueFd(::dup(file.value())));
    EXPECT_EQ(captures_.stop(2, id).error().code, ENOENT);
    captures_.stop_all(1);
    EXPECT_TRUE(captures_.list().empty());
}

TEST_F(Capturing, a_pipe_that_nobody_reads_loses_frames_and_never_blocks) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd reader(ends[0]);
    const std::uint32_t id = start(UniqueFd(ends[1]));
    constexpr std::uint64_t kFrames = 60'000;  // more than the pipe and the buffer hold
    for (std::uint64_t i = 0; i < kFrames; ++i) captures_.record(kPort0, frame_, true);
    const auto facts = captures_.list()[0];
    EXPECT_GT(facts.dropped, 0u);
    EXPECT_EQ(facts.frames + facts.dropped, kFrames);
    EXPECT_EQ(captures_.stop(1, id)->error.code, 0);
}

TEST_F(Capturing, a_slow_reader_of_a_pipe_gets_whole_blocks_in_the_end) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    const UniqueFd reader(ends[0]);
    start(UniqueFd(ends[1]));
    for (int i = 0; i < 2'000; ++i) captures_.record(kPort0, frame_, true);
    captures_.flush();
    std::vector<std::byte> got;
    std::vector<std::byte> chunk(10'000);
    for (int idle = 0; idle < 3;) {
        const ssize_t length = ::read(reader.value(), chunk.data(), chunk.size());
        if (length > 0) {
            got.insert(got.end(), chunk.begin(), chunk.begin() + length);
            idle = 0;
        } else {
            ++idle;
        }
        poller_.wait(Duration{0});
    }
    std::size_t at = kNameP0Header, blocks = 0;
    while (at + 8 <= got.size()) {
        ASSERT_EQ(load_bytes<std::uint32_t>(&got[at]), 6u);
        at += load_bytes<std::uint32_t>(&got[at + 4]);
        ++blocks;
    }
    EXPECT_EQ(at, got.size());
    EXPECT_EQ(blocks, 2'000u);
}

TEST_F(Capturing, a_reader_that_has_gone_ends_the_capture) {
    ::signal(SIGPIPE, SIG_IGN);
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const std::uint32_t id = start(UniqueFd(ends[1]));
    ::close(ends[0]);
    captures_.record(kPort0, frame_, true);
    captures_.flush();
    EXPECT_FALSE(tapped_);
    EXPECT_TRUE(captures_.list().empty());
    EXPECT_EQ(captures_.stop(1, id)->error.code, EPIPE);
}

}  // namespace
}  // namespace rdmalab::card::host

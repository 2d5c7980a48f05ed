#include "rdmalab/pcapng_count.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace rdmalab::launcher {
namespace {

class PcapngFile : public testing::Test {
protected:
    void append_block(std::uint32_t type, std::uint32_t length) {
        std::string block(length, 'x');
        reinterpret_cast<std::uint32_t*>(block.data())[0] = type;
        reinterpret_cast<std::uint32_t*>(block.data())[1] = length;
        append(block);
    }
    void append(const std::string& bytes) {
        ASSERT_EQ(write(file_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    }
    ~PcapngFile() override { close(file_); }
    int file_ = memfd_create("capture", 0);
    PcapngCounter counter_;
};

TEST_F(PcapngFile, section_and_interface_blocks_are_not_packets) {
    append_block(0x0a0d0d0a, 28);
    append_block(1, 20);
    append_block(6, 100);
    append_block(6, 64);
    counter_.advance(file_, 1'000);
    EXPECT_EQ(counter_.packets(), 2u);
    EXPECT_EQ(counter_.end(), 28u + 20 + 100 + 64);
}

TEST_F(PcapngFile, a_block_that_is_still_being_written_waits_for_the_next_look) {
    append_block(6, 100);
    append(std::string("\x06\0\0\0\x40\0\0\0half", 12));
    counter_.advance(file_, 1'000);
    EXPECT_EQ(counter_.packets(), 1u);
    EXPECT_EQ(counter_.end(), 100u);
    append(std::string(52, 'y'));
    counter_.advance(file_, 1'000);
    EXPECT_EQ(counter_.packets(), 2u);
}

TEST_F(PcapngFile, counting_stops_at_the_limit) {
    for (int i = 0; i < 5; ++i) append_block(6, 64);
    counter_.advance(file_, 3);
    EXPECT_EQ(counter_.packets(), 3u);
    EXPECT_EQ(counter_.end(), 3u * 64);
}

TEST_F(PcapngFile, a_length_of_zero_does_not_loop_forever) {
    append(std::string(64, '\0'));
    counter_.advance(file_, 10);
    EXPECT_EQ(counter_.packets(), 0u);
}

}  // namespace
}  // namespace rdmalab::launcher

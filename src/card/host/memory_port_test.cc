#include "card/host/memory_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <numeric>

#include "base/prng.h"
#include "card/host/testing.h"

namespace rdmalab::card::host {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using transport::CopyFault;
using transport::CopyOwner;

constexpr std::size_t kPage = 4096;
constexpr std::array<std::uint64_t, 4> kInlineData = {1, 2, 3, 4};
constexpr SpaceId kA{1}, kB{2}, kAgainA{3};

class MemoryPort : public testing::Test {
protected:
    MemoryPort() : a_(256 * kPage), b_(256 * kPage) {
        memory_.add_process(kA, a_.pid());
        memory_.add_process(kB, b_.pid());
    }

    static CopyOwner owner(std::uint32_t qpn) { return {Qpn{qpn}, true, 0, false}; }

    void copy(SpaceId target, std::uint64_t to, SpaceId source, std::uint64_t from,
              std::uint32_t length, std::uint32_t qpn = 1) {
        memory_.copy(target, to, {source, length, from}, owner(qpn));
    }
    std::vector<CopyFault> flush() {
        std::vector<CopyFault> faults;
        memory_.flush(faults);
        return faults;
    }
    static std::vector<std::uint32_t> blamed(const std::vector<CopyFault>& faults) {
        std::vector<std::uint32_t> qpns;
        for (const CopyFault& fault : faults) qpns.push_back(fault.owner.qpn.value);
        return qpns;
    }

    ChildProcess a_, b_;
    ProcessMemory memory_;
};

TEST_F(MemoryPort, a_copy_between_two_processes_arrives_with_the_flush) {
    a_.fill(0, 100, 0x11);
    copy(kB, b_.address(50), kA, a_.address(0), 100);
    EXPECT_EQ(b_.byte(50), 0);
    EXPECT_THAT(flush(), IsEmpty());
    EXPECT_EQ(b_.byte(49), 0);
    EXPECT_EQ(b_.byte(50), 0x11);
    EXPECT_EQ(b_.byte(149), 0x11);
    EXPECT_EQ(b_.byte(150), 0);
}

TEST_F(MemoryPort, packets_of_one_message_cost_one_call_on_each_side) {
    a_.fill(0, 16 * kPage, 0x22);
    for (std::uint64_t i = 0; i < 16; ++i) {
        copy(kB, b_.address(i * kPage), kA, a_.address(i * kPage), kPage);
    }
    EXPECT_THAT(flush(), IsEmpty());
    EXPECT_EQ(memory_.counters().read_calls, 1u);
    EXPECT_EQ(memory_.counters().write_calls, 1u);
    EXPECT_EQ(b_.byte(16 * kPage - 1), 0x22);
}

TEST_F(MemoryPort, scattered_copies_of_one_batch_share_their_calls) {
    for (std::uint64_t i = 0; i < 32; ++i) {
        a_.fill(i * 200, 100, static_cast<std::uint8_t>(i + 1));
        copy(kB, b_.address((31 - i) * 300), kA, a_.address(i * 200), 100);
    }
    EXPECT_THAT(flush(), IsEmpty());
    EXPECT_EQ(memory_.counters().read_calls, 1u);
    EXPECT_EQ(memory_.counters().write_calls, 1u);
    for (std::uint64_t i = 0; i < 32; ++i) EXPECT_EQ(b_.byte((31 - i) * 300 + 99), i + 1);
}

TEST_F(MemoryPort, a_message_larger_than_the_arena_goes_in_several_batches) {
    const std::uint32_t length = 256 * kPage;
    a_.fill(0, length, 0x33);
    copy(kB, b_.address(0), kA, a_.address(0), length);
    EXPECT_THAT(flush(), IsEmpty());
    EXPECT_EQ(memory_.counters().batches, length / ProcessMemory::kBatchBytes);
    EXPECT_EQ(b_.byte(0), 0x33);
    EXPECT_EQ(b_.byte(length - 1), 0x33);
}

TEST_F(MemoryPort, the_cards_own_bytes_are_written_without_a_read) {
    const std::uint64_t value = 0x1122334455667788;
    memory_.copy(kB, b_.address(8), {kCardSpace, 8, reinterpret_cast<std::uint64_t>(&value)},
                 owner(1));
    EXPECT_THAT(flush(), IsEmpty());
    EXPECT_EQ(b_.word(8), value);
    EXPECT_EQ(memory_.counters().read_calls, 0u);
}

TEST_F(MemoryPort, bytes_for_the_card_are_placed_without_a_write_call) {
    a_.set_word(16, 77);
    std::uint64_t small_area = 0;
    copy(kCardSpace, reinterpret_cast<std::uint64_t>(&small_area), kA, a_.address(16), 8);
    EXPECT_THAT(flush(), IsEmpty());
    EXPECT_EQ(small_area, 77u);
    EXPECT_EQ(memory_.counters().write_calls, 0u);
}

TEST_F(MemoryPort, small_messages_inside_the_card_need_no_call) {
    const std::uint64_t inline_data = 5;
    std::uint64_t small_area = 0;
    copy(kCardSpace, reinterpret_cast<std::uint64_t>(&small_area), kCardSpace,
         reinterpret_cast<std::uint64_t>(&inline_data), 8);
    EXPECT_THAT(flush(), IsEmpty());
    EXPECT_EQ(small_area, 5u);
    EXPECT_EQ(memory_.counters().read_calls + memory_.counters().write_calls, 0u);
}

TEST_F(MemoryPort, inline_writes_to_one_place_are_combined_and_the_last_one_stays) {
    for (const std::uint64_t& value : kInlineData) {
        copy(kB, b_.address(0), kCardSpace, reinterpret_cast<std::uint64_t>(&value), 8);
    }
    EXPECT_THAT(flush(), IsEmpty());
    EXPECT_EQ(b_.word(0), kInlineData.back());
}

TEST_F(MemoryPort, all_of_several_combined_writes_fail_when_the_last_one_does) {
    b_.unmap(0, kPage);
    for (std::uint32_t i = 0; i < kInlineData.size(); ++i) {
        copy(kB, b_.address(0), kCardSpace, reinterpret_cast<std::uint64_t>(&kInlineData[i]), 8,
             i + 1);
    }
    copy(kB, b_.address(kPage), kCardSpace, reinterpret_cast<std::uint64_t>(&kInlineData[0]), 8, 9);
    EXPECT_THAT(blamed(flush()), ElementsAre(1, 2, 3, 4));
}

TEST_F(MemoryPort, combined_writes_are_right_when_there_are_more_than_a_batch_holds) {
    std::vector<std::uint64_t> values(2 * ProcessMemory::kBatchCopies + 1);
    std::iota(values.begin(), values.end(), std::uint64_t{1});
    for (const std::uint64_t& value : values) {
        copy(kB, b_.address(0), kCardSpace, reinterpret_cast<std::uint64_t>(&value), 8);
    }
    EXPECT_THAT(flush(), IsEmpty());
    EXPECT_EQ(b_.word(0), values.back());
}

TEST_F(MemoryPort, a_read_after_a_write_in_one_flush_sees_what_was_written) {
    // A writes to B, then B's bytes go back to A: the read response of a fenced pair.
    a_.set_word(0, 42);
    b_.set_word(0, 1);
    copy(kB, b_.address(0), kA, a_.address(0), 8);
    copy(kA, a_.address(64), kB, b_.address(0), 8);
    EXPECT_THAT(flush(), IsEmpty());
    EXPECT_EQ(a_.word(64), 42u);
    EXPECT_EQ(memory_.counters().batches, 2u);
}

TEST_F(MemoryPort, two_spaces_of_one_process_are_the_same_memory) {
    memory_.add_process(kAgainA, a_.pid());
    a_.set_word(0, 7);
    copy(kA, a_.address(8), kAgainA, a_.address(0), 8);
    copy(kAgainA, a_.address(16), kA, a_.address(8), 8);
    EXPECT_THAT(flush(), IsEmpty());
    EXPECT_EQ(a_.word(16), 7u);
}

TEST_F(MemoryPort, a_later_copy_to_the_same_place_wins) {
    a_.set_word(0, 1);
    a_.set_word(8, 2);
    const std::uint64_t third = 3;
    copy(kB, b_.address(0), kA, a_.address(0), 8, 1);
    copy(kB, b_.address(0), kA, a_.address(8), 8, 2);
    EXPECT_THAT(flush(), IsEmpty());
    EXPECT_EQ(b_.word(0), 2u);
    copy(kB, b_.address(0), kA, a_.address(0), 8, 1);
    copy(kB, b_.address(0), kCardSpace, reinterpret_cast<std::uint64_t>(&third), 8, 2);
    EXPECT_THAT(flush(), IsEmpty());
    EXPECT_EQ(b_.word(0), 3u);
}

TEST_F(MemoryPort, an_earlier_copy_reads_what_was_there_before_a_later_one) {
    a_.set_word(0, 1);
    b_.set_word(0, 9);
    copy(kA, a_.address(8), kB, b_.address(0), 8);
    copy(kB, b_.address(0), kA, a_.address(0), 8);
    EXPECT_THAT(flush(), IsEmpty());
    EXPECT_EQ(a_.word(8), 9u);
    EXPECT_EQ(b_.word(0), 1u);
}

TEST_F(MemoryPort, the_cards_memory_is_read_before_a_later_copy_overwrites_it) {
    std::uint64_t word = 1;
    a_.set_word(0, 2);
    copy(kB, b_.address(0), kCardSpace, reinterpret_cast<std::uint64_t>(&word), 8);
    copy(kCardSpace, reinterpret_cast<std::uint64_t>(&word), kA, a_.address(0), 8);
    EXPECT_THAT(flush(), IsEmpty());
    EXPECT_EQ(b_.word(0), 1u);
    EXPECT_EQ(word, 2u);
}

TEST_F(MemoryPort, a_missing_source_page_is_blamed_on_its_copy_and_the_others_arrive) {
    a_.fill(0, 8 * kPage, 0x44);
    a_.unmap(3 * kPage, kPage);
    for (std::uint32_t i = 0; i < 8; ++i) {
        copy(kB, b_.address(i * 2 * kPage), kA, a_.address(i * kPage), kPage, i + 1);
    }
    const auto faults = flush();
    EXPECT_THAT(blamed(faults), ElementsAre(4));
    EXPECT_TRUE(faults[0].at_source);
    for (std::uint32_t i = 0; i < 8; ++i) {
        EXPECT_EQ(b_.byte(i * 2 * kPage + 5), i == 3 ? 0 : 0x44) << i;
    }
}

TEST_F(MemoryPort, a_missing_target_page_is_blamed_on_its_copy_and_the_others_arrive) {
    a_.fill(0, 8 * kPage, 0x55);
    b_.unmap(0, kPage);
    b_.unmap(14 * kPage, kPage);
    for (std::uint32_t i = 0; i < 8; ++i) {
        copy(kB, b_.address(i * 2 * kPage), kA, a_.address(i * kPage), kPage, i + 1);
    }
    const auto faults = flush();
    EXPECT_THAT(blamed(faults), ElementsAre(1, 8));
    EXPECT_FALSE(faults[0].at_source);
    for (std::uint32_t i = 1; i < 7; ++i) EXPECT_EQ(b_.byte(i * 2 * kPage), 0x55) << i;
}

TEST_F(MemoryPort, only_the_packets_of_a_message_that_failed_are_blamed) {
    a_.fill(0, 8 * kPage, 0x66);
    a_.unmap(5 * kPage, kPage);
    b_.unmap(2 * kPage, kPage);
    for (std::uint32_t i = 0; i < 8; ++i) {
        CopyOwner packet = owner(1);
        packet.token = i;
        memory_.copy(kB, b_.address(i * kPage), {kA, kPage, a_.address(i * kPage)}, packet);
    }
    const auto faults = flush();
    ASSERT_EQ(faults.size(), 2u);
    EXPECT_EQ(faults[0].owner.token, 2u);
    EXPECT_FALSE(faults[0].at_source);
    EXPECT_EQ(faults[1].owner.token, 5u);
    EXPECT_TRUE(faults[1].at_source);
    for (std::uint32_t i = 0; i < 8; ++i) {
        EXPECT_EQ(b_.byte((i + 1) * kPage - 1), i == 2 || i == 5 ? 0 : 0x66) << i;
    }
}

TEST_F(MemoryPort, a_copy_that_fails_in_its_middle_fails_as_a_whole) {
    a_.unmap(2 * kPage, kPage);
    copy(kB, b_.address(0), kA, a_.address(0), 4 * kPage, 1);
    copy(kB, b_.address(8 * kPage), kA, a_.address(4 * kPage), 8, 2);
    EXPECT_THAT(blamed(flush()), ElementsAre(1));
}

TEST_F(MemoryPort, a_read_only_target_is_a_fault) {
    b_.protect(0, kPage, PROT_READ);
    copy(kB, b_.address(0), kA, a_.address(0), 8, 1);
    copy(kB, b_.address(kPage), kA, a_.address(0), 8, 2);
    EXPECT_THAT(blamed(flush()), ElementsAre(1));
}

TEST_F(MemoryPort, copies_of_a_dead_process_fail_and_those_of_others_go_on) {
    ChildProcess dead(kPage);
    memory_.add_process(SpaceId{9}, dead.pid());
    const std::uint64_t address = dead.address(0);
    dead.kill();
    a_.set_word(0, 6);
    copy(SpaceId{9}, address, kA, a_.address(0), 8, 1);
    copy(kB, b_.address(0), kA, a_.address(0), 8, 2);
    copy(kB, b_.address(8), SpaceId{9}, address, 8, 3);
    const auto faults = flush();
    EXPECT_THAT(blamed(faults), ElementsAre(1, 3));
    EXPECT_TRUE(faults[0].is_gone && faults[1].is_gone);
    EXPECT_EQ(b_.word(0), 6u);
}

TEST_F(MemoryPort, copies_of_a_removed_space_fail) {
    copy(kB, b_.address(0), kA, a_.address(0), 8, 1);
    memory_.remove(kA);
    const auto faults = flush();
    EXPECT_THAT(blamed(faults), ElementsAre(1));
    EXPECT_TRUE(faults[0].at_source);
}

TEST_F(MemoryPort, reads_and_writes_at_once_see_what_was_queued_before) {
    a_.set_word(0, 13);
    copy(kB, b_.address(0), kA, a_.address(0), 8);
    std::uint64_t value = 0;
    EXPECT_TRUE(memory_.read(kB, b_.address(0), std::as_writable_bytes(std::span(&value, 1))));
    EXPECT_EQ(value, 13u);
    value = 14;
    EXPECT_TRUE(memory_.write(kB, b_.address(0), std::as_bytes(std::span(&value, 1))));
    EXPECT_EQ(b_.word(0), 14u);
    b_.unmap(0, kPage);
    EXPECT_FALSE(memory_.read(kB, b_.address(0), std::as_writable_bytes(std::span(&value, 1))));
    EXPECT_FALSE(memory_.write(kB, b_.address(0), std::as_bytes(std::span(&value, 1))));
}

TEST_F(MemoryPort, a_fault_found_by_a_read_is_reported_by_the_next_flush) {
    b_.unmap(0, kPage);
    copy(kB, b_.address(0), kA, a_.address(0), 8, 5);
    std::uint64_t value = 0;
    EXPECT_TRUE(memory_.read(kA, a_.address(0), std::as_writable_bytes(std::span(&value, 1))));
    EXPECT_THAT(blamed(flush()), ElementsAre(5));
    EXPECT_THAT(flush(), IsEmpty());
}

// Any sequence of copies must leave what carrying them out one by one leaves.
TEST_F(MemoryPort, random_overlapping_copies_behave_as_if_done_one_by_one) {
    constexpr std::size_t kArea = 512;
    std::vector<std::uint8_t> here(kArea);
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        Prng prng(seed);
        std::vector<std::uint8_t> model[3];
        for (auto& area : model) {
            for (std::size_t i = 0; i < kArea; ++i) {
                area.push_back(static_cast<std::uint8_t>(prng.next()));
            }
        }
        a_.store(0, model[0]);
        b_.store(0, model[1]);
        here = model[2];
        const SpaceId spaces[] = {kA, kB, kCardSpace};
        const std::uint64_t bases[] = {a_.address(0), b_.address(0),
                                       reinterpret_cast<std::uint64_t>(here.data())};
        for (int step = 0; step < 40; ++step) {
            const auto length = static_cast<std::uint32_t>(1 + prng.below(32));
            const std::size_t from = prng.below(3), to = prng.below(3);
            const std::size_t source = prng.below(kArea - length);
            const std::size_t target = prng.below(kArea - length);
            copy(spaces[to], bases[to] + target, spaces[from], bases[from] + source, length);
            const std::vector<std::uint8_t> bytes(
                model[from].begin() + static_cast<std::ptrdiff_t>(source),
                model[from].begin() + static_cast<std::ptrdiff_t>(source + length));
            std::copy(bytes.begin(), bytes.end(),
                      model[to].begin() + static_cast<std::ptrdiff_t>(target));
        }
        ASSERT_THAT(flush(), IsEmpty());
        ASSERT_EQ(a_.load(0, kArea), model[0]) << "seed " << seed;
        ASSERT_EQ(b_.load(0, kArea), model[1]) << "seed " << seed;
        ASSERT_EQ(here, model[2]) << "seed " << seed;
    }
}

TEST(DirectMemory, addresses_of_a_direct_space_are_pointers) {
    ProcessMemory memory;
    memory.add_direct(SpaceId{4});
    std::uint64_t words[2] = {8, 0};
    memory.copy(SpaceId{4}, reinterpret_cast<std::uint64_t>(&words[1]),
                {SpaceId{4}, 8, reinterpret_cast<std::uint64_t>(&words[0])}, {});
    std::vector<CopyFault> faults;
    memory.flush(faults);
    EXPECT_THAT(faults, IsEmpty());
    EXPECT_EQ(words[1], 8u);
}

}  // namespace
}  // namespace rdmalab::card::host

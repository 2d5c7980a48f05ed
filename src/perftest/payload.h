// The content of validated messages: every byte follows from the queue pair, the number of the
// message on it, and the byte's place, so that a lost, repeated, swapped, shortened or damaged
// message is found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace rdmalab::perftest {

void fill_payload(std::span<std::byte> message, std::uint32_t qp, std::uint64_t number);

// From the environment: spoil every so many messages on purpose, a test of the test. 0: none.
// Throws Failure.
std::uint64_t corrupt_every();

struct Mismatch {
    std::size_t offset = 0;
    std::byte expected{}, found{};
};
// The first byte that is wrong.
std::optional<Mismatch> check_payload(std::span<const std::byte> message, std::uint32_t qp,
                                      std::uint64_t number);

}  // namespace rdmalab::perftest

#include "perftest/payload.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "perftest/failure.h"
#include "perftest/quantity.h"

namespace rdmalab::perftest {

namespace {
constexpr char kCorruptVariable[] = "RDMA_PERFTEST_CORRUPT_EVERY";
}  // namespace

namespace {

// splitmix64: a message is a sequence of it, started from its queue pair and number.
std::uint64_t mixed(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58'476d'1ce4'e5b9;
    z = (z ^ (z >> 27)) * 0x94d0'49bb'1331'11eb;
    return z ^ (z >> 31);
}
constexpr std::uint64_t kStep = 0x9e37'79b9'7f4a'7c15;

std::uint64_t start_of(std::uint32_t qp, std::uint64_t number) {
    return mixed((static_cast<std::uint64_t>(qp) << 40) + number + kStep);
}

}  // namespace

void fill_payload(std::span<std::byte> message, std::uint32_t qp, std::uint64_t number) {
    std::uint64_t state = start_of(qp, number);
    for (std::size_t at = 0; at < message.size(); at += 8, state += kStep) {
        std::uint64_t word = mixed(state);
        memcpy(message.data() + at, &word, std::min<std::size_t>(8, message.size() - at));
    }
}

std::optional<Mismatch> check_payload(std::span<const std::byte> message, std::uint32_t qp,
                                      std::uint64_t number) {
    std::uint64_t state = start_of(qp, number);
    for (std::size_t at = 0; at < message.size(); at += 8, state += kStep) {
        std::uint64_t word = mixed(state);
        std::size_t length = std::min<std::size_t>(8, message.size() - at);
        if (memcmp(message.data() + at, &word, length) == 0) continue;
        const auto* expected = reinterpret_cast<const std::byte*>(&word);
        std::size_t i = 0;
        while (message[at + i] == expected[i]) ++i;
        return Mismatch{at + i, expected[i], message[at + i]};
    }
    return std::nullopt;
}

std::uint64_t corrupt_every() {
    const char* text = getenv(kCorruptVariable);
    if (text == nullptr) return 0;
    Result<std::uint64_t> value = parse_count(text, 1, UINT32_MAX);
    if (!value.ok()) throw Failure(fmt::format("{}: {}", kCorruptVariable, value.error().text));
    return *value;
}

}  // namespace rdmalab::perftest

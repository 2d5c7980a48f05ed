#include "card/receive_hash.h"

#include <cstring>

namespace rdmalab::card {
namespace {

// The input of the hash: two IPv6 addresses and four bytes of ports or SPI at most.
class HashInput {
public:
    void add(const void* bytes, std::size_t length) {
        std::memcpy(bytes_.data() + length_, bytes, length);
        length_ += length;
    }
    // For each bit that is set, the 32 bits of the key that begin at the same place.
    std::uint32_t toeplitz(const std::array<std::uint8_t, abi::kHashKeyLength>& key) const {
        std::uint32_t window = 0;
        for (std::size_t i = 0; i < 4; ++i) window = window << 8 | key[i];
        std::uint32_t hash = 0;
        for (std::size_t i = 0; i < length_; ++i) {
            const std::uint8_t next = key[i + 4];
            for (int bit = 7; bit >= 0; --bit) {
                if ((bytes_[i] >> bit & 1) != 0) hash ^= window;
                window = window << 1 | (next >> bit & 1u);
            }
        }
        return hash;
    }

private:
    std::array<std::uint8_t, 36> bytes_{};
    std::size_t length_ = 0;
};
static_assert(abi::kHashKeyLength >= 36 + 4);

}  // namespace

std::uint32_t HashSpread::hash(const flow::FlatFrame& frame) const {
    const flow::RuleHeaders& headers = is_inner ? frame.fields.inner : frame.fields.outer;
    const std::uint32_t layers = is_inner ? frame.layers >> flow::kInnerShift : frame.layers;
    HashInput input;
    const auto add = [&](std::uint32_t layer, std::uint32_t field, const auto& value,
                         std::size_t length) {
        if ((layers & layer) != 0 && (fields & field) != 0) input.add(&value, length);
    };
    add(flow::kRuleIpv4, kHashSourceIpv4, headers.source_ip, 4);
    add(flow::kRuleIpv4, kHashDestinationIpv4, headers.destination_ip, 4);
    add(flow::kRuleIpv6, kHashSourceIpv6, headers.source_ip, 16);
    add(flow::kRuleIpv6, kHashDestinationIpv6, headers.destination_ip, 16);
    add(flow::kRuleTcp, kHashSourceTcp, headers.source_port, 2);
    add(flow::kRuleTcp, kHashDestinationTcp, headers.destination_port, 2);
    add(flow::kRuleUdp, kHashSourceUdp, headers.source_port, 2);
    add(flow::kRuleUdp, kHashDestinationUdp, headers.destination_port, 2);
    add(flow::kRuleEsp, kHashEspSpi, headers.esp_spi, 4);
    return input.toeplitz(key);
}

}  // namespace rdmalab::card

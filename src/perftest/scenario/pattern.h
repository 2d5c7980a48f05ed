// Who talks to whom: traffic patterns, partitions and directions over a list of endpoints. Pure
// arithmetic on indices; the order of the endpoints is the order of ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace rdmalab::perftest {

enum class Pattern {
    kConnections,  // listed one by one, no pattern
    kOneToOne,
    kOneToMany,
    kManyToOne,
    kAllToAll,
    kBisection,
    kRing
};
enum class Partition { kNone, kRailed, kLocal, kRemote };
enum class TrafficDirection { kUnidir, kBidir, kDualUnidir };

// As reports and scenarios spell them; "" for kConnections and kNone.
const char* name_of(Pattern pattern);
const char* name_of(Partition partition);
const char* name_of(TrafficDirection direction);
// Any spelling in use: ALL_TO_ALL, all_to_all, a2a, ALL_2_ALL.
std::optional<Pattern> pattern_named(std::string_view word);
std::optional<Partition> partition_named(std::string_view word);
std::optional<TrafficDirection> direction_named(std::string_view word);

struct TestEndpoint {
    std::string host, device;
    std::optional<int> gpu;
    std::uint32_t node = 0;  // the entry of testNodes that it comes from

    bool is_same(const TestEndpoint& other) const {
        return host == other.host && device == other.device && gpu == other.gpu;
    }
    // host:device, or host:device:gpu
    std::string label() const;
};

// From source to destination; both ways when the direction is kBidir.
struct ScenarioConnection {
    std::uint32_t source = 0, destination = 0;  // indices of endpoints
    std::uint32_t phase = 0;                    // round of peer shifting, from 1; else 0
};

struct Wiring {
    Pattern pattern = Pattern::kOneToOne;
    Partition partition = Partition::kNone;
    TrafficDirection direction = TrafficDirection::kUnidir;
    bool peer_shifting = false;
};

inline constexpr std::size_t kEndpointsMax = 65536;
inline constexpr std::size_t kConnectionsMax = std::size_t{1} << 22;

// All connections of a pattern, after partition and direction, each once. Errors say which rule of
// the pattern was broken and what was found.
Result<std::vector<ScenarioConnection>> wire(const Wiring& wiring,
                                             const std::vector<TestEndpoint>& endpoints);
// Partition, direction and duplicates on connections that were listed one by one.
Result<std::vector<ScenarioConnection>> rewire(const Wiring& wiring,
                                               const std::vector<TestEndpoint>& endpoints,
                                               const std::vector<ScenarioConnection>& listed);

}  // namespace rdmalab::perftest

#include "perftest/scenario/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

namespace rdmalab::perftest {

namespace {

using Connections = std::vector<ScenarioConnection>;
using Endpoints = std::vector<TestEndpoint>;

struct Spelling {
    Pattern pattern;
    std::array<const char*, 3> words;  // the first one is ours
};
constexpr Spelling kSpellings[] = {
    {Pattern::kOneToOne, {"ONE_TO_ONE", "O2O", "ONE_2_ONE"}},
    {Pattern::kOneToMany, {"ONE_TO_MANY", "O2M", "ONE_2_MANY"}},
    {Pattern::kManyToOne, {"MANY_TO_ONE", "M2O", "MANY_2_ONE"}},
    {Pattern::kAllToAll, {"ALL_TO_ALL", "A2A", "ALL_2_ALL"}},
    {Pattern::kBisection, {"BISECTION", "B", "BISECTION"}},
    {Pattern::kRing, {"RING", "R", "RING"}},
};
constexpr std::array<const char*, 4> kPartitions = {"", "RAILED", "LOCAL", "REMOTE"};
constexpr std::array<const char*, 3> kDirections = {"UNIDIR", "BIDIR", "DUAL_UNIDIR"};

std::string upper(std::string_view word) {
    std::string out(word);
    for (char& c : out) {
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
        if (c == '-') c = '_';
    }
    return out;
}

bool is_kept(Partition partition, const TestEndpoint& a, const TestEndpoint& b) {
    switch (partition) {
        case Partition::kNone:
            return true;
        case Partition::kRailed:
            return a.device == b.device && a.host != b.host;
        case Partition::kLocal:
            return a.host == b.host;
        case Partition::kRemote:
            return a.host != b.host;
    }
    return true;
}

// The first endpoint with the same host, device and GPU: what is listed twice is one.
std::vector<std::uint32_t> canonical(const Endpoints& endpoints) {
    std::unordered_map<std::string, std::uint32_t> first;
    std::vector<std::uint32_t> out;
    out.reserve(endpoints.size());
    for (std::uint32_t i = 0; i < endpoints.size(); ++i) {
        out.push_back(first.try_emplace(endpoints[i].label(), i).first->second);
    }
    return out;
}

Error needs(const char* pattern, const std::string& rule, std::size_t found) {
    return {EINVAL, fmt::format("{} needs {}, found {} endpoint{}", pattern, rule, found,
                                found == 1 ? "" : "s")};
}

Connections star(std::size_t count, bool from_first) {
    Connections out;
    for (std::uint32_t i = 1; i < count; ++i) {
        out.push_back(from_first ? ScenarioConnection{0, i, 0} : ScenarioConnection{i, 0, 0});
    }
    return out;
}

// Round after round, so that a round is a run of the list.
Connections mesh(std::uint32_t count, bool half, bool shifting) {
    Connections out;
    out.reserve(std::size_t{count} * (count - 1) / (half ? 2 : 1));
    for (std::uint32_t outer = shifting ? 1 : 0; outer < count; ++outer) {
        for (std::uint32_t inner = 0; inner < count; ++inner) {
            if (shifting) {
                out.push_back({inner, (inner + outer) % count, outer});
            } else if (half ? inner > outer : inner != outer) {
                out.push_back({outer, inner, 0});
            }
        }
    }
    return out;
}

Result<Connections> one_to_one(const Endpoints& endpoints) {
    if (endpoints.size() < 2) return needs("ONE_TO_ONE", "two endpoints", endpoints.size());
    if (endpoints.size() == 2) return Connections{{0, 1, 0}};
    // Two hosts with as many devices each: pairs by position.
    std::map<std::string, std::vector<std::uint32_t>> by_host;
    std::vector<std::string> order;
    for (std::uint32_t i = 0; i < endpoints.size(); ++i) {
        auto [entry, is_new] = by_host.try_emplace(endpoints[i].host);
        if (is_new) order.push_back(endpoints[i].host);
        entry->second.push_back(i);
    }
    if (by_host.size() != 2 || by_host[order[0]].size() != by_host[order[1]].size()) {
        return needs("ONE_TO_ONE", "two endpoints, or two hosts with as many devices each",
                     endpoints.size());
    }
    Connections out;
    for (std::size_t i = 0; i < by_host[order[0]].size(); ++i) {
        out.push_back({by_host[order[0]][i], by_host[order[1]][i], 0});
    }
    return out;
}

Result<Connections> all_of(const Wiring& wiring, const Endpoints& endpoints) {
    auto count = static_cast<std::uint32_t>(endpoints.size());
    const char* name = name_of(wiring.pattern);
    if (count < 2 && wiring.pattern != Pattern::kOneToOne) {
        return needs(name, "at least two endpoints", count);
    }
    switch (wiring.pattern) {
        case Pattern::kOneToOne:
            return one_to_one(endpoints);
        case Pattern::kOneToMany:
            return star(count, true);
        case Pattern::kManyToOne:
            return star(count, false);
        case Pattern::kAllToAll: {
            bool half = wiring.direction == TrafficDirection::kBidir;
            std::size_t most = std::size_t{count} * (count - 1) / (half ? 2 : 1);
            if (most > kConnectionsMax) {
                return Error{E2BIG, fmt::format("{} of {} endpoints would be {} connections, the "
                                                "most allowed are {}",
                                                name, count, most, kConnectionsMax)};
            }
            return mesh(count, half, wiring.peer_shifting);
        }
        case Pattern::kBisection: {
            if (count % 2 != 0) return needs(name, "an even number of endpoints", count);
            Connections out;
            for (std::uint32_t i = 0; i < count / 2; ++i) out.push_back({i, i + count / 2, 0});
            return out;
        }
        case Pattern::kRing: {
            Connections out;
            for (std::uint32_t i = 0; i < count; ++i) out.push_back({i, (i + 1) % count, 0});
            return out;
        }
        case Pattern::kConnections:
            break;
    }
    return Connections();
}

// The same two ends in the same round are one connection; for BIDIR in whichever order.
void drop_duplicates(const Wiring& wiring, const Endpoints& endpoints, Connections& connections) {
    std::vector<std::uint32_t> first = canonical(endpoints);
    bool unique = true;
    for (std::uint32_t i = 0; i < first.size(); ++i) unique = unique && first[i] == i;
    bool meshed = wiring.pattern == Pattern::kAllToAll;
    if (unique && meshed) return;
    std::unordered_set<std::uint64_t> seen;
    Connections kept;
    for (const ScenarioConnection& each : connections) {
        std::uint64_t a = first[each.source], b = first[each.destination];
        if (wiring.direction == TrafficDirection::kBidir && a > b) std::swap(a, b);
        if (!seen.insert(a << 32 | b).second) continue;
        kept.push_back({first[each.source], first[each.destination], each.phase});
    }
    connections = std::move(kept);
}

}  // namespace

const char* name_of(Pattern pattern) {
    for (const Spelling& each : kSpellings) {
        if (each.pattern == pattern) return each.words[0];
    }
    return "";
}
const char* name_of(Partition partition) {
    return kPartitions[static_cast<std::size_t>(partition)];
}
const char* name_of(TrafficDirection direction) {
    return kDirections[static_cast<std::size_t>(direction)];
}

std::optional<Pattern> pattern_named(std::string_view word) {
    std::string wanted = upper(word);
    for (const Spelling& each : kSpellings) {
        if (std::find(each.words.begin(), each.words.end(), wanted) != each.words.end()) {
            return each.pattern;
        }
    }
    return std::nullopt;
}

std::optional<Partition> partition_named(std::string_view word) {
    std::string wanted = upper(word);
    for (std::size_t i = 1; i < kPartitions.size(); ++i) {
        if (wanted == kPartitions[i]) return static_cast<Partition>(i);
    }
    return std::nullopt;
}

std::optional<TrafficDirection> direction_named(std::string_view word) {
    std::string wanted = upper(word);
    for (std::size_t i = 0; i < kDirections.size(); ++i) {
        if (wanted == kDirections[i]) return static_cast<TrafficDirection>(i);
    }
    return std::nullopt;
}

std::string TestEndpoint::label() const {
    std::string out = host + ":" + device;
    return gpu ? fmt::format("{}:{}", out, *gpu) : out;
}

Result<Connections> rewire(const Wiring& wiring, const Endpoints& endpoints,
                           const Connections& listed) {
    Connections out;
    out.reserve(listed.size());
    std::size_t dropped = 0;
    // In a mesh both ways are there already.
    bool doubles =
        wiring.direction == TrafficDirection::kDualUnidir && wiring.pattern != Pattern::kAllToAll;
    for (const ScenarioConnection& each : listed) {
        if (!is_kept(wiring.partition, endpoints[each.source], endpoints[each.destination])) {
            ++dropped;
            continue;
        }
        out.push_back(each);
        if (doubles) out.push_back({each.destination, each.source, each.phase});
    }
    drop_duplicates(wiring, endpoints, out);
    if (!out.empty()) return out;
    return Error{EINVAL,
                 fmt::format("no connection is left: {} makes {}, and partition {} keeps "
                             "none of them",
                             wiring.pattern == Pattern::kConnections ? "the list of connections"
                                                                     : name_of(wiring.pattern),
                             dropped, name_of(wiring.partition))};
}

Result<Connections> wire(const Wiring& wiring, const Endpoints& endpoints) {
    Result<Connections> all = all_of(wiring, endpoints);
    if (!all.ok()) return all.error();
    return rewire(wiring, endpoints, *all);
}

}  // namespace rdmalab::perftest

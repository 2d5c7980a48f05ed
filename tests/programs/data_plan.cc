#include "data_plan.h"

#include <getopt.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace rdmalab::programs {

static constexpr std::array<std::pair<const char*, Verb>, 7> kVerbs{
    {{"write", Verb::kWrite},
     {"write_imm", Verb::kWriteImm},
     {"read", Verb::kRead},
     {"send", Verb::kSend},
     {"send_imm", Verb::kSendImm},
     {"fetch_add", Verb::kFetchAdd},
     {"compare_swap", Verb::kCompareSwap}}};

const char* name_of(Verb verb) {
    for (const auto& [name, value] : kVerbs) {
        if (value == verb) return name;
    }
    return "?";
}

static Verb parse_verb(const char* text) {
    for (const auto& [name, value] : kVerbs) {
        if (std::strcmp(name, text) == 0) return value;
    }
    fail(kUsage, "unknown verb %s", text);
}

static ibv_qp_type parse_transport(const char* text) {
    if (std::strcmp(text, "RC") == 0) return IBV_QPT_RC;
    if (std::strcmp(text, "UC") == 0) return IBV_QPT_UC;
    if (std::strcmp(text, "UD") == 0) return IBV_QPT_UD;
    fail(kUsage, "unknown transport %s", text);
}

static std::uint64_t parse_number(const char* text) {
    char* end = nullptr;
    const std::uint64_t value = std::strtoull(text, &end, 0);
    if (end == text || *end != '\0') fail(kUsage, "not a number: %s", text);
    return value;
}

static std::vector<std::uint64_t> parse_list(std::string text) {
    std::vector<std::uint64_t> values;
    for (char* word = std::strtok(text.data(), ","); word != nullptr;
         word = std::strtok(nullptr, ",")) {
        values.push_back(parse_number(word));
    }
    if (values.empty()) fail(kUsage, "an empty list of sizes");
    return values;
}

enum Option {
    kVerb = 1,
    kTransport,
    kServer,
    kClient,
    kSizes,
    kMessages,
    kTotal,
    kSeed,
    kPsn,
    kDepth,
    kSges,
    kInline,
    kStall,
    kSrq,
    kGid,
    kMtu,
    kTimeout,
    kRetry,
    kTrafficClass,
    kHopLimit,
    kFlowLabel,
    kReads
};

static const option kOptions[] = {{"verb", required_argument, nullptr, kVerb},
                                  {"transport", required_argument, nullptr, kTransport},
                                  {"server", required_argument, nullptr, kServer},
                                  {"client", required_argument, nullptr, kClient},
                                  {"sizes", required_argument, nullptr, kSizes},
                                  {"messages", required_argument, nullptr, kMessages},
                                  {"total", required_argument, nullptr, kTotal},
                                  {"seed", required_argument, nullptr, kSeed},
                                  {"psn", required_argument, nullptr, kPsn},
                                  {"depth", required_argument, nullptr, kDepth},
                                  {"sges", required_argument, nullptr, kSges},
                                  {"inline", required_argument, nullptr, kInline},
                                  {"stall-limit", required_argument, nullptr, kStall},
                                  {"srq", no_argument, nullptr, kSrq},
                                  {"gid", required_argument, nullptr, kGid},
                                  {"mtu", required_argument, nullptr, kMtu},
                                  {"timeout", required_argument, nullptr, kTimeout},
                                  {"retry", required_argument, nullptr, kRetry},
                                  {"traffic-class", required_argument, nullptr, kTrafficClass},
                                  {"hop-limit", required_argument, nullptr, kHopLimit},
                                  {"flow-label", required_argument, nullptr, kFlowLabel},
                                  {"reads", required_argument, nullptr, kReads},
                                  {nullptr, 0, nullptr, 0}};

static bool apply_path(Path& path, int option, const char* text) {
    const auto byte = [text] { return static_cast<std::uint8_t>(parse_number(text)); };
    switch (option) {
        case kGid:
            path.gid_index = byte();
            return true;
        case kMtu:
            path.mtu = mtu_of(static_cast<unsigned>(parse_number(text)));
            return true;
        case kTimeout:
            path.timeout = byte();
            return true;
        case kRetry:
            path.retry_count = byte();
            return true;
        case kTrafficClass:
            path.traffic_class = byte();
            return true;
        case kHopLimit:
            path.hop_limit = byte();
            return true;
        case kFlowLabel:
            path.flow_label = static_cast<std::uint32_t>(parse_number(text));
            return true;
        case kReads:
            path.reads = byte();
            return true;
        default:
            return false;
    }
}

static void apply(Plan& plan, int option, const char* text) {
    if (apply_path(plan.path, option, text)) return;
    switch (option) {
        case kVerb:
            plan.verb = parse_verb(text);
            break;
        case kTransport:
            plan.transport = parse_transport(text);
            break;
        case kServer:
            plan.server_device = text;
            break;
        case kClient:
            plan.client_device = text;
            break;
        case kSizes:
            plan.sizes = parse_list(text);
            break;
        case kMessages:
            plan.messages = parse_number(text);
            break;
        case kTotal:
            plan.total = parse_number(text);
            break;
        case kSeed:
            plan.seed = parse_number(text);
            break;
        case kPsn:
            plan.psn = static_cast<std::uint32_t>(parse_number(text));
            break;
        case kDepth:
            plan.depth = static_cast<unsigned>(parse_number(text));
            break;
        case kSges:
            plan.sges = static_cast<unsigned>(parse_number(text));
            break;
        case kInline:
            plan.inline_bytes = static_cast<unsigned>(parse_number(text));
            break;
        case kStall:
            plan.stall_limit_s = static_cast<unsigned>(parse_number(text));
            break;
        case kSrq:
            plan.srq = true;
            break;
        default:
            fail(kUsage,
                 "usage: verbs_data [--verb V] [--transport RC|UC|UD] [--sizes N,N,...] ...");
    }
}

static std::uint64_t messages_for(const Plan& plan) {
    std::uint64_t sum = 0;
    for (auto size : plan.sizes) sum += size;
    if (sum == 0) return plan.sizes.size();
    const std::uint64_t rounds = (plan.total + sum - 1) / sum;
    return rounds * plan.sizes.size();
}

Plan parse_plan(int argc, char** argv) {
    Plan plan;
    for (int option; (option = getopt_long(argc, argv, "", kOptions, nullptr)) != -1;)
        apply(plan, option, optarg);
    if (optind != argc || plan.depth == 0 || plan.sges == 0) fail(kUsage, "a wrong argument");
    if (plan.is_atomic()) plan.sizes = {8};
    if (plan.messages == 0) plan.messages = messages_for(plan);
    return plan;
}

}  // namespace rdmalab::programs

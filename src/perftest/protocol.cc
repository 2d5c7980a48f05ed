#include "perftest/protocol.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

#include "perftest/failure.h"

namespace rdmalab::perftest {

namespace {

constexpr char kProgram[] = "rdma_perftest";

Greeting read_greeting(Channel& channel, const Message& message, const std::string& peer_name) {
    std::uint16_t version = channel.decoder().peer_version();
    bool ours = message.type == MessageType::kHello && message.body.is_object() &&
                message.body.value("program", "") == kProgram;
    if (!ours) throw Failure(fmt::format("{} is not rdma_perftest", peer_name));
    Greeting greeting{message.body.value("host", "?"), message.body.value("version", "?")};
    if (version != kWireVersion) {
        throw Failure(fmt::format(
            "{} speaks wire protocol {} (version {}), this is protocol {} (version {}): use the "
            "same version on both sides",
            peer_name, version, greeting.version, kWireVersion, RDMALAB_VERSION));
    }
    if (greeting.version != RDMALAB_VERSION) {
        fmt::print(stderr, "warning: {} is version {}, this is version {}\n", peer_name,
                   greeting.version, RDMALAB_VERSION);
    }
    return greeting;
}

}  // namespace

Greeting greet(Channel& channel, const std::string& peer_name, bool is_server) {
    Json self = {{"program", kProgram}, {"version", RDMALAB_VERSION}, {"host", host_name()}};
    channel.decoder().set_body_max(kGreetingMax);
    // The server speaks second: a stranger that connects learns nothing before it has said hello.
    if (!is_server) channel.send(MessageType::kHello, self);
    Result<Message> message = channel.receive(kGreetingSeconds);
    if (!message.ok()) {
        throw Failure(fmt::format("{}, while greeting: {}", peer_name, message.error().text));
    }
    if (is_server) channel.send(MessageType::kHello, self);
    Greeting greeting = read_greeting(channel, *message, peer_name);
    channel.decoder().set_body_max(kBodyMax);
    return greeting;
}

std::string host_name() {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    return name;
}

std::string boot_id() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    file >> id;
    return id;
}

Json end_facts(const std::string& host, const std::vector<Json>& processes) {
    const Json& first = processes.front();
    Json out = {{"host", host}};
    for (const char* key : {"device", "ibPort", "linkLayer", "gid", "lid", "mtu", "memoryType"}) {
        if (first.contains(key)) out[key] = first[key];
    }
    out["processes"] = Json::array();
    for (const Json& process : processes) {
        Json shown;
        for (const char* key :
             {"qpns", "psns", "ece", "inlineSize", "note", "hugePages", "numaNode"}) {
            if (process.contains(key)) shown[key] = process[key];
        }
        out["processes"].push_back(shown);
    }
    return out;
}

std::vector<ProcessResult> read_process_results(const std::vector<Json>& bodies) {
    std::vector<ProcessResult> out;
    for (const Json& body : bodies) {
        Result<ProcessResult> result = ProcessResult::from_json(body);
        if (!result.ok()) throw Failure(result.error().text);
        out.push_back(std::move(*result));
    }
    return out;
}

std::vector<int> pinned_cores(const Placement& placement) {
    std::vector<int> out;
    for (const std::optional<int>& core : placement.cores) {
        if (core) out.push_back(*core);
    }
    return out;
}

}  // namespace rdmalab::perftest

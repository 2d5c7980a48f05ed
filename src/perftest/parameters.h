// Every parameter of a test, once: the flag, the JSON field, what it takes, what it means. The
// command line, JSON scenarios, what client and server tell each other, help, completion and the
// manual page are all made from this table.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace rdmalab::perftest {

enum class Kind { kFlag, kCount, kSize, kDecimal, kText };

// Whose word counts.
enum class Scope {
    kTest,      // the client's, for both sides; a server that was given another one refuses
    kSide,      // each side its own: device, cores, memory
    kClient,    // how this process starts, shows and writes things; not part of the test
    kScenario,  // who takes part and who talks to whom: of tests over many nodes only
};

enum class Topic {
    kConnection,
    kTraffic,
    kMeasuring,
    kQueues,
    kPlacement,
    kMemory,
    kOutput,
    kServer,
    kScenario
};

struct Parameter {
    const char* name;  // long flag without dashes
    char letter;       // short flag, or 0
    const char* json;  // field of a scenario, or ""
    Kind kind;
    Scope scope;
    Topic topic;
    const char* value;  // what stands for the value in help; the words separated by '|', if it is
                        // one of them
    const char* help;
};

std::span<const Parameter> parameters();
const Parameter* find_parameter(std::string_view name);
const Parameter* find_json_field(std::string_view json);

struct TopicInfo {
    Topic topic;
    const char* name;
    const char* title;
    const char* text;  // what the flags of the topic have in common
};
std::span<const TopicInfo> topics();

}  // namespace rdmalab::perftest

// The control port: whatever comes, the decoder ends in messages or in an error, and what a server
// or client makes of a message is a plan, a result, or a refusal.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "perftest/failure.h"
#include "perftest/message.h"
#include "perftest/metrics.h"
#include "perftest/report_json.h"
#include "perftest/serve.h"

namespace {

using namespace rdmalab::perftest;

void interpret(const Json& body) {
    try {
        merge({}, body);
    } catch (const Failure&) {
    } catch (const Json::exception&) {
    }
    (void)ProcessResult::from_json(body).ok();
    (void)read_outcome(Plan(), body).ok();
}

void decode(std::string_view bytes) {
    Decoder decoder;
    decoder.set_body_max(kGreetingMax);
    // In two pieces, as a network may deliver it.
    decoder.handle_bytes(bytes.substr(0, bytes.size() / 2));
    for (int round = 0; round < 2; ++round) {
        for (;;) {
            auto message = decoder.poll_message();
            if (!message.ok() || !message->has_value()) break;
            interpret((*message)->body);
        }
        if (round == 0) decoder.handle_bytes(bytes.substr(bytes.size() / 2));
    }
}

// Messages that are right but for what the fuzzer changes in them.
std::string seed_message(std::uint8_t which) {
    Json scenario = scenario_json(std::get<Planned>(make_plan({})).plan);
    switch (which % 3) {
        case 0:
            return encode(MessageType::kTest, {{"scenario", scenario}, {"host", "h"}});
        case 1:
            return encode(MessageType::kResults, ProcessResult().to_json());
        default:
            return encode(MessageType::kReport, {{"client", {}}, {"directions", {{}}}});
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view bytes(reinterpret_cast<const char*>(data), size);
    decode(bytes);
    if (size < 4) return 0;
    std::string message = seed_message(data[0]);
    for (std::size_t i = 1; i + 2 < size; i += 3) {
        std::size_t at = (static_cast<std::size_t>(data[i]) << 8 | data[i + 1]) % message.size();
        message[at] = static_cast<char>(data[i + 2]);
    }
    decode(message);
    return 0;
}

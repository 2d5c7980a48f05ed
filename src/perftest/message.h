// What client, server and their worker processes say to each other. A message is a header of 16
// bytes (big endian) and a body of JSON:
//
//   magic "RPFT" | wire version u16 | type u16 | body length u32 | reserved u32
//
// The header stays the same in all versions, so that two versions can at least tell each other who
// they are. A body is bounded before it is read, and parsed before anything in it is believed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "perftest/json.h"

namespace rdmalab::perftest {

inline constexpr std::uint16_t kWireVersion = 1;
inline constexpr std::size_t kHeaderBytes = 16;
inline constexpr std::uint32_t kBodyMax = 64u << 20;  // histograms of a thousand processes
inline constexpr std::uint32_t kGreetingMax = 4096;   // from strangers

enum class MessageType : std::uint16_t {
    kHello = 1,  // both: who I am
    kTest,       // client: the test, and what the client is
    kAccept,     // server: what the server is
    kResources,  // both: addresses, QPs and memory of each process
    kConnected,  // both: every queue pair is ready
    kClock,      // client asks, server answers with its clock
    kStart,      // client: begin at this time of your clock
    kStarted,    // server: my processes wait for that time
    kDrained,    // the requesters of this side have ended
    kStop,       // client: end your responders
    kResults,    // server: what its processes counted
    kReport,     // client: the outcome, for the server to show
    kBye,        // server: shown
    kAlive,      // both, every second
    kInterrupt,  // server: Ctrl-C here; client: end the window now
    kFail,       // both: what went wrong
};
inline constexpr std::uint16_t kMessageTypeMax = static_cast<std::uint16_t>(MessageType::kFail);
const char* name_of(MessageType type);

struct Message {
    MessageType type = MessageType::kAlive;
    Json body;
};

std::string encode(MessageType type, const Json& body);

// Takes bytes as they come and gives messages. After an error it stays in error.
class Decoder {
public:
    void set_body_max(std::uint32_t bytes) { body_max_ = bytes; }
    void handle_bytes(std::string_view bytes) { buffer_.append(bytes); }
    // Nothing: more bytes are needed.
    Result<std::optional<Message>> poll_message();
    // The version in the last header; differs from kWireVersion when that was the error.
    std::uint16_t peer_version() const { return peer_version_; }

private:
    Error broken(const std::string& text);

    std::string buffer_;
    std::uint32_t body_max_ = kBodyMax;
    std::uint16_t peer_version_ = kWireVersion;
    std::optional<Error> error_;
};

}  // namespace rdmalab::perftest

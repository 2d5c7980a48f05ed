// What client, server and their worker processes say to each other. A message is a header of 16
// bytes (big endian) and a body of JSON:
//
//   magic "RPFT" | wire version u16 | type u16 | body length u32 | address u32
//
// The address is 0 between two hosts. In a scenario over many it says which host a message is for,
// and when it arrives, which one it is from; those in between pass it on without reading the body.
//
// The header stays the same in all versions, so that two versions can at least tell each other who
// they are. A body is bounded before it is read, and parsed before anything in it is believed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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
    kRound,      // scenarios: begin this round at this time
};
inline constexpr std::uint16_t kMessageTypeMax = static_cast<std::uint16_t>(MessageType::kRound);
const char* name_of(MessageType type);

struct Message {
    MessageType type = MessageType::kAlive;
    std::uint32_t address = 0;
    Json body;
};

// A message whose body has not been parsed.
struct Frame {
    MessageType type = MessageType::kAlive;
    std::uint32_t address = 0;
    std::string body;
};

std::string encode(MessageType type, const Json& body, std::uint32_t address = 0);
std::string encode(const Frame& frame);
Result<Message> parse(Frame frame);

// Takes bytes as they come and gives messages. After an error it stays in error.
class Decoder {
public:
    void set_body_max(std::uint32_t bytes) { body_max_ = bytes; }
    void handle_bytes(std::string_view bytes) { buffer_.append(bytes); }
    // Lines between messages that are none are given to `noise` instead of being an error: a pipe
    // through other programs may carry what those print.
    void set_noise(std::function<void(std::string_view)> noise) { noise_ = std::move(noise); }
    // Nothing: more bytes are needed.
    Result<std::optional<Message>> poll_message();
    Result<std::optional<Frame>> poll_frame();
    // The version in the last header; differs from kWireVersion when that was the error.
    std::uint16_t peer_version() const { return peer_version_; }

private:
    Error broken(const std::string& text);
    std::string_view skip_noise();

    std::string buffer_;
    std::size_t taken_ = 0;  // bytes at the front of the buffer that were given out already
    std::uint32_t body_max_ = kBodyMax;
    std::uint16_t peer_version_ = kWireVersion;
    std::optional<Error> error_;
    std::function<void(std::string_view)> noise_;
};

}  // namespace rdmalab::perftest

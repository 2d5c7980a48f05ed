// A connected socket that carries messages: TCP between client and server, a socket pair between a
// main process and its workers. Never blocks for longer than it is told.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "base/result.h"
#include "perftest/fd.h"
#include "perftest/message.h"

namespace rdmalab::perftest {

class Channel {
public:
    explicit Channel(Fd fd);

    int descriptor() const { return fd_.value(); }
    Decoder& decoder() { return decoder_; }

    // False when the peer is gone or takes nothing for some seconds.
    bool send(MessageType type, const Json& body = Json::object(), std::uint32_t address = 0);
    // Bytes that are encoded already.
    bool send_bytes(std::string_view bytes);
    // Reads what is there; false when the peer has closed or the connection is broken.
    bool fill();
    // A message that has been read completely; an error is final.
    Result<std::optional<Message>> poll_message() { return decoder_.poll_message(); }
    Result<std::optional<Frame>> poll_frame() { return decoder_.poll_frame(); }
    // Waits for the next message, `seconds` at most. For a peer that does nothing else meanwhile.
    Result<Message> receive(double seconds);

private:
    Fd fd_;
    Decoder decoder_;
};

// Two connected channels.
std::pair<Channel, Channel> channel_pair();

// TCP. Errors are full sentences.
Result<Fd> listen_on(std::uint16_t port);
Result<Fd> connect_to(const std::string& host, std::uint16_t port, double seconds);

// Nanoseconds of the monotonic clock.
std::int64_t monotonic_ns();
std::int64_t wall_ns();

}  // namespace rdmalab::perftest

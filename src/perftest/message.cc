#include "perftest/message.h"

#include <fmt/format.h>

namespace rdmalab::perftest {

namespace {

constexpr std::uint32_t kMagic = 0x5250'4654;  // "RPFT"

void put(std::string& out, std::uint32_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; --i) {
        out.push_back(static_cast<char>(value >> (8 * i)));
    }
}

std::uint32_t take(std::string_view bytes, std::size_t offset, std::size_t length) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < length; ++i) {
        value = value << 8 | static_cast<unsigned char>(bytes[offset + i]);
    }
    return value;
}

// What a stranger said, for a message: printable, and not much of it.
std::string excerpt(std::string_view bytes) {
    std::string out;
    for (char c : bytes.substr(0, 16)) out += c >= ' ' && c <= '~' ? c : '.';
    return out;
}

bool begins_like_a_message(std::string_view bytes) {
    std::size_t known = std::min<std::size_t>(bytes.size(), 4);
    return bytes.substr(0, known) == std::string_view("RPFT").substr(0, known);
}

}  // namespace

const char* name_of(MessageType type) {
    constexpr const char* kNames[] = {"",          "hello",   "test",   "accept",  "resources",
                                      "connected", "clock",   "start",  "started", "drained",
                                      "stop",      "results", "report", "bye",     "alive",
                                      "interrupt", "fail",    "round"};
    return kNames[static_cast<std::uint16_t>(type)];
}

std::string encode(const Frame& frame) {
    std::string out;
    out.reserve(kHeaderBytes + frame.body.size());
    put(out, kMagic, 4);
    put(out, kWireVersion, 2);
    put(out, static_cast<std::uint16_t>(frame.type), 2);
    put(out, static_cast<std::uint32_t>(frame.body.size()), 4);
    put(out, frame.address, 4);
    return out + frame.body;
}

std::string encode(MessageType type, const Json& body, std::uint32_t address) {
    return encode(Frame{type, address, to_text(body)});
}

Result<Message> parse(Frame frame) {
    Message message;
    message.type = frame.type;
    message.address = frame.address;
    message.body = Json::parse(frame.body, nullptr, false);
    if (message.body.is_discarded()) {
        return Error{EPROTO, fmt::format("a message '{}' that is not JSON", name_of(frame.type))};
    }
    return message;
}

Error Decoder::broken(const std::string& text) {
    error_ = Error{EPROTO, text};
    return *error_;
}

// What has not been taken yet, from the first message on.
std::string_view Decoder::skip_noise() {
    for (;;) {
        std::string_view rest = std::string_view(buffer_).substr(taken_);
        std::size_t end = rest.find('\n');
        if (!noise_ || begins_like_a_message(rest) || end == std::string_view::npos) return rest;
        noise_(rest.substr(0, end));
        taken_ += end + 1;
    }
}

Result<std::optional<Frame>> Decoder::poll_frame() {
    if (error_) return *error_;
    std::string_view rest = skip_noise();
    if (!begins_like_a_message(rest)) {
        if (noise_) return std::optional<Frame>();
        return broken(
            fmt::format("not rdma_perftest: expected a message, found '{}'", excerpt(rest)));
    }
    if (rest.size() < kHeaderBytes) return std::optional<Frame>();
    peer_version_ = static_cast<std::uint16_t>(take(rest, 4, 2));
    std::uint32_t type = take(rest, 6, 2), length = take(rest, 8, 4);
    if (length > body_max_) {
        return broken(fmt::format("a message of {} bytes, expected at most {}", length, body_max_));
    }
    bool hello = type == static_cast<std::uint32_t>(MessageType::kHello);
    if (!hello && (peer_version_ != kWireVersion || type == 0 || type > kMessageTypeMax)) {
        return broken(fmt::format("a message of type {} of wire version {}, expected version {}",
                                  type, peer_version_, kWireVersion));
    }
    if (rest.size() < kHeaderBytes + length) return std::optional<Frame>();
    Frame frame{static_cast<MessageType>(type), take(rest, 12, 4),
                std::string(rest.substr(kHeaderBytes, length))};
    taken_ += kHeaderBytes + length;
    // Moving the rest to the front costs as much as it is long: not for every message.
    if (taken_ == buffer_.size() || taken_ > (1u << 20)) {
        buffer_.erase(0, taken_);
        taken_ = 0;
    }
    return std::optional<Frame>(std::move(frame));
}

Result<std::optional<Message>> Decoder::poll_message() {
    Result<std::optional<Frame>> frame = poll_frame();
    if (!frame.ok()) return frame.error();
    if (!frame->has_value()) return std::optional<Message>();
    Result<Message> message = parse(std::move(**frame));
    if (!message.ok()) return broken(message.error().text);
    return std::optional<Message>(std::move(*message));
}

}  // namespace rdmalab::perftest

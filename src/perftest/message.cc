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

}  // namespace

const char* name_of(MessageType type) {
    constexpr const char* kNames[] = {"",          "hello",   "test",   "accept",  "resources",
                                      "connected", "clock",   "start",  "started", "drained",
                                      "stop",      "results", "report", "bye",     "alive",
                                      "interrupt", "fail"};
    return kNames[static_cast<std::uint16_t>(type)];
}

std::string encode(MessageType type, const Json& body) {
    std::string text = to_text(body);
    std::string out;
    out.reserve(kHeaderBytes + text.size());
    put(out, kMagic, 4);
    put(out, kWireVersion, 2);
    put(out, static_cast<std::uint16_t>(type), 2);
    put(out, static_cast<std::uint32_t>(text.size()), 4);
    put(out, 0, 4);
    return out + text;
}

Error Decoder::broken(const std::string& text) {
    error_ = Error{EPROTO, text};
    return *error_;
}

Result<std::optional<Message>> Decoder::poll_message() {
    if (error_) return *error_;
    std::size_t known = std::min<std::size_t>(buffer_.size(), 4);
    if (std::string_view(buffer_).substr(0, known) != std::string_view("RPFT").substr(0, known)) {
        return broken(
            fmt::format("not rdma_perftest: expected a message, found '{}'", excerpt(buffer_)));
    }
    if (buffer_.size() < kHeaderBytes) return std::optional<Message>();
    peer_version_ = static_cast<std::uint16_t>(take(buffer_, 4, 2));
    std::uint32_t type = take(buffer_, 6, 2), length = take(buffer_, 8, 4);
    if (length > body_max_) {
        return broken(fmt::format("a message of {} bytes, expected at most {}", length, body_max_));
    }
    bool hello = type == static_cast<std::uint32_t>(MessageType::kHello);
    if (!hello && (peer_version_ != kWireVersion || type == 0 || type > kMessageTypeMax)) {
        return broken(fmt::format("a message of type {} of wire version {}, expected version {}",
                                  type, peer_version_, kWireVersion));
    }
    if (buffer_.size() < kHeaderBytes + length) return std::optional<Message>();
    Message message;
    message.type = static_cast<MessageType>(type);
    auto body = buffer_.begin() + kHeaderBytes;
    message.body = Json::parse(body, body + length, nullptr, false);
    if (message.body.is_discarded()) {
        return broken(fmt::format("a message '{}' that is not JSON", name_of(message.type)));
    }
    buffer_.erase(0, kHeaderBytes + length);
    return std::optional<Message>(std::move(message));
}

}  // namespace rdmalab::perftest

#include "perftest/message.h"

#include <gtest/gtest.h>

namespace rdmalab::perftest {
namespace {

std::string wire(std::uint16_t version, std::uint16_t type, std::uint32_t length,
                 const std::string& body) {
    std::string out = "RPFT";
    for (int shift : {8, 0}) out += static_cast<char>(version >> shift);
    for (int shift : {8, 0}) out += static_cast<char>(type >> shift);
    for (int shift : {24, 16, 8, 0}) out += static_cast<char>(length >> shift);
    return out + std::string(4, '\0') + body;
}

TEST(Message, what_is_encoded_is_decoded_byte_by_byte) {
    std::string bytes =
        encode(MessageType::kTest, {{"a", 1}}) + encode(MessageType::kAlive, Json::object());
    Decoder decoder;
    std::vector<MessageType> types;
    for (char byte : bytes) {
        decoder.handle_bytes({&byte, 1});
        Result<std::optional<Message>> message = decoder.poll_message();
        ASSERT_TRUE(message.ok());
        if (message->has_value()) types.push_back((*message)->type);
    }
    EXPECT_EQ(types, std::vector<MessageType>({MessageType::kTest, MessageType::kAlive}));
}

TEST(Message, a_stranger_is_recognized_by_his_first_byte) {
    Decoder decoder;
    decoder.handle_bytes("G");
    Result<std::optional<Message>> message = decoder.poll_message();
    ASSERT_FALSE(message.ok());
    EXPECT_NE(message.error().text.find("not rdma_perftest"), std::string::npos);
}

TEST(Message, lines_between_messages_are_noise_where_that_is_expected) {
    Decoder decoder;
    std::vector<std::string> noise;
    decoder.set_noise([&](std::string_view line) { noise.emplace_back(line); });
    std::string bytes = "Welcome\nRP\n" + encode(MessageType::kTest, {{"a", "x\ny"}}, 7) + "bye\n" +
                        encode(MessageType::kBye, Json::object());
    std::vector<std::uint32_t> addresses;
    for (char byte : bytes) {
        decoder.handle_bytes({&byte, 1});
        Result<std::optional<Message>> message = decoder.poll_message();
        ASSERT_TRUE(message.ok()) << message.error().text;
        if (message->has_value()) addresses.push_back((*message)->address);
    }
    EXPECT_EQ(addresses, (std::vector<std::uint32_t>{7, 0}));
    EXPECT_EQ(noise, (std::vector<std::string>{"Welcome", "RP", "bye"}));
}

TEST(Message, a_body_above_the_limit_is_refused_before_it_is_read) {
    Decoder decoder;
    decoder.set_body_max(100);
    decoder.handle_bytes(wire(kWireVersion, 1, 101, ""));
    EXPECT_FALSE(decoder.poll_message().ok());
}

TEST(Message, another_version_may_only_say_hello) {
    Decoder hello;
    hello.handle_bytes(wire(kWireVersion + 1, 1, 2, "{}"));
    ASSERT_TRUE(hello.poll_message().ok());
    EXPECT_EQ(hello.peer_version(), kWireVersion + 1);
    Decoder other;
    other.handle_bytes(wire(kWireVersion + 1, 2, 2, "{}"));
    EXPECT_FALSE(other.poll_message().ok());
}

TEST(Message, unknown_types_and_broken_json_are_final_errors) {
    for (const std::string& bytes :
         {wire(kWireVersion, 0, 2, "{}"), wire(kWireVersion, 99, 2, "{}"),
          wire(kWireVersion, 2, 2, "{x"), wire(kWireVersion, 2, 0, "")}) {
        Decoder decoder;
        decoder.handle_bytes(bytes);
        EXPECT_FALSE(decoder.poll_message().ok());
        decoder.handle_bytes(encode(MessageType::kAlive, Json::object()));
        EXPECT_FALSE(decoder.poll_message().ok());
    }
}

}  // namespace
}  // namespace rdmalab::perftest

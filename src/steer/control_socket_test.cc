#include "steer/control_socket.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

namespace rdmalab::steer {
namespace {

TEST(ControlSocket, answers_commands_with_their_words) {
    auto socket = ControlSocket::open();
    ASSERT_TRUE(socket.ok()) << socket.error().text;
    std::thread client([] {
        const auto answer = tell(getpid(), {"share", "48", ""});
        ASSERT_TRUE(answer.ok()) << answer.error().text;
        EXPECT_EQ(*answer, "share|48||");
        const auto refused = tell(getpid(), {"no"});
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error().code, EINVAL);
        EXPECT_EQ(refused.error().text, "why not");
    });
    int served = 0;
    const CommandHandler handler = [&](const std::vector<std::string>& words) {
        ++served;
        if (words[0] == "no") return Result<std::string>(Error{EPERM, "why not"});
        std::string text;
        for (const std::string& word : words) text += word + "|";
        return Result<std::string>(text);
    };
    while (served < 2) (*socket)->serve(handler);
    client.join();
}

TEST(ControlSocket, nobody_there_is_said) {
    const auto answer = tell(1, {"help"});
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code, ESRCH);
    EXPECT_EQ(answer.error().text, "process 1 is no running flow_steer or pcc");
}

TEST(ControlSocket, nothing_stays_behind) {
    { ASSERT_TRUE(ControlSocket::open().ok()); }
    EXPECT_FALSE(tell(getpid(), {"help"}).ok());
    EXPECT_TRUE(ControlSocket::open().ok()) << "the name is free again";
}

}  // namespace
}  // namespace rdmalab::steer

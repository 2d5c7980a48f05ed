#include "card/host/server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "card/host/daemon_fixture.h"

namespace rdmalab::card::host {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Reply = ControlClient::Reply;

template <class T>
T body_as(const Reply& reply) {
    EXPECT_EQ(reply.body.size(), sizeof(T)) << reply.text;
    T value{};
    if (reply.body.size() == sizeof(T)) value = load_bytes<T>(reply.body.data());
    return value;
}

class ControlServer : public DaemonTest {
protected:
    json status() {
        ControlClient client = connect();
        return json::parse(admin(client, R"({"op":"status"})").text);
    }
    // The server works in its own thread: what follows from a closed socket takes a moment.
    bool eventually_attached(std::size_t count) {
        for (int i = 0; i < 500; ++i) {
            if (status()["attached"].size() == count) return true;
            ::usleep(10'000);
        }
        return false;
    }
    static std::size_t open_descriptors() {
        std::size_t count = 0;
        for (int fd = 0; fd < 4096; ++fd) count += ::fcntl(fd, F_GETFD) >= 0;
        return count;
    }
    // The server closes its ends in its own thread.
    static bool eventually_open(std::size_t count) {
        for (int i = 0; i < 500 && open_descriptors() != count; ++i) ::usleep(10'000);
        return open_descriptors() == count;
    }
    // Runs `body` in a child; true when it returns true there.
    template <class Body>
    static bool in_child(Body body) {
        const pid_t child = ::fork();
        if (child == 0) ::_exit(body() ? 0 : 1);
        int status = -1;
        ::waitpid(child, &status, 0);
        return status == 0;
    }
    static bool readable(int fd, int timeout_ms = 5'000) {
        pollfd one{fd, POLLIN, 0};
        return ::poll(&one, 1, timeout_ms) == 1;
    }
};

TEST_F(ControlServer, hello_tells_the_name_the_pid_and_the_number_of_devices) {
    ControlClient client = connect();
    const auto reply = body_as<abi::HelloReply>(hello(client));
    EXPECT_STREQ(reply.card_name, "test");
    EXPECT_EQ(reply.card_pid, ::getpid());
    EXPECT_EQ(reply.device_count, 5u);
}

TEST_F(ControlServer, hello_says_when_the_card_reads_another_memory) {
    ControlClient client = connect();
    const std::uint64_t probe = 1;
    client.send(abi::Op::kHello, abi::HelloRequest{reinterpret_cast<std::uint64_t>(&probe), 2});
    Reply reply = client.receive();
    EXPECT_EQ(reply.status, EPERM);
    EXPECT_THAT(reply.text, HasSubstr("another process was found under this id"));
    client.send(abi::Op::kHello, abi::HelloRequest{8, 2});
    reply = client.receive();
    EXPECT_EQ(reply.status, EPERM);
    EXPECT_THAT(reply.text, HasSubstr("cannot reach the memory of process"));
}

TEST_F(ControlServer, devices_are_listed_in_the_order_of_the_topology) {
    ControlClient client = connect();
    client.send(abi::Op::kListDevices);
    const Reply reply = client.receive();
    ASSERT_EQ(reply.body.size(), 5 * sizeof(abi::DeviceInfo));
    const auto third = load_bytes<abi::DeviceInfo>(&reply.body[2 * sizeof(abi::DeviceInfo)]);
    EXPECT_STREQ(third.name, "mlx5_2");
    EXPECT_EQ(third.index, 2u);
}

TEST_F(ControlServer, opening_a_device_gives_the_rings_the_card_page_the_bell_and_the_async_pipe) {
    ControlClient client = connect();
    const Reply reply = open_device(client, 2);
    ASSERT_EQ(reply.status, 0) << reply.text;
    ASSERT_EQ(reply.fds.size(), 4u);
    const auto info = body_as<abi::OpenContextReply>(reply);
    EXPECT_GE(info.doorbell.length, sizeof(abi::DoorbellArea));
    void* rings = ::mmap(nullptr, info.doorbell.length, PROT_READ | PROT_WRITE, MAP_SHARED,
                         reply.fds[0].value(), static_cast<off_t>(info.doorbell.offset));
    EXPECT_NE(rings, MAP_FAILED);
    const auto* page = static_cast<const abi::CardPage*>(
        ::mmap(nullptr, sizeof(abi::CardPage), PROT_READ, MAP_SHARED, reply.fds[1].value(), 0));
    ASSERT_NE(page, MAP_FAILED);
    EXPECT_EQ(page->magic, abi::kMagic);
    EXPECT_EQ(::fcntl(reply.fds[3].value(), F_GETFL) & O_NONBLOCK, 0) << "readers may block";
    for (const UniqueFd& fd : reply.fds) EXPECT_EQ(::fcntl(fd.value(), F_GETFD), FD_CLOEXEC);
}

TEST_F(ControlServer, a_device_that_is_not_there_and_a_second_one_are_refused) {
    ControlClient client = connect();
    const Reply missing = open_device(client, 5);
    EXPECT_EQ(missing.status, ENODEV);
    EXPECT_EQ(missing.text, "the device: expected an index below 5, found 5");
    EXPECT_EQ(open_device(client, 0).status, 0);
    EXPECT_EQ(open_device(client, 1).status, EBUSY);
}

// A second process of a context: it shows its memory, uses its objects, and the context ends with
// the last.
TEST_F(ControlServer, a_context_is_joined_by_its_memory_and_ends_with_its_last_member) {
    ControlClient first = connect(), second = connect();
    const Reply opened = open_device(first, 2);
    ASSERT_EQ(opened.fds.size(), 4u);
    first.send(abi::Op::kAllocPd);
    const auto pd = body_as<abi::HandleReply>(first.receive());

    second.send(abi::Op::kImportContext);
    EXPECT_EQ(second.receive().text, "to import a context: expected one descriptor, found 0");
    second.send(abi::Op::kImportContext, {}, opened.fds[1].value());
    EXPECT_EQ(second.receive().text, "the descriptor is not that of an open context");
    second.send(abi::Op::kImportContext, {}, opened.fds[0].value());
    const Reply joined = second.receive();
    ASSERT_EQ(joined.status, 0) << joined.text;
    ASSERT_EQ(joined.fds.size(), 4u);
    EXPECT_EQ(body_as<abi::OpenContextReply>(joined).device, 2u);
    second.send(abi::Op::kImportContext, {}, opened.fds[0].value());
    EXPECT_EQ(second.receive().status, EBUSY);

    const auto asks = [&](abi::Op op, std::uint32_t handle) {
        second.send(op, abi::HandleRequest{handle});
        return second.receive().status;
    };
    EXPECT_EQ(asks(abi::Op::kQueryPd, pd.handle), 0);
    first.close();
    EXPECT_TRUE(eventually_attached(1));
    EXPECT_EQ(asks(abi::Op::kQueryPd, pd.handle), 0);
    EXPECT_EQ(asks(abi::Op::kDeallocPd, pd.handle), 0);
    second.close();
    EXPECT_TRUE(eventually_attached(0));
}

TEST_F(ControlServer, requests_about_a_device_need_one) {
    ControlClient client = connect();
    client.send(abi::Op::kAllocPd);
    const Reply reply = client.receive();
    EXPECT_EQ(reply.status, EINVAL);
    EXPECT_EQ(reply.text, "this connection has not opened a device");
}

TEST_F(ControlServer, attached_programs_are_in_the_status) {
    ControlClient client = connect();
    ASSERT_EQ(open_device(client, 3).status, 0);
    const json attached = status()["attached"];
    ASSERT_EQ(attached.size(), 1u);
    EXPECT_EQ(attached[0]["pid"], ::getpid());
    EXPECT_EQ(attached[0]["uid"], ::getuid());
    EXPECT_EQ(attached[0]["device"], "mlx5_3");
    EXPECT_EQ(attached[0]["qps"], 0);
    EXPECT_EQ(attached[0]["command"], "card_host_test");
}

TEST_F(ControlServer, closing_the_socket_detaches) {
    ControlClient client = connect();
    ASSERT_EQ(open_device(client, 3).status, 0);
    client.close();
    EXPECT_TRUE(eventually_attached(0));
}

TEST_F(ControlServer, the_end_of_the_process_detaches_though_its_child_holds_the_socket) {
    int hold[2];
    ASSERT_EQ(::pipe(hold), 0);
    const std::string path = socket_;
    const bool opened = in_child([&] {
        ControlClient client = ControlClient::connect(path);
        if (open_device(client, 3).status != 0) return false;
        if (::fork() == 0) {  // the grandchild keeps the socket until the test lets go
            ::close(hold[1]);
            char byte;
            (void)!::read(hold[0], &byte, 1);
            ::_exit(0);
        }
        return true;
    });
    EXPECT_TRUE(opened);
    EXPECT_TRUE(eventually_attached(0));
    ::close(hold[1]);
    ::close(hold[0]);
}

TEST_F(ControlServer, the_client_sees_the_end_of_the_card_on_all_its_pipes) {
    ControlClient client = connect();
    const Reply opened = open_device(client, 0);
    client.send(abi::Op::kCreateChannel);
    const Reply channel = client.receive();
    ASSERT_EQ(channel.status, 0) << channel.text;
    end();
    char byte;
    EXPECT_TRUE(readable(client.fd()));
    EXPECT_EQ(::recv(client.fd(), &byte, 1, 0), 0);
    EXPECT_EQ(::read(opened.fds[3].value(), &byte, 1), 0);
    EXPECT_EQ(::read(channel.fds[0].value(), &byte, 1), 0);
}

TEST_F(ControlServer, a_destroyed_channel_ends_its_pipe) {
    ControlClient client = connect();
    ASSERT_EQ(open_device(client, 0).status, 0);
    client.send(abi::Op::kCreateChannel);
    const Reply channel = client.receive();
    ASSERT_EQ(channel.fds.size(), 1u);
    client.send(abi::Op::kDestroyChannel,
                abi::HandleRequest{body_as<abi::HandleReply>(channel).handle});
    EXPECT_EQ(client.receive().status, 0);
    char byte;
    EXPECT_EQ(::read(channel.fds[0].value(), &byte, 1), 0);
}

TEST_F(ControlServer, an_unknown_operation_is_refused_and_the_connection_stays) {
    ControlClient client = connect();
    client.send(static_cast<abi::Op>(99));
    const Reply reply = client.receive();
    EXPECT_EQ(reply.status, EOPNOTSUPP);
    EXPECT_EQ(reply.text, "the operation of a request: expected a known one, found 99");
    EXPECT_EQ(hello(client).status, 0);
}

TEST_F(ControlServer, a_body_of_the_wrong_length_is_refused_and_the_connection_stays) {
    ControlClient client = connect();
    client.send(abi::Op::kHello, std::uint32_t{1});
    const Reply reply = client.receive();
    EXPECT_EQ(reply.status, EINVAL);
    EXPECT_EQ(reply.text, "the body of the request: expected 16 bytes, found 4");
    EXPECT_EQ(hello(client).status, 0);
}

struct Malformed {
    const char* what;
    std::size_t length;  // of the message
    abi::RequestHeader header;
    int status;
    std::string text;
};

TEST_F(ControlServer, malformed_requests_get_an_answer_and_the_connection_is_closed) {
    const Malformed cases[] = {
        {"short", 5, {}, EBADMSG, "a request: expected at least 16 bytes, found 5"},
        {"magic",
         16,
         {.magic = 7},
         EBADMSG,
         "the magic number of a request: expected 0x726c6162, found 0x7"},
        {"version",
         16,
         {.version = 9},
         EPROTO,
         "the version of the protocol: expected " + std::to_string(abi::kVersion) +
             " (that of the card), found 9; card and library are of different builds"},
        {"length",
         20,
         {.op = abi::Op::kHello, .length = 8},
         EBADMSG,
         "the length of a request's body: expected 8, found 4"},
        {"huge",
         abi::kMessageMax + 1000,
         {.op = abi::Op::kHello, .length = abi::kMessageMax + 1000 - 16},
         EBADMSG,
         "the length of a request's body: expected 66520, found 65520 or more"},
    };
    for (const Malformed& one : cases) {
        ControlClient client = connect();
        std::vector<std::byte> bytes(std::max(one.length, sizeof one.header));
        store_bytes(bytes.data(), one.header);
        client.send_raw(std::span(bytes).first(one.length));
        const Reply reply = client.receive();
        EXPECT_EQ(reply.status, one.status) << one.what;
        EXPECT_EQ(reply.text, one.text) << one.what;
        EXPECT_TRUE(client.receive().closed) << one.what;
    }
}

TEST_F(ControlServer, descriptors_that_nobody_asked_for_are_closed) {
    ControlClient client = connect();
    ASSERT_EQ(hello(client).status, 0);
    const std::size_t before = open_descriptors();
    for (int i = 0; i < 20; ++i) {
        client.send(abi::Op::kListDevices, {}, STDERR_FILENO);
        (void)client.receive();
    }
    EXPECT_TRUE(eventually_open(before));
}

TEST_F(ControlServer, attaching_and_detaching_leaves_no_descriptor_behind) {
    const std::size_t before = open_descriptors();
    for (int i = 0; i < 50; ++i) {
        ControlClient client = connect();
        ASSERT_EQ(open_device(client, 1).status, 0);
        client.send(abi::Op::kCreateChannel);
        (void)client.receive();
    }
    ASSERT_TRUE(eventually_attached(0));
    EXPECT_TRUE(eventually_open(before));
}

TEST_F(ControlServer, another_user_is_refused_with_a_reason) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
    ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
    ASSERT_EQ(::chmod(socket_.c_str(), 0666), 0);
    const std::string path = socket_;
    EXPECT_TRUE(in_child([&] {
        if (::setgid(65534) != 0 || ::setuid(65534) != 0) return false;
        ControlClient client = ControlClient::connect(path);
        const Reply reply = hello(client);
        return reply.status == EPERM &&
               reply.text ==
                   "this card belongs to user 0: expected that user or root, found user 65534" &&
               client.receive().closed;
    }));
}

TEST_F(ControlServer, when_descriptors_run_out_a_client_is_told_and_the_card_lives) {
    ControlClient first = connect();
    ASSERT_EQ(hello(first).status, 0);
    std::vector<UniqueFd> sockets;
    for (int i = 0; i < 4; ++i) sockets.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    // The server is in this process: leave no number free.
    std::vector<UniqueFd> hogs;
    rlimit tight{64, before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &tight);
    while (true) {
        UniqueFd hog(::dup(STDERR_FILENO));
        if (!hog) break;
        hogs.push_back(std::move(hog));
    }
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, socket_.data(), socket_.size());
    ASSERT_EQ(::connect(sockets[0].value(), reinterpret_cast<sockaddr*>(&address), sizeof address),
              0);
    ControlClient refused(std::move(sockets[0]));
    const Reply reply = refused.receive();
    EXPECT_EQ(reply.status, EMFILE);
    EXPECT_EQ(reply.text, "the card has no descriptors left (ulimit -n)");
    hogs.clear();
    ::setrlimit(RLIMIT_NOFILE, &before);
    ControlClient next = connect();
    EXPECT_EQ(hello(next).status, 0);
}

TEST_F(ControlServer, a_second_card_of_the_name_is_refused_with_the_pid_of_the_first) {
    const auto second = CardSocket::claim(folder_.path(), "test");
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, EADDRINUSE);
    EXPECT_EQ(second.error().text, "a card named \"test\" is already running (process " +
                                       std::to_string(::getpid()) + ", socket " + socket_ +
                                       "); give this one another name with --name");
    EXPECT_TRUE(CardSocket::claim(folder_.path(), "other").ok());
}

TEST_F(ControlServer, an_ended_card_leaves_its_folder_empty) {
    end();
    EXPECT_NE(::access(socket_.c_str(), F_OK), 0);
    EXPECT_NE(::access((folder_.path() + "/test.lock").c_str(), F_OK), 0);
}

class CardSockets : public ::testing::Test {
protected:
    TemporaryFolder folder_;
    std::string error_of(const std::string& folder, const std::string& name) {
        const auto socket = CardSocket::claim(folder, name);
        return socket.ok() ? "" : socket.error().text;
    }
};

TEST_F(CardSockets, what_a_dead_card_left_behind_is_replaced) {
    const pid_t child = ::fork();
    if (child == 0) {
        const auto socket = CardSocket::claim(folder_.path(), "x");
        ::_exit(socket.ok() ? 0 : 1);  // without the destructor, as after kill -9
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    ASSERT_EQ(status, 0);
    ASSERT_EQ(::access((folder_.path() + "/x.sock").c_str(), F_OK), 0);
    EXPECT_EQ(error_of(folder_.path(), "x"), "");
    EXPECT_NE(::access((folder_.path() + "/x.sock").c_str(), F_OK), 0);
}

TEST_F(CardSockets, a_folder_is_made_for_its_owner_alone) {
    const std::string path = folder_.path() + "/run";
    ASSERT_TRUE(CardSocket::claim(path, "x").ok());
    struct stat facts {};
    ASSERT_EQ(::stat(path.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 07777, 0700u);
}

TEST_F(CardSockets, names_and_folders_that_cannot_be_are_told) {
    EXPECT_EQ(error_of(folder_.path(), "a b"),
              "the name of the card: expected up to 48 letters, digits, '_', '-' and '.', found "
              "\"a b\"");
    EXPECT_EQ(error_of("/proc/rdmalab", "x"),
              "cannot make the runtime folder /proc/rdmalab: No such file or directory");
    EXPECT_EQ(error_of("/etc/hostname", "x"),
              "the runtime folder /etc/hostname: expected a folder, found something else");
    const std::string long_folder = folder_.path() + "/" + std::string(90, 'a');
    EXPECT_THAT(error_of(long_folder, "x"),
                HasSubstr("the path of the card's socket: expected at most 107 bytes"));
}

TEST_F(CardSockets, a_folder_that_others_can_write_to_is_refused) {
    ASSERT_EQ(::chmod(folder_.path().c_str(), 0777), 0);
    EXPECT_EQ(error_of(folder_.path(), "x"),
              "the runtime folder " + folder_.path() +
                  ": expected one that only its owner can write to, found mode 0777");
}

TEST_F(CardSockets, a_folder_of_another_user_is_refused) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to give a folder away";
    ASSERT_EQ(::chown(folder_.path().c_str(), 65534, 65534), 0);
    EXPECT_EQ(error_of(folder_.path(), "x"),
              "the runtime folder " + folder_.path() +
                  ": expected one that belongs to user 0, found one of user 65534");
}

TEST_F(CardSockets, another_file_at_the_place_of_the_socket_is_not_removed) {
    const std::string path = folder_.path() + "/x.sock";
    UniqueFd file(::open(path.c_str(), O_CREAT | O_WRONLY, 0600));
    EXPECT_EQ(error_of(folder_.path(), "x"),
              path + ": expected nothing or the socket of a dead card, found another file");
    EXPECT_EQ(::access(path.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace rdmalab::card::host

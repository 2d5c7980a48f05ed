// CM sessions over the card's socket: real pipes, real processes that die.
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <vector>

#include "card/cm_abi.h"
#include "card/host/cm_pipe.h"
#include "card/host/daemon_fixture.h"

namespace rdmalab::card::host {
namespace {

using abi::CmEventType;
using abi::CmOp;

constexpr std::uint16_t kPort = 7'471;

abi::CmAddress address(std::uint8_t last, std::uint16_t port) {
    abi::CmAddress made{};
    made.family = 2;
    made.port = port;
    made.address[10] = made.address[11] = 0xff;
    if (last == 0) return made;
    made.address[12] = 10;
    made.address[15] = last;
    return made;
}

// A session with one channel, as a program has it.
class Session {
public:
    explicit Session(ControlClient client) : client_(std::move(client)) {
        EXPECT_EQ(call(CmOp::kOpen, abi::CmOpenRequest{0}).status, 0);
        client_.send(static_cast<abi::Op>(CmOp::kCreateChannel));
        auto reply = client_.receive();
        EXPECT_EQ(reply.status, 0) << reply.text;
        if (reply.fds.size() != 1 || reply.body.size() != sizeof channel_) return;
        std::memcpy(&channel_, reply.body.data(), sizeof channel_);
        events_ = std::move(reply.fds[0]);
    }
    template <class Request>
    ControlClient::Reply call(CmOp op, const Request& request) {
        client_.send(static_cast<abi::Op>(op), request);
        return client_.receive();
    }
    std::uint32_t create_id() {
        const auto reply =
            call(CmOp::kCreateId, abi::CmCreateIdRequest{1, channel_, abi::kPortSpaceTcp, 2, 0});
        return reply.status == 0 ? load_bytes<std::uint32_t>(reply.body.data()) : 0;
    }
    int bind(std::uint32_t id, std::uint8_t host, std::uint16_t port) {
        return call(CmOp::kBind, abi::CmBindRequest{id, 0, address(host, port)}).status;
    }
    std::uint32_t listen() {
        const std::uint32_t id = create_id();
        if (bind(id, 0, kPort) != 0) return 0;
        return call(CmOp::kListen, abi::CmListenRequest{id, 0}).status == 0 ? id : 0;
    }
    int resolve(std::uint32_t id, std::uint8_t host) {
        return call(CmOp::kResolveAddr, abi::CmResolveAddrRequest{id, 1, {}, address(host, kPort)})
            .status;
    }
    // Resolves, connects; the two events are taken.
    std::uint32_t connect() {
        const std::uint32_t id = create_id();
        resolve(id, 1);
        call(CmOp::kResolveRoute, abi::CmResolveRouteRequest{id, 1});
        EXPECT_EQ(next(), CmEventType::kAddrResolved);
        EXPECT_EQ(next(), CmEventType::kRouteResolved);
        abi::CmConnectRequest request{};
        request.id = id;
        request.conn.qp_num = id;
        EXPECT_EQ(call(CmOp::kConnect, request).status, 0);
        return id;
    }
    int adopt(std::uint32_t id) {
        return call(CmOp::kAdopt, abi::CmAdoptRequest{2, id, channel_}).status;
    }
    // Takes a request and accepts it.
    std::uint32_t accept() {
        EXPECT_EQ(next(), CmEventType::kConnectRequest);
        const std::uint32_t id = last.new_id;
        adopt(id);
        abi::CmConnectRequest request{};
        request.id = id;
        request.conn.qp_num = 99;
        EXPECT_EQ(call(CmOp::kAccept, request).status, 0);
        return id;
    }
    int establish(std::uint32_t id) {
        return call(CmOp::kEstablish, abi::HandleRequest{id}).status;
    }
    // Blocks; kDeviceRemoval when the pipe has ended.
    CmEventType next() {
        pollfd one{events_.value(), POLLIN, 0};
        if (::poll(&one, 1, 10'000) != 1 ||
            ::read(events_.value(), &last, sizeof last) != static_cast<ssize_t>(sizeof last))
            return CmEventType::kDeviceRemoval;
        return last.type;
    }
    bool has_event() {
        pollfd one{events_.value(), POLLIN, 0};
        return ::poll(&one, 1, 0) == 1 && (one.revents & POLLIN) != 0;
    }

    abi::CmEventRecord last{};

private:
    ControlClient client_;
    std::uint32_t channel_ = 0;
    UniqueFd events_;
};

class CmHost : public DaemonTest {
protected:
    // As the program does: clients die while the card writes to them.
    CmHost() { std::signal(SIGPIPE, SIG_IGN); }

    // A process with a session that does `body` and then waits to be killed.
    class Child {
    public:
        template <class Body>
        Child(CmHost& test, Body body) : Child(test, body, [](Session&) {}) {}
        // `then` follows when the parent may go on.
        template <class Body, class Then>
        Child(CmHost& test, Body body, Then then) {
            int ends[2];
            EXPECT_EQ(::pipe(ends), 0);
            ready_.reset(ends[0]);
            const UniqueFd writer(ends[1]);
            pid_ = ::fork();
            if (pid_ != 0) return;
            Session session(test.connect());
            body(session);
            const char byte = 1;
            if (::write(writer.value(), &byte, 1) != 1) ::_exit(1);
            then(session);
            ::pause();
        }
        ~Child() { kill(); }
        void wait_until_done() {
            char byte = 0;
            EXPECT_EQ(::read(ready_.value(), &byte, 1), 1);
        }
        void kill() {
            if (pid_ <= 0) return;
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
            pid_ = -1;
        }

    private:
        UniqueFd ready_;
        pid_t pid_ = -1;
    };
};

TEST_F(CmHost, a_connection_comes_and_goes_over_pipes) {
    Session server(connect()), client(connect());
    ASSERT_NE(server.listen(), 0u);
    const std::uint32_t active = client.connect();
    server.accept();
    EXPECT_EQ(client.next(), CmEventType::kConnectResponse);
    EXPECT_EQ(client.establish(active), 0);
    EXPECT_EQ(server.next(), CmEventType::kEstablished);
    EXPECT_EQ(client.call(CmOp::kDisconnect, abi::HandleRequest{active}).status, 0);
    EXPECT_EQ(client.next(), CmEventType::kDisconnected);
    EXPECT_EQ(server.next(), CmEventType::kDisconnected);
    EXPECT_EQ(client.next(), CmEventType::kTimewaitExit);
    EXPECT_EQ(server.next(), CmEventType::kTimewaitExit);
}

TEST_F(CmHost, a_killed_listener_frees_its_port_at_once) {
    Session other(connect());
    Child child(*this, [](Session& session) { session.listen(); });
    child.wait_until_done();
    EXPECT_EQ(other.bind(other.create_id(), 0, kPort), EADDRINUSE);
    child.kill();
    int status = EADDRINUSE;
    for (int i = 0; i < 500 && status != 0; ++i) {
        status = other.bind(other.create_id(), 0, kPort);
        if (status != 0) ::usleep(10'000);
    }
    EXPECT_EQ(status, 0);
}

TEST_F(CmHost, a_killed_client_is_told_to_its_server_in_each_state) {
    Session server(connect());
    ASSERT_NE(server.listen(), 0u);
    {
        Child child(*this, [](Session& session) { session.connect(); });
        child.wait_until_done();
        EXPECT_EQ(server.next(), CmEventType::kConnectRequest);
        server.adopt(server.last.new_id);
        child.kill();
        EXPECT_EQ(server.next(), CmEventType::kRejected);
    }
    {
        Child child(*this, [](Session& session) {
            session.connect();
            session.next();
        });
        server.accept();
        child.wait_until_done();
        child.kill();
        EXPECT_EQ(server.next(), CmEventType::kRejected);
    }
    Child child(*this, [](Session& session) {
        const std::uint32_t id = session.connect();
        session.next();
        session.establish(id);
    });
    server.accept();
    child.wait_until_done();
    EXPECT_EQ(server.next(), CmEventType::kEstablished);
    child.kill();
    EXPECT_EQ(server.next(), CmEventType::kDisconnected);
}

TEST_F(CmHost, a_killed_server_is_told_to_its_client_in_each_state) {
    Session client(connect());
    Child slow(*this, [](Session& session) { session.listen(); });
    slow.wait_until_done();
    client.connect();
    slow.kill();
    EXPECT_EQ(client.next(), CmEventType::kRejected);

    Child ready(
        *this, [](Session& session) { session.listen(); },
        [](Session& session) { session.accept(); });
    ready.wait_until_done();
    const std::uint32_t id = client.connect();
    EXPECT_EQ(client.next(), CmEventType::kConnectResponse);
    EXPECT_EQ(client.establish(id), 0);
    ready.kill();
    EXPECT_EQ(client.next(), CmEventType::kDisconnected);
}

TEST_F(CmHost, unread_events_of_a_destroyed_id_are_taken_back) {
    Session session(connect());
    const std::uint32_t first = session.create_id(), second = session.create_id();
    EXPECT_EQ(session.resolve(first, 1), 0);
    EXPECT_EQ(session.resolve(second, 1), 0);
    const auto reply = session.call(CmOp::kDestroyId, abi::CmDestroyIdRequest{first, 0});
    EXPECT_EQ(load_bytes<abi::CmEventsReply>(reply.body.data()).events_reported, 0u);
    EXPECT_EQ(session.next(), CmEventType::kAddrResolved);
    EXPECT_EQ(session.last.id, second);
    EXPECT_FALSE(session.has_event());
}

TEST_F(CmHost, a_full_pipe_loses_nothing) {
    Session session(connect());
    const std::uint32_t id = session.create_id();
    for (int i = 0; i < 500; ++i) ASSERT_EQ(session.resolve(id, 200), 0);
    for (int i = 0; i < 500; ++i) ASSERT_EQ(session.next(), CmEventType::kAddrError) << i;
    EXPECT_STRNE(session.last.text, "");
    EXPECT_FALSE(session.has_event());
}

TEST_F(CmHost, a_session_is_no_attachment_and_the_reverse) {
    ControlClient client = connect();
    EXPECT_EQ(open_device(client, 2).status, 0);
    client.send(static_cast<abi::Op>(CmOp::kOpen), abi::CmOpenRequest{0});
    EXPECT_EQ(client.receive().status, EBUSY);
    client.send(static_cast<abi::Op>(CmOp::kCreateChannel));
    EXPECT_EQ(client.receive().status, EINVAL);
    ControlClient other = connect();
    other.send(static_cast<abi::Op>(CmOp::kOpen), abi::CmOpenRequest{0});
    EXPECT_EQ(other.receive().status, 0);
    other.send(static_cast<abi::Op>(CmOp::kOpen), abi::CmOpenRequest{0});
    EXPECT_EQ(other.receive().status, EBUSY);
    EXPECT_EQ(open_device(other, 2).status, EBUSY);
}

TEST(CmPipe, withdrawing_keeps_the_order_of_the_rest) {
    Poller poller;
    ASSERT_TRUE(poller.open().ok());
    auto pipe = make_pipe();
    ASSERT_TRUE(pipe.ok());
    CmPipe channel(std::move(pipe->write_end), poller);
    abi::CmEventRecord record{};
    for (std::uint64_t i = 0; i < 300; ++i) {
        record.id = static_cast<std::uint32_t>(i % 3);
        record.cookie = i;
        channel.push(record);
    }
    EXPECT_GT(channel.kept(), 0u);
    const auto withdrawn = channel.withdraw(1);
    ASSERT_EQ(withdrawn.size(), 100u);
    for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(withdrawn[i].cookie, 3 * i + 1);
    std::vector<std::uint64_t> rest;
    ASSERT_EQ(::fcntl(pipe->read_end.value(), F_SETFL, O_NONBLOCK), 0);
    while (rest.size() < 200) {
        while (::read(pipe->read_end.value(), &record, sizeof record) ==
               static_cast<ssize_t>(sizeof record))
            rest.push_back(record.cookie);
        ASSERT_GE(poller.wait(Duration{0}), 0);
    }
    for (std::size_t i = 0; i < rest.size(); ++i) EXPECT_EQ(rest[i], i / 2 * 3 + i % 2 * 2);
    EXPECT_EQ(channel.kept(), 0u);
}

TEST(CmPipe, a_reader_that_is_gone_costs_nothing) {
    std::signal(SIGPIPE, SIG_IGN);
    Poller poller;
    ASSERT_TRUE(poller.open().ok());
    auto pipe = make_pipe();
    CmPipe channel(std::move(pipe->write_end), poller);
    pipe->read_end.reset();
    abi::CmEventRecord record{};
    for (int i = 0; i < 300; ++i) channel.push(record);
    EXPECT_EQ(channel.kept(), 0u);
    EXPECT_TRUE(channel.withdraw(0).empty());
}

}  // namespace
}  // namespace rdmalab::card::host

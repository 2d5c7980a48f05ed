// A daemon that runs in a thread of the test; the test's own process and its children are clients.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "card/host/daemon.h"
#include "card/host/testing.h"
#include "card/host/topology.h"

namespace rdmalab::card::host {

class DaemonTest : public ::testing::Test {
protected:
    DaemonTest() { start(); }
    ~DaemonTest() override { end(); }

    void start(const std::string& name = "test") {
        CardConfig config = load_topology("loopback").config;
        config.name = name;
        auto daemon = Daemon::start({config, "loopback", folder_.path(), true});
        ASSERT_TRUE(daemon.ok()) << daemon.error().text;
        daemon_ = std::move(*daemon);
        socket_ = daemon_->socket_path();
        thread_ = std::thread([this] { daemon_->run(); });
    }
    // In order, as a shutdown request asks for.
    void end() {
        if (!daemon_) return;
        ControlClient client = connect();
        client.send(abi::Op::kAdmin, bytes_of(R"({"op":"shutdown"})"));
        (void)client.receive();
        thread_.join();
        daemon_.reset();
    }

    static std::span<const std::byte> bytes_of(std::string_view text) {
        return std::as_bytes(std::span(text.data(), text.size()));
    }
    ControlClient connect() const { return ControlClient::connect(socket_); }

    static ControlClient::Reply admin(ControlClient& client, std::string_view text, int fd = -1) {
        client.send(abi::Op::kAdmin, bytes_of(text), fd);
        return client.receive();
    }
    static ControlClient::Reply hello(ControlClient& client) {
        static const std::uint64_t probe = 0x0123456789abcdef;
        client.send(abi::Op::kHello,
                    abi::HelloRequest{reinterpret_cast<std::uint64_t>(&probe), probe});
        return client.receive();
    }
    static ControlClient::Reply open_device(ControlClient& client, std::uint32_t device) {
        client.send(abi::Op::kOpenContext, abi::OpenContextRequest{device});
        return client.receive();
    }

    TemporaryFolder folder_;
    std::string socket_;
    std::unique_ptr<Daemon> daemon_;
    std::thread thread_;
};

}  // namespace rdmalab::card::host

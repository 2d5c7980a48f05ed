// A whole card in this process: the core, its memory, its socket and its loop, put together.
#pragma once

#include <memory>
#include <string>

#include "card/host/admin.h"
#include "card/host/attachments.h"
#include "card/host/capture.h"
#include "card/host/card_socket.h"
#include "card/host/loop.h"
#include "card/host/memory_port.h"
#include "card/host/network.h"
#include "card/host/poller.h"
#include "card/host/server.h"
#include "card/host/shared_memory.h"
#include "card/host/uplinks.h"

namespace rdmalab::card::host {

class Daemon {
public:
    struct Options {
        CardConfig config;
        std::string topology;  // as named on the command line
        std::string folder;    // runtime folder
        bool may_spin = true;
        bool netns = false;  // namespaces and network interfaces, which need root
        // Folder of those that programs in the namespaces find first; empty: none.
        std::string libraries{};
    };

    // When it returns, clients can connect; they are served by run().
    static Result<std::unique_ptr<Daemon>> start(const Options& options);
    ~Daemon();

    void run();  // until stop(), SIGTERM, SIGINT (see handle_signals) or a shutdown request
    void stop();
    // SIGTERM and SIGINT end run(). They are blocked from here on, in this thread.
    Status handle_signals();

    const std::string& socket_path() const { return socket_->path(); }
    Server& server() { return *server_; }
    Card& card() { return *card_; }

private:
    Daemon() = default;
    Status open_descriptors(const Options& options);
    Status open_network(const Options& options);
    Status open_uplinks(CardConfig& config);
    void assemble(const Options& options);
    Status begin();

    // In the order of their making; each uses those above it.
    std::unique_ptr<CardSocket> socket_;
    Poller poller_;
    UniqueFd bell_, signals_;
    std::unique_ptr<CardPageMemory> page_;
    ProcessMemory memory_;
    std::unique_ptr<Network> network_;  // may be null
    std::unique_ptr<Uplinks> uplinks_;  // may be null
    std::unique_ptr<Attachments> attachments_;
    std::unique_ptr<Card> card_;
    std::unique_ptr<CongestionProcesses> congestion_;
    std::unique_ptr<Captures> captures_;
    LoopCounters counters_;
    std::unique_ptr<Loop> loop_;
    std::unique_ptr<Admin> admin_;
    std::unique_ptr<Server> server_;
};

}  // namespace rdmalab::card::host

// The control socket: accepts clients, checks who they are, answers their requests (ring_abi.h) and
// notices when they go. A client goes when its socket closes or its process ends, whichever is
// first: a forked child may hold the socket for longer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "card/card.h"
#include "card/host/admin.h"
#include "card/host/attachments.h"
#include "card/host/congestion_processes.h"
#include "card/host/message.h"
#include "card/host/network.h"
#include "card/host/peer.h"
#include "card/host/poller.h"

namespace rdmalab::card::host {

class Server final : public ClientList {
public:
    struct Parts {
        Card& card;
        Attachments& attachments;
        Captures& captures;
        Admin& admin;
        CongestionProcesses& congestion;
        Poller& poller;
        int card_page_fd;
        int bell_fd;
        const Network* network = nullptr;  // null: everybody sees every device
    };

    explicit Server(const Parts& parts);
    ~Server() override;
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    // Serves the clients of a listening socket, which stays the caller's. There may be several.
    Status serve(int listener);
    // Takes over one connected socket.
    void adopt(UniqueFd socket);
    void close_all();
    // Repeats the requests that wait for a neighbour (kAwaitsNeighbour).
    void retry_waiting();

    std::vector<Client> clients() const override;
    std::size_t connection_count() const { return connections_.size(); }

private:
    void settle();
    struct Connection {
        std::uint64_t id = 0;
        UniqueFd socket;
        Peer peer;
        std::uint64_t visible = 0;  // bit i: device i
        Poller::Token socket_watch = Poller::kNone, process_watch = Poller::kNone;
        Error refusal;                   // code 0: welcome. Told in answer to the first request.
        OwnerId owner;                   // 0: not attached
        SpaceId space;                   // of the process, once it is attached
        CmSessionId cm_session;          // 0: not a CM session
        FlowSessionId flow;              // 0: it has not tried to own a switch domain
        CongestionProcessId congestion;  // 0: not a congestion control process
        bool is_in_use() const {
            return owner.value != 0 || cm_session.value != 0 || flow.value != 0 ||
                   congestion.value != 0;
        }
        std::uint32_t device = 0;
        // A request that waits for a neighbour. A client has one request under way at a time.
        std::vector<std::byte> waiting;
    };
    struct Reply {
        Reply() = default;
        Reply(ControlReply reply) : control(std::move(reply)) {}  // NOLINT
        static Reply last(ControlReply reply);                    // the connection is closed then

        ControlReply control;
        std::vector<int> fds;           // sent with it; owned by others
        std::vector<UniqueFd> own_fds;  // sent with it and then closed
        std::uint32_t length = 0;       // of a body that is in a descriptor, not inline
        bool close = false;
    };

    void accept_clients(int listener);
    void refuse_without_descriptors(int listener);
    void welcome(Connection& connection);
    std::uint64_t visible_to(const Peer& peer) const;
    Error check_device(const Connection& connection, std::uint32_t device) const;
    void close(std::uint64_t id);
    void handle_readable(std::uint64_t id);
    bool handle_one(Connection& connection);
    bool answer_or_wait(Connection& connection, ByteView bytes, Message& message);
    Reply answer(Connection& connection, ByteView bytes, Message& message);
    Reply dispatch(Connection& connection, abi::Op op, ByteView body, Message& message);
    Reply hello(const Connection& connection, ByteView body);
    Reply list_devices(const Connection& connection);
    Reply open_context(Connection& connection, ByteView body);
    Reply import_context(Connection& connection, Message& message);
    Reply attach(Connection& connection, const Attachments::Ids& ids, UniqueFd async_reader,
                 ControlReply reply);
    void detach(Connection& connection);
    Reply create_channel(Connection& connection, ByteView body);
    Reply destroy_channel(Connection& connection, ByteView body);
    Reply cm_request(Connection& connection, abi::CmOp op, ByteView body);
    Reply open_cm_session(Connection& connection, ByteView body);
    Reply create_cm_channel(Connection& connection, ByteView body);
    Reply flow_request(Connection& connection, ByteView body);
    Reply attach_congestion(Connection& connection, ByteView body);
    Reply admin(Connection& connection, ByteView body, Message& message);
    static bool send(int socket, const Reply& reply);

    Parts parts_;
    std::vector<Poller::Token> listener_watches_;
    UniqueFd reserve_;  // given up for a moment to answer a client when descriptors have run out
    std::uint64_t next_id_ = 1;
    std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
    std::vector<std::byte> received_;
};

}  // namespace rdmalab::card::host

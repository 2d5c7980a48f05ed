// Many connections by RDMA CM, each with a QP and one message that is echoed and checked.
//
//   cm_load server PORT                               serves until SIGTERM
//   cm_load client IP PORT CONNECTIONS ROUNDS PROCESSES
//       each process, ROUNDS times: that many connections at once, a message on each, disconnect
//   cm_load hold IP PORT CONNECTIONS                  keeps them, until SIGTERM
//
// A client's descriptors must be the same after its first round and after its last. What the card
// holds is for the caller to look at.

#include <dirent.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cm_kit.h"
#include "pattern.h"

namespace rdmalab::programs {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBytes = 64;
constexpr int kBacklog = 1024;
constexpr int kCqEntries = 32'768;
constexpr std::size_t kSlotsMax = 16'384;

// What the connections on a device share: one completion queue, one registered slab of messages.
class Shared {
public:
    // `pd` is librdmacm's own, which its QPs belong to.
    Shared(ibv_context* context, ibv_pd* pd)
        : bytes_(kSlotsMax * kBytes),
          channel_(check(ibv_create_comp_channel(context), "ibv_create_comp_channel")),
          cq_(check(ibv_create_cq(context, kCqEntries, nullptr, channel_, 0), "ibv_create_cq")),
          mr_(check(ibv_reg_mr(pd, bytes_.data(), bytes_.size(), IBV_ACCESS_LOCAL_WRITE),
                    "ibv_reg_mr")) {
        check(ibv_req_notify_cq(cq_, 0), "ibv_req_notify_cq");
        for (std::size_t i = kSlotsMax; i > 0; --i) free_.push_back(i - 1);
    }
    ~Shared() {
        ibv_dereg_mr(mr_);
        ibv_destroy_cq(cq_);
        ibv_destroy_comp_channel(channel_);
    }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;

    int fd() const { return channel_->fd; }
    ibv_cq* cq() const { return cq_; }
    std::size_t take_slot() {
        if (free_.empty()) fail(kSetUp, "more than %zu connections", kSlotsMax);
        const std::size_t slot = free_.back();
        free_.pop_back();
        return slot;
    }
    void give_slot(std::size_t slot) { free_.push_back(slot); }
    std::byte* message(std::size_t slot) { return bytes_.data() + slot * kBytes; }
    ibv_sge sge(std::size_t slot) {
        return {reinterpret_cast<std::uint64_t>(message(slot)), kBytes, mr_->lkey};
    }
    // Calls `handle` with each completion there is.
    template <class Handler>
    void drain(Handler handle) {
        ibv_cq* cq = nullptr;
        void* context = nullptr;
        check(ibv_get_cq_event(channel_, &cq, &context), "ibv_get_cq_event");
        ibv_ack_cq_events(cq, 1);
        check(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
        for (ibv_wc wc; ibv_poll_cq(cq_, 1, &wc) > 0;) handle(wc);
    }

private:
    std::vector<std::byte> bytes_;
    ibv_comp_channel* channel_;
    ibv_cq* cq_;
    ibv_mr* mr_;
    std::vector<std::size_t> free_;
};

// One end of a connection: the id's context.
class Connection {
public:
    explicit Connection(rdma_cm_id* id) : id_(id) { id_->context = this; }
    ~Connection() {
        if (id_->qp != nullptr) rdma_destroy_qp(id_);
        check(rdma_destroy_id(id_), "rdma_destroy_id");
        if (shared_ != nullptr) shared_->give_slot(slot_);
    }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    static Connection& of(rdma_cm_id* id) { return *static_cast<Connection*>(id->context); }
    rdma_cm_id* id() const { return id_; }
    std::byte* message() { return shared_->message(slot_); }

    // Makes the QP and lets it receive.
    void make_qp(std::unique_ptr<Shared>& shared) {
        if (!shared) shared = std::make_unique<Shared>(id_->verbs, id_->pd);
        shared_ = shared.get();
        slot_ = shared_->take_slot();
        ibv_qp_init_attr init{};
        init.qp_type = IBV_QPT_RC;
        init.send_cq = init.recv_cq = shared_->cq();
        init.cap = {2, 1, 1, 1, kBytes};
        init.sq_sig_all = 1;
        check(rdma_create_qp(id_, id_->pd, &init), "rdma_create_qp");
        ibv_sge sge = shared_->sge(slot_);
        ibv_recv_wr work{}, *bad = nullptr;
        work.wr_id = reinterpret_cast<std::uint64_t>(this);
        work.sg_list = &sge;
        work.num_sge = 1;
        check(ibv_post_recv(id_->qp, &work, &bad), "ibv_post_recv");
    }
    void send(std::byte* from) {
        ibv_sge sge = {reinterpret_cast<std::uint64_t>(from), kBytes, 0};
        ibv_send_wr work{}, *bad = nullptr;
        work.wr_id = reinterpret_cast<std::uint64_t>(this);
        work.sg_list = &sge;
        work.num_sge = 1;
        work.opcode = IBV_WR_SEND;
        work.send_flags = IBV_SEND_INLINE;
        check(ibv_post_send(id_->qp, &work, &bad), "ibv_post_send");
    }

private:
    rdma_cm_id* id_;
    Shared* shared_ = nullptr;
    std::size_t slot_ = 0;
};

int signal_descriptor() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    return signalfd(-1, &signals, SFD_CLOEXEC);
}

// --- Server

class Server {
public:
    explicit Server(const char* port) {
        listen_on(channel_, RDMA_PS_TCP, ip_endpoint("0.0.0.0", port), kBacklog);
    }

    void run(int stop) {
        std::printf("listening\n");
        std::fflush(stdout);
        for (;;) {
            pollfd waiting[] = {{stop, POLLIN, 0},
                                {channel_.fd(), POLLIN, 0},
                                {shared_ ? shared_->fd() : -1, POLLIN, 0}};
            poll(waiting, 3, -1);
            if (waiting[0].revents != 0) break;
            if (waiting[1].revents != 0)
                if (const auto event = channel_.wait(std::chrono::milliseconds(0))) handle(*event);
            if (waiting[2].revents != 0) shared_->drain([](const ibv_wc& wc) { echo(wc); });
        }
        std::printf("served %zu, %zu are left\n", accepted_, live_);
    }

private:
    void handle(const CmEvent& event) {
        switch (event.type) {
            case RDMA_CM_EVENT_CONNECT_REQUEST: {
                rdma_conn_param parameters = connection_parameters();
                (new Connection(event.id))->make_qp(shared_);
                check(rdma_accept(event.id, &parameters), "rdma_accept");
                ++accepted_;
                ++live_;
                return;
            }
            case RDMA_CM_EVENT_ESTABLISHED:
                return;
            case RDMA_CM_EVENT_DISCONNECTED:
            case RDMA_CM_EVENT_REJECTED:
            case RDMA_CM_EVENT_UNREACHABLE:
            case RDMA_CM_EVENT_CONNECT_ERROR:
                delete &Connection::of(event.id);
                --live_;
                return;
            default:
                fail(kWrongStatus, "unexpected event %s", rdma_event_str(event.type));
        }
    }
    static void echo(const ibv_wc& wc) {
        if (wc.status != IBV_WC_SUCCESS || wc.opcode != IBV_WC_RECV) return;
        auto& connection = *reinterpret_cast<Connection*>(wc.wr_id);
        connection.send(connection.message());
    }

    EventChannel channel_;
    std::unique_ptr<Shared> shared_;
    std::size_t accepted_ = 0, live_ = 0;
};

// --- Client

class Client {
public:
    Client(const char* ip, const char* port) : peer_(ip_endpoint(ip, port)) {}
    ~Client() { connections_.clear(); }

    void connect(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            connections_.push_back(std::make_unique<Connection>(channel_.create_id(RDMA_PS_TCP)));
            check(rdma_resolve_addr(connections_.back()->id(), nullptr,
                                    reinterpret_cast<sockaddr*>(&peer_), 10'000),
                  "rdma_resolve_addr");
        }
        for (std::size_t established = 0; established < count;)
            if (advance(next_event())) ++established;
    }

    void exchange() {
        std::byte message[kBytes];
        std::uint64_t number = 0;
        for (const auto& connection : connections_) {
            Pattern(1, number++).fill(message, kBytes);
            connection->send(message);
        }
        for (std::size_t echoed = 0; echoed < connections_.size();) {
            pollfd waiting{shared_->fd(), POLLIN, 0};
            if (poll(&waiting, 1, 60'000) <= 0) fail(kStalled, "%zu echoes came", echoed);
            shared_->drain([&](const ibv_wc& wc) {
                if (wc.status != IBV_WC_SUCCESS)
                    fail(kWrongStatus, "a work request ended with %s",
                         ibv_wc_status_str(wc.status));
                echoed += wc.opcode == IBV_WC_RECV;
            });
        }
        number = 0;
        for (const auto& connection : connections_)
            if (Pattern(1, number++).first_difference(connection->message(), kBytes) != kBytes)
                fail(kWrongData, "connection %zu echoed wrong bytes", std::size_t{number - 1});
    }

    void disconnect() {
        for (const auto& connection : connections_)
            check(rdma_disconnect(connection->id()), "rdma_disconnect");
        for (std::size_t ended = 0; ended < connections_.size();)
            ended += next_event().type == RDMA_CM_EVENT_DISCONNECTED;
        connections_.clear();
    }

private:
    CmEvent next_event() {
        const auto event = channel_.wait(std::chrono::seconds(60));
        if (!event) fail(kStalled, "no event of RDMA CM within 60 s");
        return *event;
    }
    // True: one more is established.
    bool advance(const CmEvent& event) {
        rdma_conn_param parameters = connection_parameters();
        switch (event.type) {
            case RDMA_CM_EVENT_ADDR_RESOLVED:
                check(rdma_resolve_route(event.id, 10'000), "rdma_resolve_route");
                return false;
            case RDMA_CM_EVENT_ROUTE_RESOLVED:
                Connection::of(event.id).make_qp(shared_);
                check(rdma_connect(event.id, &parameters), "rdma_connect");
                return false;
            case RDMA_CM_EVENT_ESTABLISHED:
                return true;
            default:
                fail(kWrongStatus, "unexpected event %s with status %d", rdma_event_str(event.type),
                     event.status);
        }
    }

    sockaddr_in peer_;
    EventChannel channel_;
    std::unique_ptr<Shared> shared_;
    std::vector<std::unique_ptr<Connection>> connections_;
};

std::size_t open_descriptors() {
    DIR* const folder = check(opendir("/proc/self/fd"), "/proc/self/fd");
    std::size_t count = 0;
    while (readdir(folder) != nullptr) ++count;
    closedir(folder);
    return count;
}

void run_client(const char* ip, const char* port, std::size_t connections, std::size_t rounds) {
    Client client(ip, port);
    std::size_t descriptors = 0;
    for (std::size_t round = 0; round < rounds; ++round) {
        client.connect(connections);
        client.exchange();
        client.disconnect();
        if (round == 0) descriptors = open_descriptors();
    }
    if (open_descriptors() != descriptors)
        fail(kWrongStatus, "%zu descriptors after the first round, %zu after the last", descriptors,
             open_descriptors());
}

// All clients must have succeeded; the first that fails ends the program.
void run_clients(const char* ip, const char* port, std::size_t connections, std::size_t rounds,
                 std::size_t processes) {
    const auto started = Clock::now();
    for (std::size_t i = 0; i < processes; ++i) {
        const pid_t child = fork();
        if (child < 0) fail(kSetUp, "fork: %m");
        if (child > 0) continue;
        run_client(ip, port, connections, rounds);
        std::_Exit(0);
    }
    int status = 0;
    while (wait(&status) > 0)
        if (status != 0) fail(kWrongStatus, "a client process ended with status %#x", status);
    const double seconds = std::chrono::duration<double>(Clock::now() - started).count();
    const std::size_t total = connections * rounds * processes;
    std::printf("connected %zu in %.3f s: %.0f per second\n", total, seconds,
                static_cast<double>(total) / seconds);
}

void hold(const char* ip, const char* port, std::size_t connections, int stop) {
    Client client(ip, port);
    const std::size_t at_once = 500;
    for (std::size_t done = 0; done < connections; done += at_once)
        client.connect(std::min(at_once, connections - done));
    std::printf("holding %zu\n", connections);
    std::fflush(stdout);
    pollfd waiting{stop, POLLIN, 0};
    poll(&waiting, 1, -1);
}

}  // namespace
}  // namespace rdmalab::programs

int main(int argc, char** argv) {
    using namespace rdmalab::programs;
    const std::vector<std::string> words(argv + 1, argv + argc);
    const auto count = [&](std::size_t i) { return std::strtoul(argv[i], nullptr, 10); };
    if (words.size() == 2 && words[0] == "server") {
        const int stop = signal_descriptor();
        Server(argv[2]).run(stop);
    } else if (words.size() == 6 && words[0] == "client") {
        run_clients(argv[2], argv[3], count(4), count(5), count(6));
    } else if (words.size() == 4 && words[0] == "hold") {
        hold(argv[2], argv[3], count(4), signal_descriptor());
    } else {
        fail(kUsage,
             "usage: cm_load server PORT | client IP PORT CONNECTIONS ROUNDS PROCESSES | "
             "hold IP PORT CONNECTIONS");
    }
    return 0;
}

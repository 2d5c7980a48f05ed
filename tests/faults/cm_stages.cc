// One end of a connection by RDMA CM that stops where it is told to, so that it can be killed
// there.
//
//   cm_stages listen IP PORT STAGE[,STAGE...] [ud]
//       stages: listening requested accepted established disconnecting disconnected
//   cm_stages connect IP PORT STAGE[,STAGE...] [ud]
//       stages: resolved requesting replied established disconnecting disconnected
//
// Prints "at STAGE" at each stage. At the named ones it stops: it only prints the events that come
// ("event REJECTED 28") until SIGUSR1 lets it go on; at the last it stays. `replied` is seen by an
// end without QP only: with one, librdmacm answers the reply by itself.

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "cm_kit.h"

namespace rdmalab::programs {
namespace {

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
    return parts;
}

class End {
public:
    End(std::vector<std::string> stops, bool is_datagram)
        : stops_(std::move(stops)), is_datagram_(is_datagram) {
        sigset_t signals;
        sigemptyset(&signals);
        sigaddset(&signals, SIGUSR1);
        sigprocmask(SIG_BLOCK, &signals, nullptr);
        go_on_ = signalfd(-1, &signals, SFD_CLOEXEC);
    }

    void listen(const sockaddr_in& where) {
        listen_on(channel_, space(), where, 16);
        reached("listening");
        rdma_cm_id* const id = channel_.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        reached("requested");
        make_qp(id);
        rdma_conn_param parameters = connection_parameters();
        parameters.qp_num = id->qp->qp_num;
        check(rdma_accept(id, &parameters), "rdma_accept");
        reached("accepted");
        channel_.expect(RDMA_CM_EVENT_ESTABLISHED);
        end(id);
    }

    void connect(const sockaddr_in& peer) {
        rdma_cm_id* const id = channel_.create_id(space());
        sockaddr_in address = peer;
        check(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&address), 2'000),
              "rdma_resolve_addr");
        channel_.expect(RDMA_CM_EVENT_ADDR_RESOLVED);
        check(rdma_resolve_route(id, 2'000), "rdma_resolve_route");
        channel_.expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
        reached("resolved");
        const bool has_qp = stops_.back() != "replied";
        if (has_qp) make_qp(id);
        rdma_conn_param parameters = connection_parameters();
        if (!has_qp) parameters.qp_num = static_cast<std::uint32_t>(getpid());
        check(rdma_connect(id, &parameters), "rdma_connect");
        reached("requesting");
        if (!has_qp) {
            channel_.expect(RDMA_CM_EVENT_CONNECT_RESPONSE);
            reached("replied");
            check(rdma_establish(id), "rdma_establish");
        } else {
            channel_.expect(RDMA_CM_EVENT_ESTABLISHED);
        }
        end(id);
    }

private:
    rdma_port_space space() const { return is_datagram_ ? RDMA_PS_UDP : RDMA_PS_TCP; }

    void make_qp(rdma_cm_id* id) {
        ibv_qp_init_attr init{};
        init.qp_type = is_datagram_ ? IBV_QPT_UD : IBV_QPT_RC;
        init.cap = {1, 1, 1, 1, 0};
        check(rdma_create_qp(id, nullptr, &init), "rdma_create_qp");
    }

    void end(rdma_cm_id* id) {
        reached("established");
        check(rdma_disconnect(id), "rdma_disconnect");
        reached("disconnecting");
        channel_.expect(RDMA_CM_EVENT_DISCONNECTED);
        reached("disconnected");
    }

    void reached(const std::string& stage) {
        std::printf("at %s\n", stage.c_str());
        std::fflush(stdout);
        if (std::find(stops_.begin(), stops_.end(), stage) != stops_.end()) watch();
    }

    // Unread requests are a state of their own: nothing is read while listening.
    void watch() {
        const bool reads = stops_.front() != "listening";
        for (;;) {
            pollfd waiting[] = {{go_on_, POLLIN, 0}, {reads ? channel_.fd() : -1, POLLIN, 0}};
            poll(waiting, 2, -1);
            if (waiting[0].revents != 0) {
                signalfd_siginfo signal;
                if (read(go_on_, &signal, sizeof signal) > 0) return;
            }
            const auto event = channel_.wait(std::chrono::milliseconds(0));
            if (!event) continue;
            // "RDMA_CM_EVENT_REJECTED" without what all names begin with.
            std::printf("event %s %d\n",
                        rdma_event_str(event->type) + std::strlen("RDMA_CM_EVENT_"), event->status);
            std::fflush(stdout);
        }
    }

    EventChannel channel_;
    std::vector<std::string> stops_;
    bool is_datagram_;
    int go_on_;
};

}  // namespace
}  // namespace rdmalab::programs

int main(int argc, char** argv) {
    using namespace rdmalab::programs;
    const std::string role = argc > 1 ? argv[1] : "";
    const bool is_datagram = argc == 6 && std::string(argv[5]) == "ud";
    if ((argc != 5 && !is_datagram) || (role != "listen" && role != "connect"))
        fail(kUsage, "usage: cm_stages listen|connect IP PORT STAGE[,STAGE...] [ud]");
    End end(split(argv[4]), is_datagram);
    if (role == "listen")
        end.listen(ip_endpoint(argv[2], argv[3]));
    else
        end.connect(ip_endpoint(argv[2], argv[3]));
    return 0;
}

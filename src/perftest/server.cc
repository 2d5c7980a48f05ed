#include "perftest/server.h"

#include <errno.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "perftest/client.h"
#include "perftest/failure.h"
#include "perftest/protocol.h"
#include "perftest/serve.h"

namespace rdmalab::perftest {

namespace {

constexpr std::size_t kSessionsMax = 256;
constexpr std::int64_t kFarewellNs = 12'000'000'000;

std::string address_of(int fd) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    char host[NI_MAXHOST] = "?";
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0) {
        getnameinfo(reinterpret_cast<sockaddr*>(&address), length, host, sizeof host, nullptr, 0,
                    NI_NUMERICHOST);
    }
    std::string text = host;
    constexpr char kMapped[] = "::ffff:";
    return text.rfind(kMapped, 0) == 0 ? text.substr(sizeof kMapped - 1) : text;
}

class Server {
public:
    Server(const std::string& program, const Request& request)
        : program_(program), request_(request) {}
    int run();

private:
    void accept_client(int listener);
    void reap();
    void end_sessions();
    bool has_lease_ended() const;

    std::string program_;
    const Request& request_;
    Signals signals_;
    std::set<pid_t> sessions_;
};

void Server::accept_client(int listener) {
    Fd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.is_open()) return;
    std::string name = "client " + address_of(fd.value());
    if (sessions_.size() >= kSessionsMax) {
        Channel(std::move(fd))
            .send(MessageType::kFail, {{"text", "the server has too many clients"}});
        return;
    }
    fflush(nullptr);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0) {
        fmt::print(stderr, "{}: fork: {}\n", program_, strerror(errno));
        return;
    }
    if (pid > 0) {
        sessions_.insert(pid);
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);  // Ctrl-C reaches us through the server
    if (getppid() != parent) _exit(kExitError);
    ::close(listener);
    int status = kExitError;
    try {
        serve_client(Channel(std::move(fd)), name, request_);
        status = kExitOk;
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}: {}\n", program_, error.what());
    }
    fflush(nullptr);
    _exit(status);
}

void Server::reap() {
    for (pid_t pid = 0; (pid = waitpid(-1, nullptr, WNOHANG)) > 0;) sessions_.erase(pid);
}

// Ctrl-C: running tests end their window and are reported; nothing waits for ever.
void Server::end_sessions() {
    for (pid_t pid : sessions_) kill(pid, SIGINT);
    std::int64_t deadline = monotonic_ns() + kFarewellNs;
    while (!sessions_.empty() && monotonic_ns() < deadline) {
        reap();
        // A second Ctrl-C does not wait.
        pollfd entry{.fd = signals_.descriptor(), .events = POLLIN, .revents = 0};
        if (poll(&entry, 1, 20) > 0 && signals_.take()) break;
    }
    for (pid_t pid : sessions_) kill(pid, SIGKILL);
    while (waitpid(-1, nullptr, 0) > 0) {
    }
}

bool Server::has_lease_ended() const {
    char byte = 0;
    return read(STDIN_FILENO, &byte, 1) <= 0;
}

int Server::run() {
    bool lease = request_.contains("lease");
    auto port = static_cast<std::uint16_t>(
        request_.contains("port") ? std::stoul(request_.at("port")) : kControlPort);
    Result<Fd> listener = listen_on(port);
    if (!listener.ok()) throw Failure(listener.error().text);
    std::string name = program_.substr(program_.rfind('/') + 1);
    fmt::print("Running {} server...\n", name);
    fflush(stdout);
    for (;;) {
        pollfd entries[] = {{.fd = listener->value(), .events = POLLIN, .revents = 0},
                            {.fd = signals_.descriptor(), .events = POLLIN, .revents = 0},
                            {.fd = lease ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0}};
        poll(entries, std::size(entries), 200);
        reap();
        bool told = entries[1].revents != 0 && signals_.take();
        bool left = entries[2].revents != 0 && has_lease_ended();
        if (told || left) {
            listener->close();
            end_sessions();
            return kExitOk;
        }
        if (entries[0].revents != 0) accept_client(listener->value());
    }
}

}  // namespace

int run_server(const std::string& program, const Request& request, const Planned&) {
    return Server(program, request).run();
}

}  // namespace rdmalab::perftest

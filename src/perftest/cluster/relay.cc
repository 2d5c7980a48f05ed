#include "perftest/cluster/relay.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <list>
#include <vector>

#include "perftest/child.h"
#include "perftest/cluster/agent.h"
#include "perftest/cluster/mpi_plugin.h"
#include "perftest/cluster/relay_abi.h"
#include "perftest/cluster/send_queue.h"
#include "perftest/failure.h"
#include "perftest/protocol.h"

namespace rdmalab::perftest {

namespace {

constexpr int kLookMs = 1;       // at MPI, while messages come
constexpr int kIdleLookMs = 10;  // otherwise
constexpr std::int64_t kLivelyNs = 300'000'000;
constexpr int kClockQuestions = 10;
constexpr char kPluginVariable[] = "RDMA_PERFTEST_MPI_PLUGIN";

// What a message between relays is.
enum Tag : int {
    kForAgent = 1,  // from the agent of the sender
    kForFrontEnd,   // from the agent of the sender
    kFromFrontEnd,  // for the agent of the receiver
    kClockBegin,    // watch MPI without sleeping
    kClockAsk,
    kClockAnswer,
    kClockEnd
};

std::string folder_of_program() {
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    std::string text(path, length > 0 ? static_cast<std::size_t>(length) : 0);
    return text.substr(0, text.rfind('/'));
}

// Throws Failure with all places that were looked at.
const RdmalabMpi& open_plugin() {
    std::string folder = folder_of_program(), tried;
    std::vector<std::string> places = {folder + "/../lib/rdmalab/cluster_mpi.so",
                                       folder + "/../" RDMALAB_LIBDIR "/rdmalab/cluster_mpi.so"};
    if (const char* given = getenv(kPluginVariable)) places = {given};
    for (const std::string& place : places) {
        void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL);
        if (library == nullptr) {
            tried += fmt::format("{}{}", tried.empty() ? "" : "; ", dlerror());
            continue;
        }
        auto entry = reinterpret_cast<const RdmalabMpi* (*)()>(dlsym(library, kMpiPluginEntry));
        if (entry == nullptr || entry()->version != kMpiPluginVersion) {
            throw Failure(fmt::format("{} is of another version", place));
        }
        return *entry();
    }
    throw Failure(fmt::format("no MPI here: {}", tried));
}

class Relay {
public:
    Relay(Channel agent, pid_t agent_pid, const RdmalabMpi& mpi)
        : agent_(std::move(agent)),
          agent_pid_(agent_pid),
          mpi_(mpi),
          rank_(mpi.rank()),
          is_first_(rank_ == 0) {
        front_.set_body_max(kBodyMax);
    }
    int run();

private:
    struct Sending {
        std::string bytes;
        void* handle = nullptr;
    };

    void pump();
    void read_agent();
    void read_front_end();
    bool look_at_mpi();
    void handle_mpi(int from, int tag, std::string bytes);
    void send(int to, int tag, std::string bytes);
    void to_agent(Frame frame, std::uint32_t source);
    void to_front_end(Frame frame, std::uint32_t source);
    void pass(Frame frame);
    void handle_agent_end();
    void answer_clock();
    void compare_clocks();
    std::string wait_mpi(int from, int tag);
    void collect_sent();
    bool is_done() const { return ended_ && sending_.empty() && to_agent_.empty() && out_.empty(); }

    Channel agent_;
    pid_t agent_pid_;
    const RdmalabMpi& mpi_;
    int rank_;
    bool is_first_;
    Decoder front_;
    SendQueue to_agent_, out_;
    std::list<Sending> sending_;
    bool agent_open_ = true, stdin_open_ = true, said_bye_ = false, ended_ = false;
    std::int64_t lively_until_ns_ = 0;
};

void Relay::send(int to, int tag, std::string bytes) {
    sending_.push_back({std::move(bytes), nullptr});
    Sending& last = sending_.back();
    last.handle = mpi_.send(to, tag, last.bytes.data(), last.bytes.size());
}

void Relay::collect_sent() {
    sending_.remove_if([&](const Sending& each) { return mpi_.is_sent(each.handle); });
}

void Relay::to_agent(Frame frame, std::uint32_t source) {
    if (frame.type == MessageType::kBye) said_bye_ = true;
    frame.address = source;
    to_agent_.add(encode(frame));
}

void Relay::to_front_end(Frame frame, std::uint32_t source) {
    frame.address = source;
    if (is_first_) {
        out_.add(encode(frame));
    } else {
        send(0, kForFrontEnd, encode(frame));
    }
}

// From the own agent.
void Relay::pass(Frame frame) {
    std::uint32_t self = address_of_agent(static_cast<std::uint32_t>(rank_));
    if (frame.address == kFrontEnd) return to_front_end(std::move(frame), self);
    if (frame.address == self) return to_agent(std::move(frame), self);
    int to = static_cast<int>(frame.address) - 1;
    if (to >= mpi_.size()) throw Failure("a message for an agent that is not there");
    frame.address = self;
    send(to, kForAgent, encode(frame));
}

Frame frame_of(std::string bytes) {
    Decoder decoder;
    decoder.handle_bytes(bytes);
    Result<std::optional<Frame>> frame = decoder.poll_frame();
    if (!frame.ok() || !frame->has_value()) throw Failure("a message between relays is broken");
    return std::move(**frame);
}

void Relay::handle_mpi(int from, int tag, std::string bytes) {
    std::uint32_t source = address_of_agent(static_cast<std::uint32_t>(from));
    switch (tag) {
        case kForAgent:
            return to_agent(frame_of(std::move(bytes)), source);
        case kFromFrontEnd:
            return to_agent(frame_of(std::move(bytes)), kFrontEnd);
        case kForFrontEnd:
            out_.add(bytes);
            return;
        case kClockBegin:
            return answer_clock();
        default:
            throw Failure(fmt::format("a message of kind {} between relays", tag));
    }
}

bool Relay::look_at_mpi() {
    bool found = false;
    int from = 0, tag = 0;
    for (long long size = 0; (size = mpi_.probe(&from, &tag)) >= 0; found = true) {
        std::string bytes(static_cast<std::size_t>(size), '\0');
        mpi_.receive(bytes.data(), bytes.size());
        handle_mpi(from, tag, std::move(bytes));
    }
    collect_sent();
    return found;
}

// The next message of that kind; others are handled on the way.
std::string Relay::wait_mpi(int from, int tag) {
    for (;;) {
        int source = 0, kind = 0;
        long long size = mpi_.probe(&source, &kind);
        if (size < 0) {
            collect_sent();
            continue;
        }
        std::string bytes(static_cast<std::size_t>(size), '\0');
        mpi_.receive(bytes.data(), bytes.size());
        bool wanted = (from < 0 || source == from) && (kind == tag || kind == kClockEnd);
        if (wanted) return kind == kClockEnd ? "" : bytes;
        handle_mpi(source, kind, std::move(bytes));
    }
}

void Relay::answer_clock() {
    while (!wait_mpi(0, kClockAsk).empty()) {
        std::int64_t now = monotonic_ns();
        send(0, kClockAnswer, std::string(reinterpret_cast<const char*>(&now), sizeof now));
    }
}

// The first host's clock is the reference; the quickest of some questions counts.
void Relay::compare_clocks() {
    Json offsets = Json::array(), errors = Json::array();
    offsets.push_back(0);
    errors.push_back(0);
    for (int host = 1; host < mpi_.size(); ++host) {
        std::int64_t best = INT64_MAX, offset = 0;
        send(host, kClockBegin, "x");
        for (int question = 0; question < kClockQuestions; ++question) {
            std::int64_t asked = monotonic_ns(), theirs = 0;
            send(host, kClockAsk, "x");
            std::string answer = wait_mpi(host, kClockAnswer);
            std::int64_t now = monotonic_ns();
            if (answer.size() != sizeof theirs) throw Failure("a clock that cannot be read");
            memcpy(&theirs, answer.data(), sizeof theirs);
            if (now - asked >= best) continue;
            best = now - asked;
            offset = theirs - (asked + now) / 2;
        }
        send(host, kClockEnd, "x");
        offsets.push_back(offset);
        errors.push_back(best / 2);
    }
    Json body = {{"offsets", offsets}, {"errors", errors}, {"referenceNs", monotonic_ns()}};
    out_.add(encode(MessageType::kClock, body, kRelays));
}

void Relay::read_front_end() {
    char bytes[65536];
    ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
    if (count == 0) {
        stdin_open_ = false;
        if (said_bye_) return;
        // The lease: without a front-end there is nobody to work for.
        kill(agent_pid_, SIGKILL);
        mpi_.abort(kExitError);
    }
    if (count < 0) return;
    front_.handle_bytes({bytes, static_cast<std::size_t>(count)});
    for (;;) {
        Result<std::optional<Frame>> frame = front_.poll_frame();
        if (!frame.ok()) throw Failure("the front-end: " + frame.error().text);
        if (!frame->has_value()) return;
        std::uint32_t to = (*frame)->address;
        if (to == kRelays) {
            compare_clocks();
        } else if (to == address_of_agent(0)) {
            to_agent(std::move(**frame), kFrontEnd);
        } else {
            send(static_cast<int>(to) - 1, kFromFrontEnd, encode(**frame));
        }
    }
}

// After its farewell an agent may go; before, the front-end is told, and the others go on.
void Relay::handle_agent_end() {
    agent_open_ = false;
    int status = 0;
    waitpid(agent_pid_, &status, 0);
    if (said_bye_) {
        ended_ = true;
        return;
    }
    std::string how = WIFSIGNALED(status)
                          ? fmt::format("was killed by signal {}", WTERMSIG(status))
                          : fmt::format("ended with status {}", WEXITSTATUS(status));
    Frame frame{MessageType::kFail, 0,
                to_text(Json{{"text", fmt::format("the agent of {} {}", host_name(), how)}})};
    to_front_end(std::move(frame), address_of_agent(static_cast<std::uint32_t>(rank_)));
}

void Relay::read_agent() {
    bool open = agent_.fill();
    for (;;) {
        Result<std::optional<Frame>> frame = agent_.poll_frame();
        if (!frame.ok()) throw Failure("the agent: " + frame.error().text);
        if (!frame->has_value()) break;
        pass(std::move(**frame));
    }
    if (!open) handle_agent_end();
}

void Relay::pump() {
    auto events = [](const SendQueue& queue) {
        return static_cast<short>(queue.empty() ? POLLIN : POLLIN | POLLOUT);
    };
    pollfd entries[] = {
        {.fd = agent_open_ ? agent_.descriptor() : -1, .events = events(to_agent_), .revents = 0},
        {.fd = is_first_ && stdin_open_ ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0},
        {.fd = out_.empty() ? -1 : STDOUT_FILENO, .events = POLLOUT, .revents = 0}};
    bool lively = monotonic_ns() < lively_until_ns_ || !sending_.empty();
    int found = poll(entries, std::size(entries), lively ? kLookMs : kIdleLookMs);
    if ((entries[0].revents & (POLLIN | POLLHUP)) != 0) read_agent();
    if (entries[1].revents != 0) read_front_end();
    bool heard = look_at_mpi();
    if (found > 0 || heard) lively_until_ns_ = monotonic_ns() + kLivelyNs;
    if (agent_open_) to_agent_.flush(agent_.descriptor());
    if (!out_.flush(STDOUT_FILENO)) mpi_.abort(kExitError);
    // Said to an agent that is gone already.
    if (!agent_open_) {
        to_agent_ = SendQueue();
        ended_ = ended_ || said_bye_;
    }
}

int Relay::run() {
    fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) | O_NONBLOCK);
    try {
        while (!is_done()) pump();
    } catch (const Failure& failure) {
        fmt::print(stderr, "rdma_perftest on {}: {}\n", host_name(), failure.what());
        kill(agent_pid_, SIGKILL);
        mpi_.abort(kExitError);
    }
    mpi_.finalize();
    return kExitOk;
}

}  // namespace

int run_relay() {
    signal(SIGPIPE, SIG_IGN);
    // Of the terminal that the front-end has: it tells us what to do.
    signal(SIGINT, SIG_IGN);
    Child agent;
    try {
        agent = fork_child([](Channel uplink) {
            // Nothing but messages may appear there.
            dup2(STDERR_FILENO, STDOUT_FILENO);
            int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
            if (null >= 0) dup2(null, STDIN_FILENO);
            _exit(run_agent(std::move(uplink)));
        });
        const RdmalabMpi& mpi = open_plugin();
        if (const char* error = mpi.init()) throw Failure(error);
        return Relay(std::move(agent.channel), agent.pid, mpi).run();
    } catch (const Failure& failure) {
        fmt::print(stderr, "rdma_perftest on {}: {}\n", host_name(), failure.what());
        if (agent.pid > 0) kill(agent.pid, SIGKILL);
        return kExitError;
    }
}

}  // namespace rdmalab::perftest

// Random requests on the control socket, through a real socket pair into a real server and card.
// The input is a list of requests: two bytes choose what is done and how well-formed it is, one
// gives the length of the body. Whatever comes, the card lives, answers or hangs up.
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "card/host/server.h"
#include "card/host/testing.h"
#include "card/host/topology.h"

namespace rdmalab::card::host {
namespace {

class Input {
public:
    Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
    bool empty() const { return left_ == 0; }
    std::uint8_t byte() {
        if (left_ == 0) return 0;
        --left_;
        return *data_++;
    }
    std::vector<std::byte> bytes(std::size_t count) {
        std::vector<std::byte> out(std::min(count, left_));
        for (std::byte& one : out) one = std::byte{byte()};
        return out;
    }

private:
    const std::uint8_t* data_;
    std::size_t left_;
};

// A whole host without listener and loop; made once, as a card would live long.
class Host {
public:
    Host() : attachments_(poller_, memory_) {
        spdlog::set_level(spdlog::level::off);
        const CardConfig config = load_topology("loopback").config;
        const bool opened = poller_.open().ok();
        auto page = CardPageMemory::create();
        bell_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (!opened || !page.ok() || !bell_) std::abort();
        page_ = std::move(*page);
        card_ = std::make_unique<Card>(config, attachments_, memory_);
        captures_ = std::make_unique<Captures>(
            poller_, memory_, [this](TapPoint point, bool on) { card_->set_tap(point, on); });
        attachments_.set_captures(captures_.get());
        admin_ = std::make_unique<Admin>(Admin::Parts{*card_, *captures_, attachments_, memory_,
                                                      counters_, [] {}, "loopback", "fuzz"});
        server_ = std::make_unique<Server>(Server::Parts{*card_, attachments_, *captures_, *admin_,
                                                         poller_, page_->fd(), bell_.value()});
        admin_->set_clients(server_.get());
    }

    ControlClient connect() {
        int sockets[2];
        if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets) != 0) {
            std::abort();
        }
        server_->adopt(UniqueFd(sockets[0]));
        return ControlClient(UniqueFd(sockets[1]));
    }
    // Lets the server and the card do all they have to do.
    void settle() {
        while (poller_.wait(Duration{0}) > 0) {
        }
        now_ = now_ + microseconds(10);
        for (int round = 0; round < 100 && card_->poll(now_); ++round) {
        }
        attachments_.bury_dead();
    }
    std::size_t connection_count() const { return server_->connection_count(); }
    std::size_t attachment_count() const { return attachments_.count(); }

private:
    Poller poller_;
    UniqueFd bell_;
    std::unique_ptr<CardPageMemory> page_;
    ProcessMemory memory_;
    Attachments attachments_;
    std::unique_ptr<Card> card_;
    std::unique_ptr<Captures> captures_;
    LoopCounters counters_;
    std::unique_ptr<Admin> admin_;
    std::unique_ptr<Server> server_;
    Instant now_{1};
};

// What the card shares with the client; the fuzzer scribbles on it.
struct Shared {
    std::byte* base = nullptr;
    std::size_t length = 0;
    ~Shared() {
        if (base) ::munmap(base, length);
    }
};

constexpr std::size_t kSharedView = 1 << 20;

void map_shared(ControlClient& client, Shared& shared) {
    ControlClient::Reply reply = client.receive_now();
    if (reply.closed || reply.fds.size() != 4 || shared.base) return;
    void* base =
        ::mmap(nullptr, kSharedView, PROT_READ | PROT_WRITE, MAP_SHARED, reply.fds[0].value(), 0);
    if (base == MAP_FAILED) return;
    shared.base = static_cast<std::byte*>(base);
    shared.length = kSharedView;
}

abi::Op choose_op(std::uint8_t choice) {
    constexpr std::array kFirst = {abi::Op::kHello,       abi::Op::kListDevices,
                                   abi::Op::kOpenContext, abi::Op::kQueryPort,
                                   abi::Op::kQueryGids,   abi::Op::kAdmin};
    if (choice < kFirst.size() * 4) return kFirst[choice / 4];
    return static_cast<abi::Op>(16 + choice % 24);
}

// The length of the body that the operation expects.
std::size_t right_length(abi::Op op) {
    switch (op) {
        case abi::Op::kHello:
            return sizeof(abi::HelloRequest);
        case abi::Op::kRegMr:
            return sizeof(abi::RegMrRequest);
        case abi::Op::kCreateCq:
        case abi::Op::kResizeCq:
        case abi::Op::kModifySrq:
            return sizeof(abi::CreateCqRequest);
        case abi::Op::kCreateSrq:
            return sizeof(abi::CreateSrqRequest);
        case abi::Op::kCreateQp:
            return sizeof(abi::CreateQpRequest);
        case abi::Op::kModifyQp:
            return sizeof(abi::ModifyQpRequest);
        case abi::Op::kCreateAh:
            return sizeof(abi::CreateAhRequest);
        case abi::Op::kAttachMcast:
        case abi::Op::kDetachMcast:
            return sizeof(abi::McastRequest);
        case abi::Op::kListDevices:
        case abi::Op::kQueryPort:
        case abi::Op::kQueryGids:
        case abi::Op::kAllocPd:
        case abi::Op::kCreateChannel:
            return 0;
        default:
            return sizeof(abi::HandleRequest);
    }
}

// Numbers of requests are small in practice: clears most bytes, so that handles are often right.
void make_plausible(std::vector<std::byte>& body) {
    for (std::size_t i = 0; i < body.size(); ++i) {
        if (i % 4 != 0) body[i] = std::byte{0};
    }
}

void send_one(ControlClient& client, Input& input) {
    const std::uint8_t shape = input.byte();
    abi::RequestHeader header;
    header.op = choose_op(input.byte());
    std::vector<std::byte> body =
        input.bytes(shape & 6 ? right_length(header.op) : input.byte() % 64);
    if (shape & 1) make_plausible(body);
    header.length = static_cast<std::uint32_t>(body.size());
    if (shape >= 250) header.length = input.byte();
    if (shape == 249) header.magic = input.byte();
    if (shape == 248) header.version = input.byte();
    std::vector<std::byte> bytes(sizeof header + body.size());
    store_bytes(bytes.data(), header);
    std::copy(body.begin(), body.end(), bytes.begin() + sizeof header);
    if (shape == 247) bytes.resize(std::min<std::size_t>(bytes.size(), input.byte() + 1));
    client.send_raw(bytes, shape % 16 == 3 ? STDIN_FILENO : -1);
}

void scribble(Shared& shared, Input& input) {
    if (!shared.base) return;
    const std::vector<std::byte> bytes = input.bytes(input.byte());
    const std::size_t at = (input.byte() << 12 | input.byte() << 4) % (shared.length - 256);
    std::copy(bytes.begin(), bytes.end(), shared.base + at);
}

void play(Host& host, Input& input) {
    ControlClient client = host.connect();
    Shared shared;
    // Most inputs are to get past the door.
    if (input.byte() % 8 != 0) {
        client.send(abi::Op::kOpenContext, abi::OpenContextRequest{input.byte() % 5u});
        host.settle();
        map_shared(client, shared);
    }
    while (!input.empty()) {
        send_one(client, input);
        host.settle();
        if (client.receive_now().closed) break;
        scribble(shared, input);
        host.settle();
    }
    client.close();
    host.settle();
}

}  // namespace
}  // namespace rdmalab::card::host

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace rdmalab::card::host;
    static Host host;
    Input input(data, size);
    play(host, input);
    if (host.connection_count() != 0 || host.attachment_count() != 0) std::abort();
    return 0;
}

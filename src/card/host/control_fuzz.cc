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
#include "card/rule_abi.h"

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
        congestion_ = std::make_unique<CongestionProcesses>(*card_);
        captures_ = std::make_unique<Captures>(
            poller_, memory_, [this](TapPoint point, bool on) { card_->set_tap(point, on); });
        attachments_.set_captures(captures_.get());
        admin_ =
            std::make_unique<Admin>(Admin::Parts{*card_, *captures_, attachments_, *congestion_,
                                                 memory_, counters_, [] {}, "loopback", "fuzz"});
        server_ = std::make_unique<Server>(Server::Parts{*card_, attachments_, *captures_, *admin_,
                                                         *congestion_, poller_, page_->fd(),
                                                         bell_.value()});
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
    std::unique_ptr<CongestionProcesses> congestion_;
    std::unique_ptr<Captures> captures_;
    LoopCounters counters_;
    std::unique_ptr<Admin> admin_;
    std::unique_ptr<Server> server_;
    Instant now_{1};
};

abi::Op choose_op(std::uint8_t choice) {
    constexpr std::array kFirst = {abi::Op::kHello,       abi::Op::kListDevices,
                                   abi::Op::kOpenContext, abi::Op::kQueryPort,
                                   abi::Op::kQueryGids,   abi::Op::kAdmin};
    if (choice < kFirst.size() * 4) return kFirst[choice / 4];
    return static_cast<abi::Op>(16 + choice % 43);
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
        case abi::Op::kModifyCq:
            return sizeof(abi::ModifyCqRequest);
        case abi::Op::kResolveAddress:
            return sizeof(abi::AhAttributes);
        case abi::Op::kCreateFlow:
            return sizeof(abi::CreateFlowRequest);
        case abi::Op::kCreateHashQp:
            return sizeof(abi::CreateHashQpRequest);
        case abi::Op::kReregMr:
            return sizeof(abi::ReregMrRequest);
        case abi::Op::kAllocMw:
        case abi::Op::kOpenQp:
        case abi::Op::kAllocDm:
            return 8;
        case abi::Op::kRegDmMr:
            return sizeof(abi::RegDmMrRequest);
        case abi::Op::kOpenXrcd:
            return sizeof(abi::OpenXrcdRequest);
        case abi::Op::kListDevices:
        case abi::Op::kQueryPort:
        case abi::Op::kQueryGids:
        case abi::Op::kAllocPd:
        case abi::Op::kCreateChannel:
        case abi::Op::kCreateCounters:
            return 0;
        default:
            return sizeof(abi::HandleRequest);
    }
}

// A client's connection with what it has learnt: its shared memory and the handles of its objects.
class Session {
public:
    explicit Session(Host& host) : host_(host), client_(host.connect()) {}
    ~Session() {
        if (base_) ::munmap(base_, kView);
        client_.close();
        host_.settle();
    }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    // An attached client with one object of most kinds, so that random requests find some.
    void attach(std::uint32_t device) {
        const auto opened = ask(abi::Op::kOpenContext, abi::OpenContextRequest{device});
        if (opened.fds.size() != 4) return;
        void* base =
            ::mmap(nullptr, kView, PROT_READ | PROT_WRITE, MAP_SHARED, opened.fds[0].value(), 0);
        if (base != MAP_FAILED) base_ = static_cast<std::byte*>(base);
        doorbell_ = load_bytes<abi::OpenContextReply>(opened.body.data()).doorbell.offset;
        const std::uint32_t pd = handle_of(ask(abi::Op::kAllocPd, {}));
        const std::uint32_t channel = handle_of(ask(abi::Op::kCreateChannel, {}));
        const std::uint32_t cq =
            handle_of(ask(abi::Op::kCreateCq, abi::CreateCqRequest{16, channel}));
        (void)handle_of(
            ask(abi::Op::kCreateSrq, abi::CreateSrqRequest{pd, 16, 2, 0, abi::kNoXrcd, 0}));
        constexpr std::uint32_t kRc = 2;  // IBV_QPT_RC
        (void)handle_of(ask(
            abi::Op::kCreateQp,
            abi::CreateQpRequest{kRc, pd, cq, cq, abi::kNoSrq, 16, 16, 2, 2, 64, 1, abi::kNoXrcd}));
    }

    // False when the card has hung up.
    bool play_one(Input& input) {
        const std::uint8_t shape = input.byte();
        abi::RequestHeader header;
        header.op = choose_op(input.byte());
        std::vector<std::byte> body =
            input.bytes(shape & 6 ? right_length(header.op) : input.byte() % 64u);
        if (shape & 9) make_plausible(body);
        header.length = static_cast<std::uint32_t>(body.size());
        if (shape >= 252) header.length = input.byte();
        if (shape == 251) header.magic = input.byte();
        if (shape == 250) header.version = input.byte();
        std::vector<std::byte> bytes(sizeof header + body.size());
        store_bytes(bytes.data(), header);
        std::copy(body.begin(), body.end(), bytes.begin() + sizeof header);
        if (shape == 249) bytes.resize(std::min<std::size_t>(bytes.size(), input.byte() + 1u));
        client_.send_raw(bytes, shape % 16 == 3 ? STDIN_FILENO : -1);
        host_.settle();
        const ControlClient::Reply reply = client_.receive_now();
        (void)handle_of(reply);
        return !reply.closed;
    }

    void scribble(Input& input) {
        if (!base_) return;
        const std::vector<std::byte> bytes = input.bytes(input.byte() % 16u);
        const std::size_t at = (input.byte() << 12 | input.byte() << 4) % (kView - 256);
        std::copy(bytes.begin(), bytes.end(), base_ + at);
        auto* const bells = reinterpret_cast<abi::DoorbellArea*>(base_ + doorbell_);
        bells->leaf[0] = ~0ull;
        bells->mid[0] = 1;
        bells->top = 1;
        host_.settle();
    }

private:
    static constexpr std::size_t kView = 1 << 20;  // the first regions of the memfd

    ControlClient::Reply ask(abi::Op op, std::span<const std::byte> body) {
        client_.send(op, body);
        host_.settle();
        return client_.receive_now();
    }
    template <class T>
    ControlClient::Reply ask(abi::Op op, const T& body) {
        return ask(op, std::as_bytes(std::span(&body, 1)));
    }

    std::uint32_t handle_of(const ControlClient::Reply& reply) {
        if (reply.closed || reply.status != 0 || reply.body.size() < 4) return 0;
        handles_.push_back(load_bytes<std::uint32_t>(reply.body.data()));
        return handles_.back();
    }

    // Words become handles that are known, or small numbers.
    void make_plausible(std::vector<std::byte>& body) const {
        for (std::size_t i = 0; i + 4 <= body.size(); i += 4) {
            const auto choice = static_cast<std::uint32_t>(body[i]);
            const bool is_handle = choice >= 128 && !handles_.empty();
            store_bytes(&body[i], is_handle ? handles_[choice % handles_.size()] : choice % 32);
        }
    }

    Host& host_;
    ControlClient client_;
    std::byte* base_ = nullptr;
    std::uint64_t doorbell_ = 0;
    std::vector<std::uint32_t> handles_;
};

}  // namespace
}  // namespace rdmalab::card::host

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace rdmalab::card::host;
    static Host host;
    Input input(data, size);
    {
        Session session(host);
        if (const std::uint8_t choice = input.byte(); choice % 8 != 0) session.attach(choice % 5u);
        while (!input.empty() && session.play_one(input)) session.scribble(input);
    }
    if (host.connection_count() != 0 || host.attachment_count() != 0) std::abort();
    return 0;
}

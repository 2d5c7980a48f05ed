// A hostile client: random bytes in its rings, random doorbells, random control requests, beside
// well-formed work that carries the card into its deeper states. The input is a list of such moves.
// The card must survive each, come to rest, and be as empty as before when the clients are gone.
#include <algorithm>
#include <cstdlib>

#include "base/prng.h"
#include "card/rule_abi.h"
#include "card/test_client.h"

using namespace rdmalab;
using namespace rdmalab::card;
using namespace rdmalab::card::testing;

namespace {

// The input as a stream of numbers. A short one is continued by chance that depends on it, so that
// every run gets deep enough to matter.
class Input {
public:
    static constexpr std::size_t kLengthMin = 1'024;
    Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size), prng_(size) {
        for (std::size_t i = 0; i < size; ++i) prng_ = Prng(prng_.next() ^ data[i]);
    }
    bool empty() const { return at_ >= std::max(size_, kLengthMin); }
    std::uint8_t byte() {
        const std::size_t at = at_++;
        return at < size_ ? data_[at] : static_cast<std::uint8_t>(prng_.next());
    }
    std::uint32_t below(std::uint32_t bound) { return (byte() | byte() << 8) % bound; }
    // A number that is small, huge or random.
    std::uint32_t number() {
        switch (byte() % 4) {
            case 0:
                return byte() % 4;
            case 1:
                return ~std::uint32_t{byte()};
            case 2:
                return std::uint32_t{1} << (byte() % 32);
            default:
                return static_cast<std::uint32_t>(byte() | byte() << 8 | byte() << 16)
                       << byte() % 9;
        }
    }

private:
    const std::uint8_t* data_;
    std::size_t size_;
    std::size_t at_ = 0;
    Prng prng_;
};

void require(bool holds) {
    if (!holds) std::abort();
}

class Session {
public:
    explicit Session(Input& input) : input_(input) {
        setting_.host.region_length_max = 1 << 20;
        for (Side& side : sides_) open(side);
        connect();
    }

    void run() {
        while (!input_.empty()) {
            Side& side = sides_[input_.byte() % 2];
            // Mostly work, so that there is something to break.
            const std::uint8_t move = input_.byte() % 32;
            if (move == 0) {
                scribble();
            } else if (move == 1) {
                request(side);
            } else if (move == 2) {
                reopen(side);
            } else if (move < 6) {
                ring(side);
            } else if (move < 9) {
                setting_.now = setting_.now + microseconds(input_.below(60'000));
            } else if (move < 18) {
                post_recv(side);
            } else {
                post_send(side);
            }
            for (int i = 0; i < 3; ++i) setting_.card.poll(setting_.now);
            for (Side& each : sides_) {
                while (is_mapped(each.cq.info.region) && each.client->poll(each.cq)) {
                }
            }
        }
    }

    void finish() {
        for (Side& side : sides_) setting_.card.close_context(side.client->owner);
        setting_.settle();
        require(setting_.host.region_count() == 0);
        for (std::uint32_t i = 0; i < 5; ++i) {
            const auto left = setting_.card.engine(i).object_counts();
            require(left.pds + left.mrs + left.cqs + left.srqs + left.qps + left.ahs == 0);
        }
    }

private:
    struct Side {
        explicit Side(std::uint32_t index) : device(index) {}
        std::uint32_t device;
        std::optional<TestClient> client;
        TestCq cq;
        TestSrq srq;
        TestQp qp;
        abi::RegMrReply mr{};
        std::string memory = std::string(8192, 'x');
    };

    void open(Side& side) {
        side.client.emplace(setting_, side.device);
        side.cq = side.client->create_cq(8);
        side.srq = side.client->create_srq(4);
        side.qp = side.client->create_qp(
            side.cq,
            {.send_wr_max = 4, .recv_wr_max = 4, .srq = input_.byte() % 2 ? &side.srq : nullptr});
        side.mr = side.client->reg_mr(bytes_of(side.memory));
    }
    void connect() {
        for (int i = 0; i < 2; ++i) {
            const Side &here = sides_[i], &there = sides_[1 - i];
            sides_[i].client->to_state(here.qp, 0);
            sides_[i].client->connect(here.qp, *there.client, there.qp, 2);
        }
    }
    void reopen(Side& side) {
        setting_.card.close_context(side.client->owner);
        setting_.memory.remove(side.client->space);
        open(side);
        connect();
    }

    // A random request may have destroyed the queue.
    bool is_mapped(const abi::Region& region) const {
        return setting_.host.regions().contains(region.offset);
    }

    // Overwrites up to 64 bytes of a region of the client.
    void scribble() {
        const auto& regions = setting_.host.regions();
        auto region = regions.begin();
        std::advance(region, input_.below(static_cast<std::uint32_t>(regions.size())));
        const std::uint32_t places = static_cast<std::uint32_t>(region->second.region.length / 4);
        // The heads of the rings are the more interesting part.
        std::uint32_t place = input_.byte() % 2 ? input_.below(64) : input_.below(places);
        for (unsigned i = input_.byte() % 16; i-- > 0; ++place) {
            store_bytes(region->second.base + (place % places) * 4, input_.number());
        }
    }
    void ring(Side& side) {
        side.client->ring_slot(input_.byte() % 2 ? input_.byte() % 4
                                                 : input_.number() % abi::kDoorbellSlots);
    }
    void request(Side& side) {
        const auto op = static_cast<abi::Op>(input_.byte() % 59);
        std::vector<std::byte> body(input_.byte() % 2 ? body_length(op) : input_.byte());
        for (std::size_t at = 0; at + 4 <= body.size(); at += 4) {
            store_bytes(body.data() + at, input_.number());
        }
        side.client->call_bytes(op, body);
    }
    static std::size_t body_length(abi::Op op) {
        switch (op) {
            case abi::Op::kRegMr:
                return sizeof(abi::RegMrRequest);
            case abi::Op::kCreateCq:
            case abi::Op::kResizeCq:
            case abi::Op::kModifySrq:
                return 8;
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
            case abi::Op::kQueryPort:
            case abi::Op::kQueryGids:
            case abi::Op::kAllocPd:
            case abi::Op::kCreateChannel:
            case abi::Op::kCreateCounters:
                return 0;
            default:
                return 4;
        }
    }

    void post_send(Side& side) {
        if (!is_mapped(side.qp.info.send_region)) return;
        const Side& other = &side == &sides_[0] ? sides_[1] : sides_[0];
        SendOptions options;
        options.opcode =
            static_cast<abi::SendOpcode>(input_.byte() % (input_.byte() % 16 == 0 ? 13 : 11));
        options.flags =
            static_cast<std::uint8_t>(input_.byte() & (input_.byte() % 8 == 0 ? 31 : 7));
        for (unsigned i = input_.byte() % 3; i-- > 0;) {
            options.sges.push_back({address_of(side.memory) + input_.below(4096),
                                    input_.byte() % 16 ? input_.below(4096) : input_.number(),
                                    side.mr.lkey + (input_.byte() % 64 == 0)});
        }
        options.remote_address = address_of(other.memory) + input_.below(256) * 8;
        options.rkey = other.mr.rkey;
        options.payload.resize(input_.byte() % 200);
        side.client->post_send(side.qp, options);
    }
    void post_recv(Side& side) {
        const bool shared = input_.byte() % 2 != 0;
        TestRecvQueue& queue = shared ? side.srq : side.qp.recv;
        if (!is_mapped(shared ? side.srq.info.region : side.qp.info.recv_region)) return;
        if (queue.free_entries.empty()) return;
        side.client->post_recv(queue, 0, {sge(bytes_of(side.memory), side.mr.lkey)});
        queue.free_entries.push_back(input_.byte() % queue.capacity);
    }

    Input& input_;
    TestCard setting_;
    Side sides_[2]{Side(2), Side(3)};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    Session session(input);
    session.run();
    session.finish();
    return 0;
}

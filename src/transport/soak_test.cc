// Random work over a link that loses, repeats, reorders and breaks frames; then over one that does
// not. Everything must complete, each byte must be right, and nothing may have happened twice. A
// failure names its seed: run it alone with RDMALAB_SOAK_SEED=n.
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <optional>

#include "transport/test_pair.h"

namespace rdmalab::transport {
namespace {

constexpr std::size_t kChunk = 24 * 1024;
constexpr std::size_t kOps = 120;  // of one direction

void fill(ByteSpan bytes, Prng& prng) {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.next());
}

struct Op {
    WrOpcode opcode;
    std::uint32_t length;
    std::uint64_t operand = 0;
    std::uint32_t immediate = 0;
};

bool consumes_recv(WrOpcode opcode) {
    return opcode == WrOpcode::kSend || opcode == WrOpcode::kSendImm ||
           opcode == WrOpcode::kWriteImm;
}

bool is_atomic(WrOpcode opcode) {
    return opcode == WrOpcode::kFetchAdd || opcode == WrOpcode::kCompareSwap;
}

Op random_op(Prng& prng) {
    static constexpr WrOpcode kAll[] = {
        WrOpcode::kSend,        WrOpcode::kSendImm, WrOpcode::kWrite,
        WrOpcode::kWriteImm,    WrOpcode::kRead,    WrOpcode::kFetchAdd,
        WrOpcode::kCompareSwap, WrOpcode::kWrite,   WrOpcode::kAtomicWrite};
    Op op{kAll[prng.below(std::size(kAll))], 0};
    const std::uint64_t bounds[] = {1, 9, 300, 5'000, kChunk};
    op.length = static_cast<std::uint32_t>(prng.below(bounds[prng.below(5)] + 1));
    if (op.opcode == WrOpcode::kAtomicWrite) op.length = 8;
    op.operand = prng.below(1000);
    op.immediate = static_cast<std::uint32_t>(prng.next());
    return op;
}

// The QPs of one direction. RC has one pair for both; XRC has an initiator and a target for each,
// and an SRQ that the target fills.
struct Ends {
    Qpn sender, receiver;
    std::optional<SrqId> srq;
};

Ends xrc_ends(Host& from, Host& to) {
    const XrcdId xrcd = *to.engine.create_xrcd(Host::kOwner);
    return {from.create_qp(QpType::kXrcSend), to.create_target(xrcd), to.create_xrc_srq(xrcd)};
}

// One direction of a connection: what `from` does to `to`. Each operation has a chunk of its own on
// both sides, so at the end every chunk can be told right or wrong.
class Direction {
public:
    Direction(Host& from_host, Host& to_host, const Ends& ends, Prng& prng)
        : from(from_host),
          to(to_host),
          sender(ends.sender),
          receiver(ends.receiver),
          srq(ends.srq),
          local(from.region(kOps * kChunk)),
          remote(to.region(kOps * kChunk)),
          counter(to.region(8)) {
        fill(local.bytes, prng);
        fill(remote.bytes, prng);
        store_bytes(counter.bytes.data(), std::uint64_t{0});
        local_before = local.bytes;
        remote_before = remote.bytes;
        for (std::size_t i = 0; i < kOps; ++i) ops.push_back(random_op(prng));
    }

    void post(std::size_t i, Prng& prng) {
        const Op& op = ops[i];
        const bool atomic = is_atomic(op.opcode);
        if (consumes_recv(op.opcode)) recvs_due.push_back(i);
        SendWqe wqe = rdma_wqe(op.opcode, split(local, i, atomic ? 8 : op.length, prng),
                               atomic ? counter : remote, atomic ? 0 : i * kChunk, i);
        wqe.immediate = op.immediate;
        wqe.compare = op.operand;
        wqe.swap = op.operand + 1;
        if (srq) wqe.remote_srq = *srq;
        wqe.fence = prng.chance(0.1);
        wqe.signaled = true;
        from.post_send(sender, wqe);
    }
    // Receives are posted late at times, so that RNR NAKs happen.
    void post_due_recv(Prng& prng) {
        if (recvs_due.empty()) return;
        const std::size_t i = recvs_due.front();
        recvs_due.pop_front();
        const RecvWqe wqe = recv_wqe(split(remote, i, kChunk, prng), i);
        if (srq)
            to.post_srq(wqe);
        else
            to.post_recv(receiver, wqe);
        recv_order.push_back(i);
    }

    // The atomics of one QP are carried out in their order and once, so their results are known.
    void check() const {
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < kOps; ++i) {
            const Op& op = ops[i];
            if (!is_atomic(op.opcode)) {
                check_chunk(i, op);
                continue;
            }
            EXPECT_EQ(load_bytes<std::uint64_t>(local.bytes.data() + i * kChunk), value)
                << "operation " << i << " has found the wrong value";
            if (op.opcode == WrOpcode::kFetchAdd)
                value += op.operand;
            else if (value == op.operand)
                value = op.operand + 1;
        }
        EXPECT_EQ(load_bytes<std::uint64_t>(counter.bytes.data()), value);
    }
    void check_completion(const Completion& completion, std::size_t& next) const {
        ASSERT_EQ(completion.status, WcStatus::kSuccess) << "operation " << completion.wr_id;
        ASSERT_EQ(completion.wr_id, next) << "completions out of order";
        ++next;
    }
    void check_recv(const Completion& completion, std::size_t& next) const {
        ASSERT_EQ(completion.status, WcStatus::kSuccess);
        ASSERT_EQ(completion.wr_id, recv_order.at(next));
        const Op& op = ops[completion.wr_id];
        EXPECT_EQ(completion.byte_length, op.length);
        EXPECT_EQ(completion.has_immediate, op.opcode != WrOpcode::kSend);
        EXPECT_EQ(completion.immediate, completion.has_immediate ? op.immediate : 0);
        ++next;
    }

    Host& from;
    Host& to;
    Qpn sender, receiver;
    std::optional<SrqId> srq;  // XRC
    Host::Region& local;
    Host::Region& remote;
    Host::Region& counter;
    std::vector<std::byte> local_before, remote_before;
    std::vector<Op> ops;
    std::deque<std::size_t> recvs_due;
    std::vector<std::size_t> recv_order;
    std::size_t sends_done = 0, recvs_done = 0;

private:
    static std::vector<Sge> split(const Host::Region& region, std::size_t i, std::size_t length,
                                  Prng& prng) {
        std::vector<Sge> sges;
        std::size_t offset = 0;
        while (offset < length && sges.size() < 4) {
            const std::size_t piece =
                sges.size() == 3 ? length - offset : prng.below(length - offset + 1);
            sges.push_back(region.sge(i * kChunk + offset, static_cast<std::uint32_t>(piece)));
            offset += piece;
        }
        return sges;
    }
    void check_chunk(std::size_t i, const Op& op) const {
        const auto chunk = [i](const std::vector<std::byte>& bytes) {
            return ByteView(bytes).subspan(i * kChunk, kChunk);
        };
        const bool is_read = op.opcode == WrOpcode::kRead;
        const ByteView source = is_read ? chunk(remote_before) : chunk(local_before);
        const ByteView target = is_read ? chunk(local.bytes) : chunk(remote.bytes);
        const ByteView before = is_read ? chunk(local_before) : chunk(remote_before);
        EXPECT_TRUE(std::equal(target.begin(), target.begin() + op.length, source.begin()))
            << "operation " << i << " has brought wrong bytes";
        EXPECT_TRUE(
            std::equal(target.begin() + op.length, target.end(), before.begin() + op.length))
            << "operation " << i << " has written beyond its end";
    }
};

struct Odds {
    double loss, reorder, repeat, corrupt;
};

std::pair<Ends, Ends> connect_ends(Bench& bench, bool is_xrc, const Connection& connection) {
    if (is_xrc) {
        const Ends there = xrc_ends(bench.a, bench.b), back = xrc_ends(bench.b, bench.a);
        bench.connect(there.sender, there.receiver, connection);
        bench.connect(back.receiver, back.sender, connection);
        return {there, back};
    }
    const Qpn qa = bench.a.create_qp(QpType::kRc), qb = bench.b.create_qp(QpType::kRc);
    bench.connect(qa, qb, connection);
    return {{qa, qb, {}}, {qb, qa, {}}};
}

void soak(std::uint64_t seed, const Odds& odds, EngineCounters& total) {
    SCOPED_TRACE("RDMALAB_SOAK_SEED=" + std::to_string(seed));
    Prng prng(seed);
    Bench bench(seed);
    Connection connection;
    connection.mtu = 256u << prng.below(5);
    connection.psn_a = Psn{0xff'ffff - static_cast<std::uint32_t>(prng.below(50))};
    connection.psn_b = Psn{static_cast<std::uint32_t>(prng.next())};
    connection.timeout = 8;
    connection.min_rnr_timer = static_cast<std::uint8_t>(1 + prng.below(8));
    connection.reads = static_cast<std::uint8_t>(1 + prng.below(16));
    connection.resources = connection.reads;
    const auto [there, back] = connect_ends(bench, seed % 3 == 2, connection);
    Direction directions[] = {{bench.a, bench.b, there, prng}, {bench.b, bench.a, back, prng}};
    bench.fate = [&](const wire::Frame&) {
        Fate fate;
        fate.is_lost = prng.chance(odds.loss);
        fate.is_repeated = prng.chance(odds.repeat);
        fate.is_corrupted = prng.chance(odds.corrupt);
        if (prng.chance(odds.reorder))
            fate.delay = nanoseconds(1 + static_cast<std::int64_t>(prng.below(20'000)));
        return fate;
    };
    const auto collect = [&] {
        for (Direction& direction : directions) {
            for (const Completion& completion : direction.from.poll_send())
                direction.check_completion(completion, direction.sends_done);
            for (const Completion& completion : direction.to.poll_recv())
                direction.check_recv(completion, direction.recvs_done);
        }
    };
    for (std::size_t i = 0; i < kOps; ++i) {
        for (Direction& direction : directions) {
            direction.post(i, prng);
            if (prng.chance(0.8)) direction.post_due_recv(prng);
        }
        bench.run(microseconds(static_cast<std::int64_t>(prng.below(300))));
        collect();
        if (testing::Test::HasFatalFailure()) return;
    }
    bench.fate = nullptr;
    for (Direction& direction : directions)
        while (!direction.recvs_due.empty()) direction.post_due_recv(prng);
    bench.run(seconds(2));
    collect();
    for (const Direction& direction : directions) {
        EXPECT_EQ(direction.sends_done, kOps);
        EXPECT_EQ(direction.recvs_done, direction.recv_order.size());
        direction.check();
        const EngineCounters& counters = direction.from.engine.counters();
        total.retransmitted_frames += counters.retransmitted_frames;
        total.duplicate_request += counters.duplicate_request;
        total.out_of_sequence += counters.out_of_sequence;
        total.rx_icrc_errors += counters.rx_icrc_errors;
        total.rnr_nak_sent += counters.rnr_nak_sent;
        total.implied_nak_seq_err += counters.implied_nak_seq_err;
    }
}

// Seeds from..from+count, or the one that the environment asks for. The sum of the counters tells
// whether what was to be survived has happened.
EngineCounters soak_seeds(std::uint64_t from, std::uint64_t count, const Odds& odds) {
    if (const char* const only = std::getenv("RDMALAB_SOAK_SEED")) {
        from = std::strtoull(only, nullptr, 0);
        count = 1;
    }
    EngineCounters total;
    for (std::uint64_t seed = from; seed < from + count; ++seed) {
        soak(seed, odds, total);
        if (testing::Test::HasFailure()) break;
    }
    return total;
}

TEST(Soak, nothing_is_sent_twice_on_a_perfect_link) {
    const EngineCounters total = soak_seeds(1, 10, {0, 0, 0, 0});
    EXPECT_EQ(total.duplicate_request, 0u);
    EXPECT_GT(total.rnr_nak_sent, 0u);
}
TEST(Soak, lost_frames_are_made_up_for) {
    const EngineCounters total = soak_seeds(100, 20, {0.03, 0, 0, 0});
    EXPECT_GT(total.retransmitted_frames, 1000u);
    EXPECT_GT(total.implied_nak_seq_err, 10u);
}
TEST(Soak, repeated_frames_have_no_effect) {
    EXPECT_GT(soak_seeds(200, 20, {0, 0, 0.05, 0}).duplicate_request, 400u);
}
TEST(Soak, overtaken_frames_are_put_in_order) {
    EXPECT_GT(soak_seeds(300, 20, {0, 0.05, 0, 0}).out_of_sequence, 1000u);
}
TEST(Soak, broken_frames_are_not_believed) {
    EXPECT_GT(soak_seeds(400, 10, {0, 0, 0, 0.03}).rx_icrc_errors, 100u);
}
TEST(Soak, all_faults_together_are_survived) {
    soak_seeds(500, 40, {0.01, 0.005, 0.005, 0.001});
    soak_seeds(600, 40, {0.04, 0.04, 0.04, 0.01});
}

}  // namespace
}  // namespace rdmalab::transport

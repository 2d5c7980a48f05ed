// A bench for protocol tests: hosts, each with an engine over plain memory and deques, joined by a
// link that can lose, repeat, hold back and break frames. Time is virtual and moves only when
// nothing else can be done.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/prng.h"
#include "transport/engine.h"

namespace rdmalab::transport {

// All spaces are this process: an address is a pointer. Ranges can be made to fail.
class TestMemory : public MemoryPort {
public:
    void copy(SpaceId target, std::uint64_t target_address, const PayloadSegment& source,
              CopyOwner owner) override;
    bool read(SpaceId space, std::uint64_t address, ByteSpan out) override;
    bool write(SpaceId space, std::uint64_t address, ByteView bytes) override;
    void flush(std::vector<CopyFault>& faults) override;

    void unmap(const void* start, std::size_t length);
    std::uint64_t bytes_copied = 0;
    bool is_dry = false;  // copies are counted and not carried out

private:
    struct Copy {
        std::uint64_t target;
        PayloadSegment source;
        CopyOwner owner;
    };
    bool is_mapped(std::uint64_t address, std::uint64_t length) const;
    void carry_out(std::vector<CopyFault>& faults);

    std::vector<Copy> queue_;
    std::vector<CopyFault> early_faults_;  // of copies that a read or write pushed out
    std::vector<std::pair<std::uint64_t, std::uint64_t>> unmapped_;
};

// One side.
class Host : private WorkPort, private OutcomePort {
public:
    struct Region {
        std::vector<std::byte> bytes;
        MrKeys keys;
        std::uint64_t address(std::size_t offset = 0) const {
            return reinterpret_cast<std::uint64_t>(bytes.data()) + offset;
        }
        Sge sge(std::size_t offset, std::uint32_t length) const {
            return {address(offset), length, keys.lkey};
        }
    };

    Host(const EngineConfig& config, TestMemory& memory, const Gid& gid);

    Region& region(std::size_t length, std::uint32_t access = kEverything);
    Qpn create_qp(QpType type, bool with_srq = false);
    // XRC: an SRQ whose messages complete in `recv_cq`, and the receiving end.
    SrqId create_xrc_srq(XrcdId xrcd);
    Qpn create_target(XrcdId xrcd);
    QpType type_of(Qpn qpn) const;
    void post_send(Qpn qpn, const SendWqe& wqe);
    void post_recv(Qpn qpn, const RecvWqe& wqe) { recvs_[qpn].push_back(wqe); }
    void post_srq(const RecvWqe& wqe) { srq_entries_.push_back(wqe); }
    std::vector<Completion> poll_send() { return take(send_completions_); }
    std::vector<Completion> poll_recv() { return take(recv_completions_); }
    std::vector<AsyncEvent> poll_events() { return take(events_); }
    bool has_event(AsyncEventType type) const;
    QpState state(Qpn qpn) const { return engine.query_qp(kOwner, qpn)->state; }

    static constexpr std::uint32_t kEverything =
        kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;
    static constexpr OwnerId kOwner{7};
    static constexpr SpaceId kSpace{3};

    Engine engine;
    const Gid gid;
    const MacAddress mac;
    PdId pd;
    CqId send_cq, recv_cq;
    SrqId srq;
    std::size_t cq_room = SIZE_MAX;  // completions that still fit

private:
    template <class T>
    static std::vector<T> take(std::vector<T>& from) {
        return std::exchange(from, {});
    }
    bool fetch_send(Qpn qpn, SendWqe& out) override;
    bool fetch_recv(Qpn qpn, RecvWqe& out) override;
    bool fetch_srq(SrqId srq, RecvWqe& out) override;
    std::uint32_t srq_depth(SrqId srq) override;
    bool push_completion(CqId cq, const Completion& completion) override;
    void push_event(const AsyncEvent& event) override { events_.push_back(event); }

    std::deque<std::unique_ptr<Region>> regions_;
    std::map<Qpn, std::deque<SendWqe>> sends_;
    std::map<Qpn, std::deque<RecvWqe>> recvs_;
    std::map<Qpn, bool> uses_srq_;
    std::deque<RecvWqe> srq_entries_;
    std::vector<Completion> send_completions_, recv_completions_;
    std::vector<AsyncEvent> events_;
};

// What becomes of a frame on the link.
struct Fate {
    bool is_lost = false;
    bool is_repeated = false;
    bool is_corrupted = false;
    bool is_marked = false;  // CE
    Duration delay{};        // it is overtaken by later frames
};

// Attributes with which a pair of QPs is connected.
struct Connection {
    std::uint32_t mtu = 1024;
    Psn psn_a{100}, psn_b{500};  // first of each direction
    std::uint8_t timeout = 14, retry_count = 7, rnr_retry = 7, min_rnr_timer = 12;
    std::uint8_t reads = 16, resources = 16;
    std::uint32_t access = Host::kEverything;
    std::uint8_t traffic_class = 0;
};

class Bench {
public:
    // A bench whose link is perfect. `fate` may be set at any time.
    explicit Bench(std::uint64_t seed = 1, const EngineConfig& config = {});

    void connect(Qpn a_qpn, Qpn b_qpn, const Connection& connection = {});
    void ready_datagram(Host& host, Qpn qpn, std::uint32_t qkey, Psn psn = Psn{0});
    AhId address_of(Host& from, const Host& to, std::uint32_t flow_label = 0);
    AddressVector vector_to(const Gid& gid, const MacAddress& mac) const;

    // One round of the card; true if anything was done.
    bool round();
    // Rounds until nothing is left to do at this instant.
    void settle();
    // Rounds, moving time from deadline to deadline, until idle or `limit` has passed.
    void run(Duration limit = seconds(100));
    // A frame made by a test comes to `host`.
    void inject(Host& host, const wire::Frame& frame);

    TestMemory memory;
    Instant now{1'000'000'000};
    Host a, b;
    std::function<Fate(const wire::Frame&)> fate;
    std::vector<std::string> trace;  // of frames, as wire::print tells them
    bool is_tracing = false;
    std::size_t frames_sent = 0;
    std::int64_t deadlines_met = 0;

private:
    struct Held {
        Instant due;
        std::unique_ptr<wire::Frame> frame;
        std::unique_ptr<std::vector<std::byte>> payload;
    };
    void carry(wire::Frame& frame);
    void deliver(wire::Frame& frame);
    bool release_held();
    void hold(const wire::Frame& frame, Duration delay);
    Instant next_deadline() const;

    std::vector<Held> held_;
    std::vector<CopyFault> faults_;
    Prng prng_;
};

SendWqe send_wqe(WrOpcode opcode, std::vector<Sge> sges, std::uint64_t wr_id = 1);
SendWqe rdma_wqe(WrOpcode opcode, std::vector<Sge> sges, const Host::Region& target,
                 std::size_t offset = 0, std::uint64_t wr_id = 1);
RecvWqe recv_wqe(std::vector<Sge> sges, std::uint64_t wr_id = 1);

}  // namespace rdmalab::transport

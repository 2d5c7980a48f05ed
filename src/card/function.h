// One function of the card: its engine, and the two ports through which the engine meets the
// clients' rings. Completions are written at once but published (producer index, wake-ups, channel
// events) once per round and CQ.
#pragma once

#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "card/id_map.h"
#include "card/objects.h"
#include "card/receive_hash.h"
#include "card/receive_steering.h"
#include "transport/engine.h"

namespace rdmalab::card {

class Function final : private transport::WorkPort, private transport::OutcomePort {
public:
    Function(const transport::EngineConfig& config, HostPort& host, transport::MemoryPort& memory);

    std::uint8_t index() const { return engine_.config().index; }
    transport::Engine& engine() { return engine_; }
    const transport::Engine& engine() const { return engine_; }

    void add(CqRecord& cq) { cqs_.insert(cq.id.value, &cq); }
    void add(SrqRecord& srq) { srqs_.insert(srq.id.value, &srq); }
    void add(QpRecord& qp) { qps_.insert(qp.qpn.value, &qp); }
    void remove(const CqRecord& cq);
    void remove(const SrqRecord& srq);
    void remove(const QpRecord& qp);

    // --- XRC. Domains by the file that stands for them; target QPs by QPN, with those who hold
    // them. `keeper` is the one that the engine takes for the owner.
    struct XrcTarget {
        struct Holder {
            OwnerId owner;
            QpRecord* record;
        };
        OwnerId keeper;
        XrcdId xrcd;
        std::vector<Holder> holders;
    };
    using FileId = std::pair<std::uint64_t, std::uint64_t>;  // device, inode
    std::map<FileId, XrcdId>& xrcds() { return xrcds_; }
    void forget_closed_xrcds();
    std::unordered_map<std::uint32_t, XrcTarget>& targets() { return targets_; }

    // --- Device memory that is given out, of all contexts.
    std::uint64_t dm_bytes() const { return dm_bytes_; }
    void add_dm_bytes(std::uint64_t bytes) { dm_bytes_ += bytes; }
    void remove_dm_bytes(std::uint64_t bytes) { dm_bytes_ -= bytes; }

    // --- Flow rules, and the raw packet QPs that spread what they get.
    ReceiveSteering& steering() { return steering_; }
    const ReceiveSteering& steering() const { return steering_; }
    bool has_flow_steering() const { return has_flow_steering_; }
    void set_flow_steering(bool on) { has_flow_steering_ = on; }
    void add_spread(Qpn qpn, HashSpread spread);
    const HashSpread* find_spread(Qpn qpn) const;
    // The headers that a frame keeps do not suffice.
    bool looks_inside() const { return steering_.looks_inside() || inner_spreads_ != 0; }

    // The engine has something to commit in this round.
    void touch() { is_touched_ = true; }
    bool is_touched() const { return is_touched_; }

    // Ends a round: the engine commits, queues whose rings broke go down, completions become
    // visible.
    void commit(std::span<const transport::CopyFault> faults, Instant now);
    // The last part of it alone, for what a control call completed.
    void publish(Instant now);

    // Completion events that moderation holds back.
    Instant next_deadline() const;
    void handle_timeout(Instant now);
    void remoderate(CqRecord& cq, Instant now);  // its moderation has changed

private:
    bool fetch_send(Qpn qpn, transport::SendWqe& out) override;
    bool fetch_recv(Qpn qpn, transport::RecvWqe& out) override;
    bool fetch_srq(SrqId srq, transport::RecvWqe& out) override;
    std::uint32_t srq_depth(SrqId srq) override;
    bool push_completion(CqId cq, const transport::Completion& completion) override;
    void push_event(const transport::AsyncEvent& event) override;

    void notify(CqRecord& cq, Instant now, bool must_tell);
    void note_broken(QpRecord& qp);
    void note_broken(SrqRecord& srq);
    void settle_broken(Instant now);
    std::uint32_t generation_of(const transport::AsyncEvent& event) const;

    HostPort& host_;
    IdMap<CqRecord> cqs_;
    IdMap<SrqRecord> srqs_;
    IdMap<QpRecord> qps_;
    std::map<FileId, XrcdId> xrcds_;
    std::unordered_map<std::uint32_t, XrcTarget> targets_;
    std::uint64_t dm_bytes_ = 0;
    ReceiveSteering steering_;
    bool has_flow_steering_ = true;
    std::unordered_map<std::uint32_t, HashSpread> spreads_;  // by QPN
    std::size_t inner_spreads_ = 0;                          // ... by inner headers or SPI
    std::vector<CqRecord*> touched_cqs_;
    std::vector<CqRecord*> moderated_cqs_;  // hold an event back
    std::vector<QpRecord*> broken_qps_;
    bool is_touched_ = false;
    transport::Engine engine_;  // last: it may call the ports
};

}  // namespace rdmalab::card

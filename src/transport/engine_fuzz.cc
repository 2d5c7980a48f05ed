// Random control calls, work and frames against one engine. What must hold whatever comes: nothing
// crashes, no copy leaves the memory that is registered, no work request completes twice, and the
// engine comes to rest.
#include <cstdio>
#include <cstdlib>
#include <set>

#include "base/prng.h"
#include "transport/engine.h"

namespace rdmalab::transport {
namespace {

constexpr OwnerId kOwner{1};
constexpr SpaceId kSpace{1};
constexpr std::uint64_t kBase = 0x10'0000;
constexpr std::uint64_t kSize = 1 << 20;

void must(bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "engine_fuzz: %s\n", what);
    std::abort();
}

// The input as a stream of choices; zeros when it has ended.
class Choices {
public:
    Choices(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
    bool empty() const { return at_ >= size_; }
    std::uint8_t byte() { return empty() ? std::uint8_t{0} : data_[at_++]; }
    std::uint32_t below(std::uint32_t bound) { return byte() % bound; }
    std::uint64_t word() {
        std::uint64_t value = 0;
        for (int i = 0; i < 8; ++i) value = value << 8 | byte();
        return value;
    }

private:
    const std::uint8_t* data_;
    std::size_t size_;
    std::size_t at_ = 0;
};

class Fuzz : MemoryPort, WorkPort, OutcomePort {
public:
    explicit Fuzz(Choices& choices) : choices_(choices), engine_({}, *this, *this, *this) {
        engine_.set_gid(0, own_gid_);
        pd_ = *engine_.create_pd(kOwner);
        cq_ = *engine_.create_cq(kOwner, 16);
        xrcd_ = *engine_.create_xrcd(kOwner);
        srq_ = *engine_.create_srq({kOwner, pd_, 16, 4, {}, {}});
        xrc_srq_ = *engine_.create_srq({kOwner, pd_, 16, 4, xrcd_, cq_});
        window1_ = *engine_.create_window(kOwner, pd_, WindowType::kType1);
        window2_ = *engine_.create_window(kOwner, pd_, WindowType::kType2);
        for (std::uint32_t access : {15u, 7u, 3u, 0u})
            keys_.push_back(
                *engine_.register_mr({kOwner, kSpace, pd_, kBase, kSize, kBase, access}));
    }
    void run() {
        static constexpr void (Fuzz::*kSteps[])() = {
            &Fuzz::create_qp,  &Fuzz::modify_qp, &Fuzz::modify_qp, &Fuzz::connect_qp,
            &Fuzz::destroy_qp, &Fuzz::post_send, &Fuzz::post_send, &Fuzz::frame,
            &Fuzz::frame,      &Fuzz::frame,     &Fuzz::pass_time, &Fuzz::round,
            &Fuzz::round,      &Fuzz::objects,   &Fuzz::raw_frame, &Fuzz::post_send};
        connect_qp();
        while (!choices_.empty()) (this->*kSteps[choices_.below(std::size(kSteps))])();
        round();
        engine_.release_owner(kOwner);
        round();
        const auto counts = engine_.object_counts();
        must(counts.pds + counts.mrs + counts.cqs + counts.srqs + counts.qps + counts.ahs == 0,
             "objects are left over");
    }

private:
    // --- Ports.
    void copy(SpaceId target, std::uint64_t address, const PayloadSegment& source,
              CopyOwner owner) override {
        must(target != kSpace || is_registered(address, source.length), "a copy goes astray");
        if (choices_.below(64) == 1) faults_.push_back({owner, choices_.below(2) == 1});
    }
    bool read(SpaceId, std::uint64_t address, ByteSpan out) override {
        must(is_registered(address, out.size()), "a read goes astray");
        std::fill(out.begin(), out.end(), std::byte{1});
        return choices_.below(16) != 1;
    }
    bool write(SpaceId, std::uint64_t address, ByteView bytes) override {
        must(is_registered(address, bytes.size()), "a write goes astray");
        return choices_.below(16) != 1;
    }
    void flush(std::vector<CopyFault>&) override {}
    static bool is_registered(std::uint64_t address, std::uint64_t length) {
        return address >= kBase && length <= kSize && address - kBase <= kSize - length;
    }
    bool fetch_send(Qpn, SendWqe& out) override {
        if (sends_ == 0) return false;
        --sends_;
        out = random_send();
        open_.insert(out.wr_id);
        return true;
    }
    bool fetch_recv(Qpn, RecvWqe& out) override {
        if (choices_.below(4) == 0) return false;
        out = {};
        out.wr_id = ++last_id_;
        open_.insert(out.wr_id);
        out.sge_count = static_cast<std::uint8_t>(choices_.below(5));
        for (int i = 0; i < out.sge_count; ++i) out.sges[static_cast<std::size_t>(i)] = sge();
        if (choices_.below(2) == 1) out.small_area = small_area_;
        return true;
    }
    bool fetch_srq(SrqId, RecvWqe& out) override { return fetch_recv({}, out); }
    std::uint32_t srq_depth(SrqId) override { return choices_.below(8); }
    bool push_completion(CqId, const Completion& completion) override {
        must(open_.erase(completion.wr_id) == 1, "a work request completes twice");
        return choices_.below(32) != 1;
    }
    void push_event(const AsyncEvent&) override {}

    // --- Random parts.
    std::uint32_t length() {
        static constexpr std::uint32_t kLengths[] = {0,    1,    8,     255,      256,
                                                     257,  4096, 5000,  100'000,  1 << 20,
                                                     1200, 40,   8'192, 1u << 31, 0xffff'ffff};
        return kLengths[choices_.below(std::size(kLengths))];
    }
    std::uint64_t address() {
        return choices_.below(8) == 1 ? choices_.word() : kBase + 8 * choices_.below(255);
    }
    Sge sge() {
        const Lkey key = choices_.below(16) == 1 ? Lkey{choices_.byte()} : any_keys().lkey;
        return {address(), length(), key};
    }
    MrKeys any_keys() { return keys_[choices_.below(static_cast<std::uint32_t>(keys_.size()))]; }
    SendWqe random_send() {
        SendWqe wqe;
        wqe.wr_id = ++last_id_;
        wqe.opcode = static_cast<WrOpcode>(choices_.below(11));
        const std::uint8_t flags = choices_.byte();
        wqe.solicited = (flags & 1) != 0;
        wqe.fence = (flags & 2) != 0;
        wqe.malformed = (flags & 0x7c) == 4;
        if ((flags & 0x80) != 0) wqe.inline_data = ByteView(small_area_).first(choices_.below(200));
        wqe.is_inline = (flags & 0x40) != 0;
        wqe.sge_count = static_cast<std::uint8_t>(choices_.below(4));
        for (int i = 0; i < wqe.sge_count; ++i) wqe.sges[static_cast<std::size_t>(i)] = sge();
        if (wqe.opcode == WrOpcode::kFetchAdd) wqe.sges[0].length = 8;
        wqe.remote_address = address();
        wqe.rkey = any_keys().rkey;
        wqe.ah = AhId{choices_.below(3)};
        wqe.remote_srq = choices_.below(4) == 0 ? srq_ : xrc_srq_;
        if (wqe.opcode == WrOpcode::kBindMw) {
            Rkey& window = choices_.below(2) == 0 ? window1_ : window2_;
            window.value = (window.value & ~0xffu) | choices_.byte();
            wqe.rkey = window;
            wqe.bind = {any_keys().lkey, choices_.byte(), length()};
        }
        wqe.remote_qpn = any_qp();
        wqe.remote_qkey = choices_.below(2);
        return wqe;
    }
    Qpn any_qp() {
        return qps_.empty() ? Qpn{choices_.byte()}
                            : qps_[choices_.below(static_cast<std::uint32_t>(qps_.size()))];
    }
    AddressVector vector() {
        AddressVector av;
        av.destination = peer_gid_;
        av.is_global = true;
        return av;
    }

    // --- Steps.
    void create_qp() {
        if (qps_.size() >= 8) return;
        QpInit init;
        init.owner = kOwner;
        init.space = kSpace;
        init.type = static_cast<QpType>(choices_.below(5));
        init.xrcd = xrcd_;
        init.pd = pd_;
        init.send_cq = init.recv_cq = cq_;
        if (choices_.below(3) == 0) init.srq = srq_;
        init.signal_all = choices_.below(2) == 0;
        const auto qpn = engine_.create_qp(init);
        if (qpn) qps_.push_back(*qpn);
    }
    void connect_qp() {
        create_qp();
        if (qps_.empty()) return;
        const Qpn qpn = qps_.back();
        QpAttributes attributes = random_attributes();
        for (const QpState state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
            attributes.state = state;
            for (const std::uint32_t mask :
                 {kQpPkeyIndex | kQpPort | kQpAccessFlags, kQpPkeyIndex | kQpPort | kQpQkey,
                  kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer,
                  kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn, std::uint32_t{kQpSqPsn},
                  kQpSqPsn | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic, 0u})
                if (engine_.modify_qp(kOwner, qpn, attributes, mask | kQpState, now_) == 0) break;
        }
    }
    QpAttributes random_attributes() {
        QpAttributes attributes;
        attributes.access = 15;
        attributes.path_mtu = 256u << choices_.below(5);
        attributes.av = vector();
        attributes.destination_qpn = any_qp();
        attributes.reads_outstanding = static_cast<std::uint8_t>(choices_.below(17));
        attributes.responder_resources = static_cast<std::uint8_t>(choices_.below(17));
        attributes.timeout = static_cast<std::uint8_t>(choices_.below(10));
        attributes.retry_count = static_cast<std::uint8_t>(choices_.below(8));
        attributes.rnr_retry = static_cast<std::uint8_t>(choices_.below(8));
        attributes.qkey = choices_.below(2);
        return attributes;
    }
    void modify_qp() {
        QpAttributes attributes = random_attributes();
        attributes.state = static_cast<QpState>(choices_.below(7));
        const std::uint32_t mask = choices_.below(2) == 0
                                       ? std::uint32_t{kQpState}
                                       : static_cast<std::uint32_t>(choices_.word()) & 0x3ff'ffff;
        (void)engine_.modify_qp(kOwner, any_qp(), attributes, mask, now_);
    }
    void destroy_qp() {
        if (qps_.empty() || choices_.below(4) != 0) return;
        if (engine_.destroy_qp(kOwner, qps_.front()) == 0) qps_.erase(qps_.begin());
    }
    void post_send() {
        sends_ += 1 + choices_.below(4);
        engine_.handle_doorbell(any_qp());
    }
    void objects() {
        const auto ah = engine_.create_ah(kOwner, pd_, vector());
        if (ah && choices_.below(2) == 0) (void)engine_.destroy_ah(kOwner, *ah);
        if (choices_.below(8) == 0) (void)engine_.deregister_mr(kOwner, any_keys().lkey);
        (void)engine_.set_srq_limit(kOwner, srq_, choices_.below(16));
        (void)engine_.attach_multicast(kOwner, any_qp(), group_);
        (void)engine_.detach_multicast(kOwner, any_qp(), group_);
        (void)engine_.destroy_pd(kOwner, pd_);
        change_memory();
        (void)engine_.query_qp(kOwner, any_qp());
        (void)engine_.list_qps();
    }
    void change_memory() {
        MrChange change;
        if (choices_.below(2) == 0) change.pd = pd_;
        if (choices_.below(2) == 0) change.access = choices_.byte();
        if (choices_.below(2) == 0) change.place = {kSpace, kBase, 4096, address()};
        (void)engine_.reregister_mr(kOwner, any_keys().lkey, change);
        (void)engine_.open_xrcd(kOwner, xrcd_);
        (void)engine_.close_xrcd(kOwner, xrcd_);
        if (choices_.below(16) != 1) return;
        Rkey& window = choices_.below(2) == 0 ? window1_ : window2_;
        (void)engine_.destroy_window(kOwner, window.value >> 8);
        window = *engine_.create_window(kOwner, pd_, WindowType::kType2);
    }
    // A frame with valid lower headers, any opcode, and packet numbers near those in use.
    void frame() {
        static constexpr std::uint8_t kServices[] = {0x00, 0x00, 0x00, 0x20, 0x60, 0x80, 0xa0};
        const std::uint32_t opcode =
            kServices[choices_.below(std::size(kServices))] | choices_.below(0x1e);
        const auto* info = wire::find_opcode(static_cast<std::uint8_t>(opcode));
        if (info == nullptr) return;
        wire::Path path;
        path.source = peer_gid_;
        path.destination = choices_.below(8) == 1 ? group_ : own_gid_;
        wire::Frame made;
        wire::start_roce(made, wire::make_lower_template(path), *info);
        auto& bth = *wire::header_at<wire::Bth>(made, made.bth_offset);
        bth.destination_qp = choices_.below(8) == 1 ? 0xff'ffff : any_qp().value;
        bth.psn = choices_.below(4) == 0 ? static_cast<std::uint32_t>(choices_.word() & 0xff'ffff)
                                         : choices_.below(6);
        bth.ack_request = choices_.byte();
        for (std::size_t i = 0; i < info->extension_length; ++i)
            made.header[made.bth_offset + sizeof(wire::Bth) + i] = std::byte{choices_.byte()};
        std::size_t behind = made.bth_offset + sizeof(wire::Bth);
        if ((info->extensions & wire::kHasXrceth) != 0) {
            if (choices_.below(4) != 0)
                wire::header_at<wire::Xrceth>(made, behind)->srq =
                    choices_.below(8) == 0 ? srq_.value : xrc_srq_.value;
            behind += sizeof(wire::Xrceth);
        }
        if ((info->extensions & wire::kHasReth) != 0 && choices_.below(4) != 0) {
            *wire::header_at<wire::Reth>(made, behind) = {address(), any_keys().rkey.value,
                                                          length()};
        }
        if ((info->extensions & wire::kHasAtomicEth) != 0 && choices_.below(4) != 0) {
            *wire::header_at<wire::AtomicEth>(made, behind) = {address(), any_keys().rkey.value, 1,
                                                               1};
        }
        if ((info->extensions & wire::kHasAeth) != 0) {
            static constexpr std::uint8_t kSyndromes[] = {0x1f, 0x00, 0x21, 0x60, 0x61, 0x62, 0x63};
            wire::header_at<wire::Aeth>(made, made.bth_offset + sizeof(wire::Bth))->syndrome =
                kSyndromes[choices_.below(std::size(kSyndromes))];
        }
        if (info->carries_payload) {
            static constexpr std::uint32_t kPayloads[] = {0, 1, 8, 256, 512, 1024, 4096, 9000};
            const std::uint32_t bytes = kPayloads[choices_.below(8)];
            if (bytes > 0) made.add_segment({kSpace, bytes, kBase});
        }
        made.origin = choices_.below(4) == 0 ? choices_.word() : 0;
        if (choices_.below(4) == 0) made.origin = 3ull << 62 | std::uint64_t{any_qp().value} << 24;
        if (choices_.below(4) == 0) made.origin = 1ull << 63 | std::uint64_t{any_qp().value} << 24;
        wire::finish_roce(made);
        if (choices_.below(8) == 1) wire::set_ecn(made, wire::kEcnCe);
        engine_.handle_frame(made, now_);
    }
    // Bytes that pass the parser, or not.
    void raw_frame() {
        std::array<std::byte, 120> bytes;
        for (std::byte& byte : bytes) byte = std::byte{choices_.byte()};
        wire::Frame parsed;
        if (wire::parse_frame(bytes, {kSpace, 120, kBase}, parsed) == wire::ParseError::kNone)
            engine_.handle_frame(parsed, now_);
    }
    void pass_time() {
        const Instant next = engine_.next_deadline();
        if (!next.is_never() && choices_.below(2) == 0) now_ = std::max(now_, next);
        now_ = now_ + nanoseconds(choices_.byte());
        engine_.handle_timeout(now_);
    }
    void round() {
        wire::Frame out;
        for (int i = 0; i < 5'000 && engine_.poll_frame(now_, out); ++i) {
            must(out.header_length <= wire::Frame::kHeaderMax, "a frame is too long");
            must(out.payload_length <= limits::kMtuMax, "a payload is longer than the MTU");
        }
        std::vector<CopyFault> faults;
        std::swap(faults, faults_);
        engine_.commit(faults, now_);
    }

    Choices& choices_;
    const Gid own_gid_ = Gid::from_ipv4(0x0a00'0001), peer_gid_ = Gid::from_ipv4(0x0a00'0002),
              group_ = Gid::from_ipv4(0xe000'0101);
    Engine engine_;
    Instant now_{1};
    PdId pd_;
    CqId cq_;
    SrqId srq_, xrc_srq_;
    XrcdId xrcd_;
    Rkey window1_, window2_;
    std::vector<MrKeys> keys_;
    std::vector<Qpn> qps_;
    std::vector<CopyFault> faults_;
    std::set<std::uint64_t> open_;  // work requests that the engine has and has not completed
    std::uint64_t last_id_ = 0;
    std::uint32_t sends_ = 0;
    std::array<std::byte, 256> small_area_{};
};

}  // namespace
}  // namespace rdmalab::transport

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    rdmalab::transport::Choices choices(data, size);
    rdmalab::transport::Fuzz(choices).run();
    return 0;
}

#include "wire/cc_probe.h"

#include <cstring>

namespace rdmalab::wire {
namespace {

struct ProbeView {
    MadHeader mad;
    Be64 cc_key;
    std::array<std::byte, 32> reserved;
    Be64 request_sent, request_received, response_sent;
    std::array<std::byte, 168> zeros;
};
static_assert(sizeof(ProbeView) == kMadLength);

}  // namespace

void emit_probe(const CcProbe& probe, MadBytes& out) {
    ProbeView view{};
    view.mad.base_version = kMadBaseVersion;
    view.mad.management_class = kMadClassCongestion;
    view.mad.class_version = kMadClassVersionCongestion;
    view.mad.method = probe.is_response ? kMadMethodGetResp : kMadMethodGet;
    view.mad.transaction_id = probe.request_sent_ns;
    view.mad.attribute_id = kAttributeRttProbe;
    view.mad.attribute_modifier = probe.flow;
    view.request_sent = probe.request_sent_ns;
    view.request_received = probe.request_received_ns;
    view.response_sent = probe.response_sent_ns;
    store_bytes(out.data(), view);
}

std::optional<CcProbe> parse_probe(const MadBytes& bytes) {
    const auto view = load_bytes<ProbeView>(bytes.data());
    const bool is_probe = view.mad.base_version == kMadBaseVersion &&
                          view.mad.management_class == kMadClassCongestion &&
                          view.mad.class_version == kMadClassVersionCongestion &&
                          view.mad.attribute_id == kAttributeRttProbe && view.mad.status == 0;
    const bool is_response = view.mad.method == kMadMethodGetResp;
    if (!is_probe || (view.mad.method != kMadMethodGet && !is_response)) return std::nullopt;
    return CcProbe{is_response, view.mad.attribute_modifier, view.request_sent,
                   view.request_received, view.response_sent};
}

bool gather_mad(const Frame& frame, MadBytes& out) {
    if (!is_roce(frame) || frame.payload_length != kMadLength) return false;
    const auto& bth = *header_at<Bth>(frame, frame.bth_offset);
    const OpcodeInfo* const info = find_opcode(bth.opcode);
    if (info == nullptr || info->service != Service::kUd || bth.destination_qp != kGsiQpn.value)
        return false;
    std::size_t filled = 0;
    for (std::size_t i = 0; i < frame.segment_count; ++i) {
        const PayloadSegment& segment = frame.segments[i];
        if (segment.space != kCardSpace || segment.length > kMadLength - filled) return false;
        std::memcpy(out.data() + filled, reinterpret_cast<const std::byte*>(segment.address),
                    segment.length);
        filled += segment.length;
    }
    return filled == kMadLength;
}

void start_mad_frame(const LowerTemplate& lower, const MadBytes& mad, Frame& out) {
    static const OpcodeInfo& info =
        *find_opcode(opcode_value(Service::kUd, PacketKind::kSend, Position::kOnly));
    start_roce(out, lower, info);
    out.origin = 0;
    header_at<Bth>(out, out.bth_offset)->destination_qp = kGsiQpn.value;
    auto* const deth = header_at<Deth>(out, out.bth_offset + sizeof(Bth));
    deth->qkey = kGsiQkey;
    deth->source_qp = kGsiQpn.value;
    out.add_segment({kCardSpace, kMadLength, reinterpret_cast<std::uint64_t>(mad.data())});
    finish_roce(out);
}

}  // namespace rdmalab::wire

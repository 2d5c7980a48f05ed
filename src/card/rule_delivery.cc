#include "card/rule_delivery.h"

#include <algorithm>
#include <cstring>

#include "card/icrc_check.h"
#include "flow/rule_parser.h"
#include "wire/headers.h"

namespace rdmalab::card {

SteeredFrame RuleDelivery::see(const Function& function, const wire::Frame& frame) {
    std::size_t length = frame.header_length;
    std::memcpy(bytes_.data(), frame.header.data(), length);
    if (frame.l4_offset == 0 || function.looks_inside()) {
        const std::size_t end = length + kInsideMax;
        for (unsigned i = 0; i < frame.segment_count && length < end; ++i) {
            const wire::PayloadSegment& segment = frame.segments[i];
            const std::size_t piece = std::min<std::size_t>(segment.length, end - length);
            const ByteSpan to = ByteSpan(bytes_).subspan(length, piece);
            if (!memory_.read(segment.space, segment.address, to)) break;
            length += piece;
        }
    }
    return {flow::flatten(ByteView(bytes_).first(length)), wire::wire_length(frame),
            function.engine().sender_of(frame)};
}

void RuleDelivery::hand_over(Function& function, const SteeredTo& to, const SteeredFrame& seen,
                             const wire::Frame& frame, Instant now) {
    const HashSpread* const spread = function.find_spread(to.qpn);
    const Qpn qpn = spread == nullptr ? to.qpn : spread->choose(seen.flat);
    // A raw packet QP sees what is wrong with a frame; nobody else may.
    if (!function.engine().is_raw_qp(qpn) && !icrc_is_right(frame))
        return function.engine().count_icrc_error();
    function.engine().handle_steered(qpn, frame, to.tag.value_or(0), now);
}

bool RuleDelivery::arrive(Function& function, const wire::Frame& frame, Instant now) {
    const SteeredFrame seen = see(function, frame);
    function.touch();
    return function.steering().arrive(
        seen, [&](const SteeredTo& to) { hand_over(function, to, seen, frame, now); });
}

bool RuleDelivery::fall_through(Function& function, const wire::Frame& frame, Instant now) {
    const SteeredFrame seen = see(function, frame);
    function.touch();
    const bool is_multicast = wire::destination_mac(frame).is_multicast();
    return function.steering().fall_through(seen, is_multicast, [&](const SteeredTo& to) {
        hand_over(function, to, seen, frame, now);
    });
}

bool RuleDelivery::depart(Function& function, const wire::Frame& frame, Instant now) {
    ReceiveSteering& steering = function.steering();
    if (!steering.sees_departures() && !steering.sees_loop_back()) return false;
    const SteeredFrame seen = see(function, frame);
    const auto take = [&](const SteeredTo& to) { hand_over(function, to, seen, frame, now); };
    function.touch();
    if (steering.depart(seen, take)) return true;
    // What is for the function itself, or RoCEv2 for a group, comes back by the switch.
    const MacAddress to = wire::destination_mac(frame);
    const bool returns =
        to == function.engine().config().mac || (wire::is_roce(frame) && to.is_multicast());
    if (!returns && function.engine().is_raw_qp(seen.sender)) steering.loop_back(seen, take);
    return false;
}

}  // namespace rdmalab::card

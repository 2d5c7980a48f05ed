#include "transport/notification.h"

#include "transport/address.h"

namespace rdmalab::transport {
namespace {

// A datagram names its sender; the way back is the way it came.
void aim_at_sender(Core& core, Qp& qp, const wire::Frame& frame) {
    const auto& deth = *wire::header_at<wire::Deth>(frame, frame.bth_offset + sizeof(wire::Bth));
    Notification& notification = qp.notification;
    notification.destination = Qpn{deth.source_qp};
    wire::Path path;
    path.source_mac = core.config.mac;
    path.destination_mac = wire::source_mac(frame);
    path.source = wire::destination_gid(frame);
    path.destination = wire::source_gid(frame);
    path.source_port = wire::source_port_for(0, qp.qpn, notification.destination);
    notification.lower = wire::make_lower_template(notification_path(path));
}

}  // namespace

//= IBA A17.9.3
void note_congestion(Core& core, Qp& qp, const wire::Frame& frame, const wire::OpcodeInfo& info) {
    ++core.counters.np_ecn_marked_roce_packets;
    Notification& notification = qp.notification;
    const bool is_datagram = info.service == wire::Service::kUd;
    if (is_datagram && wire::destination_gid(frame).is_multicast()) return;
    CongestionPort* const port = core.congestion;
    if (port != nullptr && !port->owes_notification(qp.flow(), core.now)) return;
    if (is_datagram) {
        aim_at_sender(core, qp, frame);
    } else {
        notification.destination = qp.attributes.destination_qpn;
        notification.lower = qp.cnp_lower;
    }
    notification.is_due = true;
    core.ready.push_back(qp);
}

bool poll_notification(Core& core, Qp& qp, wire::Frame& out) {
    if (!qp.notification.is_due) return false;
    qp.notification.is_due = false;
    wire::emit_cnp(out, qp.notification.lower, qp.notification.destination);
    core.stamp_origin(out, qp, true, Psn{});
    ++core.counters.np_cnp_sent;
    return true;
}

}  // namespace rdmalab::transport

#include "raw_kit.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace rdmalab::programs {

Bytes number(std::uint64_t value, int bytes) {
    Bytes out;
    for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<char>(value >> (8 * i)));
    return out;
}

Bytes ethernet(const Bytes& destination, const Bytes& source, std::uint16_t type, int vlan_tag) {
    Bytes tag;
    if (vlan_tag >= 0) tag = number(0x8100, 2) + number(static_cast<unsigned>(vlan_tag), 2);
    return destination + source + tag + number(type, 2);
}

static std::uint16_t checksum(const Bytes& header) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i + 1 < header.size(); i += 2) {
        sum += static_cast<std::uint8_t>(header[i]) << 8 | static_cast<std::uint8_t>(header[i + 1]);
    }
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(~sum);
}

Bytes ipv4(std::uint32_t source, std::uint32_t destination, std::uint8_t protocol,
           std::size_t payload) {
    Bytes header = number(0x4500, 2) + number(20 + payload, 2) + number(0, 4) + number(64, 1) +
                   number(protocol, 1) + number(0, 2) + number(source, 4) + number(destination, 4);
    return header.replace(10, 2, number(checksum(header), 2));
}

Bytes ipv6(std::uint8_t source, std::uint8_t destination, std::uint8_t protocol,
           std::size_t payload) {
    return number(0x6000'0000, 4) + number(payload, 2) + number(protocol, 1) + number(64, 1) +
           number(0xfd00, 2) + Bytes(13, '\0') + number(source, 1) + number(0xfd00, 2) +
           Bytes(13, '\0') + number(destination, 1);
}

Bytes udp(std::uint16_t source, std::uint16_t destination, std::size_t payload) {
    return number(source, 2) + number(destination, 2) + number(8 + payload, 2) + number(0, 2);
}

Bytes tcp(std::uint16_t source, std::uint16_t destination) {
    return number(source, 2) + number(destination, 2) + number(1, 4) + number(0, 4) +
           number(0x5002, 2) + number(1024, 2) + number(0, 4);
}

// The link-local GID is made from the MAC (EUI-64).
Bytes mac_of(const Device& device) {
    const union ibv_gid gid = device.gid(0);
    Bytes mac;
    for (int i : {8, 9, 10, 13, 14, 15}) mac.push_back(static_cast<char>(gid.raw[i]));
    mac[0] = static_cast<char>(mac[0] ^ 2);
    return mac;
}

Bytes Datagram::frame() const {
    const Bytes payload(64, mark);
    return ethernet(destination_mac, source_mac, 0x0800) +
           ipv4(source_ip, destination_ip, 17, 8 + payload.size()) +
           udp(source_port, destination_port, payload.size()) + payload;
}

RawEnd::RawEnd(const Device& device) : device_(device), memory_(device, (kSlots + 8) * kSlotSize) {
    ibv_cq_init_attr_ex cq{};
    cq.cqe = 256;
    cq.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_FLOW_TAG;
    cq_ = check(ibv_create_cq_ex(device.context(), &cq), "ibv_create_cq_ex");
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq_);
    init.qp_type = IBV_QPT_RAW_PACKET;
    init.cap = {64, kSlots, 2, 1, 0};
    qp_ = check(ibv_create_qp(device.pd(), &init), "ibv_create_qp of a raw packet QP");
    ibv_qp_attr attributes{};
    attributes.port_num = 1;
    attributes.qp_state = IBV_QPS_INIT;
    check(ibv_modify_qp(qp_, &attributes, IBV_QP_STATE | IBV_QP_PORT), "raw packet QP to INIT");
    for (auto state : {IBV_QPS_RTR, IBV_QPS_RTS}) {
        attributes.qp_state = state;
        check(ibv_modify_qp(qp_, &attributes, IBV_QP_STATE), "raw packet QP to RTR and RTS");
    }
    for (std::uint32_t i = 0; i < kSlots; ++i) post(i);
}

RawEnd::~RawEnd() {
    if (int status = ibv_destroy_qp(qp_); status != 0) fail(kSetUp, "ibv_destroy_qp: %d", status);
    check(ibv_destroy_cq(ibv_cq_ex_to_cq(cq_)), "ibv_destroy_cq");
}

void RawEnd::post(std::uint64_t slot) {
    ibv_sge sge = memory_.sge(slot * kSlotSize, kSlotSize);
    ibv_recv_wr work{}, *bad = nullptr;
    work.wr_id = slot;
    work.sg_list = &sge;
    work.num_sge = 1;
    check(ibv_post_recv(qp_, &work, &bad), "ibv_post_recv");
}

bool RawEnd::poll(ibv_wc& wc) {
    ibv_poll_cq_attr attributes{};
    if (ibv_start_poll(cq_, &attributes) != 0) return false;
    wc = {};
    wc.wr_id = cq_->wr_id;
    wc.opcode = ibv_wc_read_opcode(cq_);
    if (cq_->status != IBV_WC_SUCCESS) {
        fail(kWrongStatus, "a completion: %s", ibv_wc_status_str(cq_->status));
    }
    wc.byte_len = ibv_wc_read_byte_len(cq_);
    if (wc.opcode == IBV_WC_RECV) {
        last_tag_ = ibv_wc_read_flow_tag(cq_);
        last_flags_ = ibv_wc_read_wc_flags(cq_);
    }
    ibv_end_poll(cq_);
    return true;
}

// Half of the frame each in two SGEs, for what is not contiguous.
void RawEnd::send(const Bytes& frame, unsigned flags) {
    const std::size_t offset = kSlots * kSlotSize;
    std::memcpy(memory_.data() + offset, frame.data(), frame.size());
    const auto half = static_cast<std::uint32_t>(frame.size() / 2);
    ibv_sge sges[] = {memory_.sge(offset, half),
                      memory_.sge(offset + half, static_cast<std::uint32_t>(frame.size()) - half)};
    ibv_send_wr work{}, *bad = nullptr;
    work.sg_list = sges;
    work.num_sge = 2;
    work.opcode = IBV_WR_SEND;
    work.send_flags = IBV_SEND_SIGNALED | flags;
    check(ibv_post_send(qp_, &work, &bad), "ibv_post_send");
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    for (ibv_wc wc; std::chrono::steady_clock::now() < deadline;) {
        if (!poll(wc)) continue;
        if (wc.opcode == IBV_WC_SEND) return;
        received_.push_back(
            {reinterpret_cast<char*>(memory_.data()) + wc.wr_id * kSlotSize, wc.byte_len});
        post(wc.wr_id);
    }
    fail(kStalled, "a send of a raw packet QP did not complete");
}

std::vector<Bytes> RawEnd::receive(int patience_ms) {
    using Clock = std::chrono::steady_clock;
    const auto patience = std::chrono::milliseconds(patience_ms);
    for (auto last = Clock::now(); Clock::now() - last < patience;) {
        ibv_wc wc;
        if (!poll(wc)) continue;
        received_.push_back(
            {reinterpret_cast<char*>(memory_.data()) + wc.wr_id * kSlotSize, wc.byte_len});
        post(wc.wr_id);
        last = Clock::now();
    }
    return std::exchange(received_, {});
}

Rule::Rule(ibv_flow_attr_type type) : bytes_(sizeof(ibv_flow_attr), '\0') {
    attributes().type = type;
    attributes().size = sizeof(ibv_flow_attr);
    attributes().port = 1;
}

Rule& Rule::port(std::uint16_t destination, std::uint16_t mask) {
    ibv_flow_spec_tcp_udp spec{};
    spec.val.dst_port = htons(destination);
    spec.mask.dst_port = htons(mask);
    return add(IBV_FLOW_SPEC_UDP, spec);
}

Rule& Rule::destination(const Bytes& mac) {
    ibv_flow_spec_eth spec{};
    std::copy(mac.begin(), mac.end(), spec.val.dst_mac);
    std::fill(std::begin(spec.mask.dst_mac), std::end(spec.mask.dst_mac), 0xff);
    return add(IBV_FLOW_SPEC_ETH, spec);
}

Rule& Rule::priority(std::uint16_t value) {
    attributes().priority = value;
    return *this;
}
Rule& Rule::flags(std::uint32_t value) {
    attributes().flags = value;
    return *this;
}
Rule& Rule::tag(std::uint32_t value) {
    ibv_flow_spec_action_tag spec{};
    spec.tag_id = value;
    return add(IBV_FLOW_SPEC_ACTION_TAG, spec);
}
Rule& Rule::drop() { return add(IBV_FLOW_SPEC_ACTION_DROP, ibv_flow_spec_action_drop{}); }
Rule& Rule::count(ibv_counters* counters) {
    ibv_flow_spec_counter_action spec{};
    spec.counters = counters;
    return add(IBV_FLOW_SPEC_ACTION_COUNT, spec);
}

ibv_flow* Rule::create(const RawEnd& end) {
    return check(ibv_create_flow(end.qp(), &attributes()), "ibv_create_flow");
}

int Rule::failure(ibv_qp* qp) {
    errno = 0;
    ibv_flow* flow = ibv_create_flow(qp, &attributes());
    if (flow == nullptr) return errno;
    check(ibv_destroy_flow(flow), "ibv_destroy_flow");
    return 0;
}

}  // namespace rdmalab::programs

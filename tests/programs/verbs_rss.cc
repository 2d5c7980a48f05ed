// Receive work queues, indirection tables and a raw packet QP that spreads what it gets over them:
// who may go when, what may be asked for, and that the frames of one conversation stay together.

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <set>

#include "raw_kit.h"

namespace rdmalab::programs {
namespace {

constexpr unsigned kQueues = 4, kSlots = 64, kSlotSize = 512, kConversations = 16;

void expect(bool condition, const char* what) {
    if (!condition) fail(kWrongData, "expected: %s", what);
}

struct Queue {
    Queue(const Device& device, Memory& memory, unsigned index)
        : cq(device, 256), memory_(memory), index_(index) {
        ibv_wq_init_attr init{};
        init.wq_type = IBV_WQT_RQ;
        init.max_wr = kSlots;
        init.max_sge = 1;
        init.pd = device.pd();
        init.cq = cq.raw();
        wq = check(ibv_create_wq(device.context(), &init), "ibv_create_wq");
    }
    int move(ibv_wq_state state) const {
        ibv_wq_attr attributes{};
        attributes.attr_mask = IBV_WQ_ATTR_STATE;
        attributes.wq_state = state;
        return ibv_modify_wq(wq, &attributes);
    }
    void post_all() const {
        for (unsigned i = 0; i < kSlots; ++i) {
            ibv_sge sge = memory_.sge((index_ * kSlots + i) * kSlotSize, kSlotSize);
            ibv_recv_wr work{}, *bad = nullptr;
            work.wr_id = index_ * kSlots + i;
            work.sg_list = &sge;
            work.num_sge = 1;
            check(ibv_post_wq_recv(wq, &work, &bad), "ibv_post_wq_recv");
        }
    }

    CompletionQueue cq;
    ibv_wq* wq;

private:
    Memory& memory_;
    unsigned index_;
};

std::array<std::uint8_t, 40> key() {
    std::array<std::uint8_t, 40> bytes;
    for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<std::uint8_t>(37 * i + 11);
    return bytes;
}

ibv_qp_init_attr_ex spreading(const Device& device, ibv_rwq_ind_table* table,
                              std::array<std::uint8_t, 40>& bytes) {
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_RAW_PACKET;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    init.pd = device.pd();
    init.rwq_ind_tbl = table;
    init.rx_hash_conf.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ;
    init.rx_hash_conf.rx_hash_key_len = static_cast<std::uint8_t>(bytes.size());
    init.rx_hash_conf.rx_hash_key = bytes.data();
    init.rx_hash_conf.rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 |
                                            IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP;
    return init;
}

void check_refusals(const Device& device, ibv_rwq_ind_table* table) {
    auto bytes = key();
    const auto refused = [&](auto change) {
        ibv_qp_init_attr_ex init = spreading(device, table, bytes);
        change(init);
        errno = 0;
        return ibv_create_qp_ex(device.context(), &init) == nullptr ? errno : 0;
    };
    using Init = ibv_qp_init_attr_ex;
    expect(refused([](Init& i) { i.qp_type = IBV_QPT_UD; }) == EINVAL, "raw packets only");
    expect(refused([](Init& i) { i.comp_mask &= ~IBV_QP_INIT_ATTR_RX_HASH; }) == EINVAL, "a hash");
    expect(refused([](Init& i) { i.rx_hash_conf.rx_hash_key_len = 39; }) == EINVAL, "40 bytes");
    expect(refused([](Init& i) { i.rx_hash_conf.rx_hash_function = 2; }) == EOPNOTSUPP, "Toeplitz");
    expect(refused([](Init& i) { i.cap.max_recv_wr = 1; }) == EINVAL, "no queue of its own");
}

// Sends each conversation three times and looks at which queues get it.
void check_spread(RawEnd& sender, Datagram datagram, std::deque<Queue>& queues,
                  const Memory& memory) {
    for (int round = 0; round < 3; ++round) {
        for (unsigned i = 0; i < kConversations; ++i) {
            datagram.source_port = static_cast<std::uint16_t>(5000 + i);
            sender.send(datagram.frame());
        }
    }
    std::array<std::set<unsigned>, kConversations> queues_of;
    std::set<unsigned> used;
    for (unsigned left = 3 * kConversations; left > 0;) {
        for (unsigned q = 0; q < queues.size(); ++q) {
            ibv_wc wc;
            if (ibv_poll_cq(queues[q].cq.raw(), 1, &wc) != 1) continue;
            expect(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV, "a frame");
            expect(wc.qp_num == queues[q].wq->wq_num, "the number of the WQ");
            std::uint16_t port;
            std::memcpy(&port, memory.data() + wc.wr_id * kSlotSize + 34, sizeof port);
            queues_of[ntohs(port) - 5000u].insert(q);
            used.insert(q);
            --left;
        }
    }
    for (const auto& found : queues_of) expect(found.size() == 1, "one queue for a conversation");
    expect(used.size() > 1, "more than one queue for all of them");
}

void run() {
    Device far("mlx5_3"), near("mlx5_2");
    RawEnd sender(far);
    Memory memory(near, kQueues * kSlots * kSlotSize);
    std::deque<Queue> queues;
    std::array<ibv_wq*, kQueues> list;
    for (unsigned i = 0; i < kQueues; ++i) {
        list[i] = queues.emplace_back(near, memory, i).wq;
        expect(queues[i].wq->state == IBV_WQS_RESET, "a new WQ in RESET");
        check(queues[i].move(IBV_WQS_RDY), "ibv_modify_wq to RDY");
        queues[i].post_all();
    }
    ibv_rwq_ind_table_init_attr shape{2, list.data(), 0};
    ibv_rwq_ind_table* table =
        check(ibv_create_rwq_ind_table(near.context(), &shape), "ibv_create_rwq_ind_table");
    check_refusals(near, table);
    auto bytes = key();
    ibv_qp_init_attr_ex init = spreading(near, table, bytes);
    ibv_qp* qp = check(ibv_create_qp_ex(near.context(), &init), "ibv_create_qp_ex");
    expect(ibv_destroy_rwq_ind_table(table) == EBUSY, "EBUSY: the QP uses the table");
    expect(ibv_destroy_wq(list[0]) == EBUSY, "EBUSY: the table uses the WQ");
    ibv_flow* flow = check(ibv_create_flow(qp, &Rule().port(7000).attributes()), "ibv_create_flow");
    check_spread(sender, Datagram{mac_of(near), mac_of(far)}, queues, memory);

    check(queues[0].move(IBV_WQS_ERR), "ibv_modify_wq to ERR");
    expect(queues[0].cq.wait_any_status().status == IBV_WC_WR_FLUSH_ERR, "flushed receives");
    expect(queues[0].move(IBV_WQS_RDY) == EINVAL, "ERR is left by RESET alone");
    check(queues[0].move(IBV_WQS_RESET), "ibv_modify_wq to RESET");
    check(ibv_destroy_flow(flow), "ibv_destroy_flow");
    check(ibv_destroy_qp(qp), "ibv_destroy_qp");
    check(ibv_destroy_rwq_ind_table(table), "ibv_destroy_rwq_ind_table");
    for (ibv_wq* wq : list) check(ibv_destroy_wq(wq), "ibv_destroy_wq");
}

}  // namespace
}  // namespace rdmalab::programs

int main() { rdmalab::programs::run(); }

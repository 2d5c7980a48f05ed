// Many objects in one process.
//
//   verbs_scale qps N        N RC QPs (N/2 pairs between two devices), one checked write over each
//   pair verbs_scale churn N      N times: create one of everything, bring the QP to RTS towards
//   itself, destroy all verbs_scale contexts N   N times: open the device, register memory, close
//   it
//
// For the last two, the caller watches the card's descriptors and memory: every cycle must give
// back what it took.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "pattern.h"
#include "verbs_kit.h"

namespace rdmalab::programs {
namespace {

constexpr std::size_t kBytes = 256;

void run_qps(unsigned count) {
    const Device near("mlx5_2"), far("mlx5_3");
    const Memory source(near, kBytes * count), target(far, kBytes * count);
    CompletionQueue near_cq(near, static_cast<int>(count + 1)), far_cq(far, 1);
    std::vector<std::unique_ptr<QueuePair>> near_qps, far_qps;
    const Path path;
    for (unsigned i = 0; i < count / 2; ++i) {
        near_qps.push_back(
            std::make_unique<QueuePair>(near, near_cq, IBV_QPT_RC, QueuePairSize{}, i));
        far_qps.push_back(std::make_unique<QueuePair>(far, far_cq, IBV_QPT_RC, QueuePairSize{}, i));
        near_qps[i]->connect(far_qps[i]->endpoint(far, path, target), path);
        far_qps[i]->connect(near_qps[i]->endpoint(near, path, source), path);
    }
    for (unsigned i = 0; i < count / 2; ++i) {
        Pattern(1, i).fill(source.data() + i * kBytes, kBytes);
        ibv_sge sge = source.sge(i * kBytes, kBytes);
        ibv_send_wr work{};
        work.wr_id = i;
        work.sg_list = &sge;
        work.num_sge = 1;
        work.opcode = IBV_WR_RDMA_WRITE;
        work.send_flags = IBV_SEND_SIGNALED;
        work.wr.rdma = {target.address() + i * kBytes, target.rkey()};
        near_qps[i]->post(work);
    }
    for (unsigned i = 0; i < count / 2; ++i) near_cq.wait();
    for (unsigned i = 0; i < count / 2; ++i) {
        if (Pattern(1, i).first_difference(target.data() + i * kBytes, kBytes) != kBytes) {
            fail(kWrongData, "QP pair %u delivered wrong bytes", i);
        }
    }
}

void churn_once(const Device& device, unsigned cycle) {
    const Path path;
    ibv_comp_channel* channel =
        check(ibv_create_comp_channel(device.context()), "ibv_create_comp_channel");
    ibv_cq* evented =
        check(ibv_create_cq(device.context(), 16, nullptr, channel, 0), "ibv_create_cq");
    ibv_srq_init_attr srq_init{};
    srq_init.attr.max_wr = 16;
    srq_init.attr.max_sge = 1;
    ibv_srq* srq = check(ibv_create_srq(device.pd(), &srq_init), "ibv_create_srq");
    ibv_ah_attr attr = address_of(device.gid(path.gid_index), path);
    ibv_ah* ah = check(ibv_create_ah(device.pd(), &attr), "ibv_create_ah");
    {
        const Memory memory(device, 64 * 1024);
        const CompletionQueue cq(device, 64);
        QueuePair qp(device, cq, IBV_QPT_RC, {}, cycle, cycle % 2 == 0 ? srq : nullptr);
        qp.connect(qp.endpoint(device, path, memory), path);
    }
    check(ibv_destroy_ah(ah), "ibv_destroy_ah");
    check(ibv_destroy_srq(srq), "ibv_destroy_srq");
    check(ibv_destroy_cq(evented), "ibv_destroy_cq");
    check(ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
}

void run_churn(unsigned cycles) {
    const Device device("mlx5_2");
    for (unsigned cycle = 0; cycle < cycles; ++cycle) churn_once(device, cycle);
}

void run_contexts(unsigned cycles) {
    for (unsigned cycle = 0; cycle < cycles; ++cycle) {
        const Device device("mlx5_2");
        const Memory memory(device, 64 * 1024);
    }
}

}  // namespace
}  // namespace rdmalab::programs

int main(int argc, char** argv) {
    using namespace rdmalab::programs;
    if (argc != 3) fail(kUsage, "usage: verbs_scale qps|churn|contexts N");
    const std::string mode = argv[1];
    const auto count = static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10));
    if (mode == "qps") {
        run_qps(count);
    } else if (mode == "churn") {
        run_churn(count);
    } else if (mode == "contexts") {
        run_contexts(count);
    } else {
        fail(kUsage, "unknown mode %s", mode.c_str());
    }
    std::printf("%s %u done\n", mode.c_str(), count);
    return 0;
}

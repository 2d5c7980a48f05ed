// Memory that goes away behind the card's back: registers a buffer, unmaps it, and writes to it and
// from it. Prints the status that each work request completes with.

#include <sys/mman.h>

#include <cstdio>
#include <memory>

#include "verbs_kit.h"

namespace rdmalab::programs {
namespace {

constexpr std::uint32_t kBytes = 65536;

void write_between(bool unmap_source) {
    const Device near("mlx5_3"), far("mlx5_2");
    auto* source = new Memory(near, kBytes);
    auto* target = new Memory(far, kBytes);
    CompletionQueue near_cq(near, 16), far_cq(far, 16);
    QueuePair near_qp(near, near_cq, IBV_QPT_RC, {}, 1), far_qp(far, far_cq, IBV_QPT_RC, {}, 2);
    const Path path;
    near_qp.connect(far_qp.endpoint(far, path, *target), path);
    far_qp.connect(near_qp.endpoint(near, path, *source), path);
    munmap((unmap_source ? source : target)->data(), kBytes);
    ibv_sge sge = source->sge(0, kBytes);
    ibv_send_wr work{};
    work.sg_list = &sge;
    work.num_sge = 1;
    work.opcode = IBV_WR_RDMA_WRITE;
    work.send_flags = IBV_SEND_SIGNALED;
    work.wr.rdma = {target->address(), target->rkey()};
    near_qp.post(work);
    const ibv_wc_status status = near_cq.wait_any_status(std::chrono::seconds(10)).status;
    std::printf("write %s unmapped memory: status %d (%s)\n", unmap_source ? "from" : "to", status,
                ibv_wc_status_str(status));
    delete source;
    delete target;
}

}  // namespace
}  // namespace rdmalab::programs

int main() {
    rdmalab::programs::write_between(false);
    rdmalab::programs::write_between(true);
    return 0;
}

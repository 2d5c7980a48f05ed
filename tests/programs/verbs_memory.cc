// Kinds of memory, with the small messages that ride in rings and the long ones that do not:
// regions on demand whose pages are not there yet or never, null regions, device memory, windows.
//
// Every finding is one line; the caller compares them (surface.py). The process must survive all of
// them, also those where the library would have to touch memory that is not there.

#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "verbs_kit.h"

namespace rdmalab::programs {
namespace {

constexpr std::size_t kPage = 4096;
constexpr unsigned kEverything =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// Two connected QPs, new for each finding: an error ends them.
class Pair {
public:
    Pair(const Device& near, const Device& far)
        : near_cq_(near, 64),
          far_cq_(far, 64),
          near_memory_(near, kPage),
          far_memory_(far, kPage),
          near_qp_(near, near_cq_, IBV_QPT_RC, {64, 2, 0}, 1),
          far_qp_(far, far_cq_, IBV_QPT_RC, {64, 2, 0}, 2) {
        near_qp_.connect(far_qp_.endpoint(far, path_, far_memory_), path_);
        far_qp_.connect(near_qp_.endpoint(near, path_, near_memory_), path_);
    }
    void receive(ibv_sge sge) {
        ibv_recv_wr work{};
        work.sg_list = &sge;
        work.num_sge = 1;
        far_qp_.post(work);
    }
    ibv_wc_status send(ibv_sge sge, ibv_wr_opcode opcode = IBV_WR_SEND, std::uint64_t address = 0,
                       std::uint32_t rkey = 0) {
        ibv_send_wr work{};
        work.sg_list = &sge;
        work.num_sge = 1;
        work.opcode = opcode;
        work.send_flags = IBV_SEND_SIGNALED;
        work.wr.rdma = {address, rkey};
        near_qp_.post(work);
        return near_cq_.wait_any_status().status;
    }
    ibv_wc_status received() { return far_cq_.wait_any_status().status; }
    ibv_qp* far_qp() const { return far_qp_.raw(); }
    ibv_wc_status far_done() { return far_cq_.wait_any_status().status; }

private:
    Path path_;
    CompletionQueue near_cq_, far_cq_;
    Memory near_memory_, far_memory_;
    QueuePair near_qp_, far_qp_;
};

struct Setting {
    Device near{"mlx5_3"}, far{"mlx5_2"};
    Memory source{near, 4 * kPage};

    Setting() { std::memset(source.data(), 'x', source.length()); }
    std::unique_ptr<Pair> pair() const { return std::make_unique<Pair>(near, far); }
};

char* pages(std::size_t count) {
    void* at =
        mmap(nullptr, count * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
}

ibv_sge sge_of(const void* address, std::uint32_t length, const ibv_mr* mr) {
    return {reinterpret_cast<std::uint64_t>(address), length, mr->lkey};
}

void report(const char* what, ibv_wc_status status) {
    std::printf("%s: %s\n", what, ibv_wc_status_str(status));
}

// Pages that come when they are touched, and pages that cannot come.
void on_demand(const Setting& s) {
    char* const fresh = pages(4);
    ibv_mr* const all =
        check(ibv_reg_mr(s.far.pd(), nullptr, SIZE_MAX, kEverything | IBV_ACCESS_ON_DEMAND),
              "implicit region");
    for (const std::uint32_t length : {100u, 2 * 4096u}) {
        const auto pair = s.pair();
        pair->receive(sge_of(fresh, length, all));
        report("send to pages that come", pair->send(s.source.sge(0, length)));
        report("receive in pages that come", pair->received());
        std::printf("arrived: %s\n", fresh[0] == 'x' && fresh[length - 1] == 'x' ? "yes" : "no");
        madvise(fresh, 4 * kPage, MADV_DONTNEED);
    }
    mprotect(fresh, 4 * kPage, PROT_NONE);
    for (const std::uint32_t length : {100u, 2 * 4096u}) {
        const auto pair = s.pair();
        pair->receive(sge_of(fresh, length, all));
        report("send to pages that cannot come", pair->send(s.source.sge(0, length)));
        report("receive in pages that cannot come", pair->received());
    }
    ibv_sge range = sge_of(fresh, 100, all);
    const int advised = ibv_advise_mr(s.far.pd(), IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &range, 1);
    std::printf("advice on pages that cannot come: %s\n", strerrorname_np(advised));
    check(ibv_dereg_mr(all), "ibv_dereg_mr");
    munmap(fresh, 4 * kPage);
}

void from_missing_pages(const Setting& s) {
    char* const gone = pages(1);
    ibv_mr* const mr =
        check(ibv_reg_mr(s.near.pd(), gone, kPage, kEverything | IBV_ACCESS_ON_DEMAND),
              "region on demand");
    mprotect(gone, kPage, PROT_NONE);
    const auto pair = s.pair();
    Memory target(s.far, kPage);
    report("write from pages that are gone",
           pair->send(sge_of(gone, 100, mr), IBV_WR_RDMA_WRITE, target.address(), target.rkey()));
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    munmap(gone, kPage);
}

void null_region(const Setting& s) {
    ibv_mr* const sink = check(ibv_alloc_null_mr(s.far.pd()), "ibv_alloc_null_mr");
    for (const std::uint32_t length : {100u, 2 * 4096u}) {
        const auto pair = s.pair();
        pair->receive({0x1000, length, sink->lkey});
        report("send to nowhere", pair->send(s.source.sge(0, length)));
        report("receive in nowhere", pair->received());
    }
    check(ibv_dereg_mr(sink), "ibv_dereg_mr");
}

void device_memory(const Setting& s) {
    ibv_alloc_dm_attr attributes{};
    attributes.length = 4 * kPage;
    ibv_dm* const dm = check(ibv_alloc_dm(s.far.context(), &attributes), "ibv_alloc_dm");
    ibv_mr* const mr =
        check(ibv_reg_dm_mr(s.far.pd(), dm, kPage, 3 * kPage, kEverything | IBV_ACCESS_ZERO_BASED),
              "ibv_reg_dm_mr");
    for (const std::uint32_t length : {100u, 2 * 4096u}) {
        const auto pair = s.pair();
        pair->receive({0, length, mr->lkey});
        report("send to device memory", pair->send(s.source.sge(0, length)));
        report("receive in device memory", pair->received());
        char last[4] = {};
        check(ibv_memcpy_from_dm(last, dm, kPage + length - 4, 4), "ibv_memcpy_from_dm");
        std::printf("arrived: %s\n", last[3] == 'x' ? "yes" : "no");
    }
    std::printf("free in use: %s\n", strerrorname_np(ibv_free_dm(dm)));
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
    check(ibv_free_dm(dm), "ibv_free_dm");
}

void window(const Setting& s) {
    Memory target(s.far, kPage);
    ibv_mr* const mr = check(
        ibv_reg_mr(s.far.pd(), target.data(), kPage, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND),
        "region to bind to");
    ibv_mw* const mw = check(ibv_alloc_mw(s.far.pd(), IBV_MW_TYPE_1), "ibv_alloc_mw");
    const auto pair = s.pair();
    ibv_mw_bind bind{};
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = {mr, target.address() + 100, 50, IBV_ACCESS_REMOTE_WRITE};
    check(ibv_bind_mw(pair->far_qp(), mw, &bind), "ibv_bind_mw");
    report("bind", pair->far_done());
    report("write into the window",
           pair->send(s.source.sge(0, 50), IBV_WR_RDMA_WRITE, target.address() + 100, mw->rkey));
    std::printf("deregister a bound region: %s\n", strerrorname_np(ibv_dereg_mr(mr)));
    report("write beside the window",
           pair->send(s.source.sge(0, 50), IBV_WR_RDMA_WRITE, target.address() + 101, mw->rkey));
    check(ibv_dealloc_mw(mw), "ibv_dealloc_mw");
    check(ibv_dereg_mr(mr), "ibv_dereg_mr");
}

}  // namespace
}  // namespace rdmalab::programs

int main() {
    using namespace rdmalab::programs;
    const Setting setting;
    on_demand(setting);
    from_missing_pages(setting);
    null_region(setting);
    device_memory(setting);
    window(setting);
    return 0;
}

// What an application sees when its card dies in the middle of traffic: IBV_EVENT_DEVICE_FATAL on
// the async descriptor, EIO from calls that need the card, no success from what was in flight, and
// an orderly way out.
//
// Prints "ready PID" when traffic flows; the caller then kills the card. Every finding is one line.

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>

#include "verbs_kit.h"

namespace rdmalab::programs {
namespace {

constexpr std::uint32_t kBytes = 65536;
constexpr unsigned kDepth = 16;

const char* name_of_error(int error) { return error == 0 ? "success" : strerrorname_np(error); }

// An RC pair between two devices of this process, with writes always in flight.
class Traffic {
public:
    Traffic()
        : source_(near_, kBytes),
          target_(far_, kBytes),
          near_cq_(near_, 64),
          far_cq_(far_, 64),
          near_qp_(near_, near_cq_, IBV_QPT_RC, {64, 1, 0}, 1),
          far_qp_(far_, far_cq_, IBV_QPT_RC, {}, 2) {
        near_qp_.connect(far_qp_.endpoint(far_, path_, target_), path_);
        far_qp_.connect(near_qp_.endpoint(near_, path_, source_), path_);
    }
    const Device& device() const { return near_; }
    const QueuePair& qp() const { return near_qp_; }
    ibv_cq* cq() const { return near_cq_.raw(); }

    int post() {
        ibv_sge sge = source_.sge(0, kBytes);
        ibv_send_wr work{}, *bad = nullptr;
        work.sg_list = &sge;
        work.num_sge = 1;
        work.opcode = IBV_WR_RDMA_WRITE;
        work.send_flags = IBV_SEND_SIGNALED;
        work.wr.rdma = {target_.address(), target_.rkey()};
        return ibv_post_send(near_qp_.raw(), &work, &bad);
    }

private:
    Path path_;
    Device near_{"mlx5_3"}, far_{"mlx5_2"};
    Memory source_, target_;
    CompletionQueue near_cq_, far_cq_;
    QueuePair near_qp_, far_qp_;
};

bool has_async_event(ibv_context* context) {
    pollfd waiting{context->async_fd, POLLIN, 0};
    return ::poll(&waiting, 1, 0) == 1;
}

// Keeps `kDepth` writes in flight until the async descriptor speaks; the number of successes.
unsigned long long drive(Traffic& traffic) {
    unsigned long long done = 0;
    unsigned in_flight = 0, turns = 0;
    for (;;) {
        while (in_flight < kDepth && traffic.post() == 0) ++in_flight;
        ibv_wc wc;
        if (ibv_poll_cq(traffic.cq(), 1, &wc) == 1) {
            --in_flight;
            if (wc.status != IBV_WC_SUCCESS)
                std::printf("completion %s\n", ibv_wc_status_str(wc.status));
            if (++done == 100) {
                std::printf("ready %d\n", getpid());
                std::fflush(stdout);
            }
        }
        if (++turns % 256 == 0 && has_async_event(traffic.device().context())) return done;
        if (in_flight == 0) return done;
    }
}

void take_event(ibv_context* context) {
    ibv_async_event event;
    if (ibv_get_async_event(context, &event) != 0) fail(kWrongStatus, "ibv_get_async_event: %m");
    std::printf("async event %s\n", event.event_type == IBV_EVENT_DEVICE_FATAL
                                        ? "DEVICE_FATAL"
                                        : ibv_event_type_str(event.event_type));
    ibv_ack_async_event(&event);
}

// Calls that need the card must say EIO at once.
void try_calls(Traffic& traffic) {
    static char buffer[4096];
    errno = 0;
    ibv_mr* mr = ibv_reg_mr(traffic.device().pd(), buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
    std::printf("ibv_reg_mr %s\n", mr != nullptr ? "success" : name_of_error(errno));
    errno = 0;
    ibv_cq* cq = ibv_create_cq(traffic.device().context(), 16, nullptr, nullptr, 0);
    std::printf("ibv_create_cq %s\n", cq != nullptr ? "success" : name_of_error(errno));
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    std::printf("ibv_modify_qp %s\n",
                name_of_error(ibv_modify_qp(traffic.qp().raw(), &attr, IBV_QP_STATE)));
    std::printf("ibv_post_send %s\n", name_of_error(traffic.post()));
}

// Destroying what the dead card held must succeed or say EIO, and must not hang: the wrappers of
// verbs_kit would end the program on EIO, so the objects are left to the end of the process.
void close_all(Traffic& traffic) {
    const int destroyed = ibv_destroy_qp(traffic.qp().raw());
    std::printf("ibv_destroy_qp %s\n", name_of_error(destroyed));
    std::fflush(stdout);
}

}  // namespace
}  // namespace rdmalab::programs

int main() {
    using namespace rdmalab::programs;
    auto* traffic = new Traffic;
    const auto done = drive(*traffic);
    std::printf("writes done %llu\n", done);
    take_event(traffic->device().context());
    try_calls(*traffic);
    close_all(*traffic);
    std::_Exit(0);
}

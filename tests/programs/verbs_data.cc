// Moves a seeded pattern with one verb between two devices and checks every byte.
//
// Two processes: the parent is the requester (on the client device), its child the responder (on
// the server device); a socket pair carries addresses and turns. Work goes in rounds of at most
// `depth` messages, each with a slot of its own in a buffer on either side:
//
//   responder: prepare the slots (clear, fill, post receives), say "ready"; wait for "done"; check
//   requester: wait for "ready"; fill, post the round, wait for all completions, check; say "done"
//
// Behind each message lie guard bytes that must keep their value. One JSON line reports the run.
// Exit codes: 1 wrong data, 2 a completion with an error, 3 stalled.

#include <arpa/inet.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "data_plan.h"
#include "pattern.h"
#include "verbs_kit.h"

namespace rdmalab::programs {
namespace {

constexpr std::size_t kGuard = 64;
constexpr std::byte kGuardByte{0xa7};
constexpr std::size_t kGrh = 40;

using Seconds = std::chrono::seconds;

struct Round {
    std::uint64_t first, count;
};

// Slots of messages in one buffer. UD receives begin with room for a GRH.
class Slots {
public:
    Slots(const Device& device, const Plan& plan, bool with_grh)
        : plan_(plan),
          grh_(with_grh ? kGrh : 0),
          stride_(stride(plan)),
          memory_(device, stride_ * plan.depth) {}

    const Memory& memory() const { return memory_; }
    std::size_t offset(std::uint64_t message) const { return (message % plan_.depth) * stride_; }
    std::byte* payload(std::uint64_t message) const {
        return memory_.data() + offset(message) + grh_;
    }

    void clear(std::uint64_t message) const {
        const std::size_t size = plan_.size_of(message);
        std::memset(payload(message), 0, size);
        std::fill_n(payload(message) + size, kGuard, kGuardByte);
    }
    void fill(std::uint64_t message) const {
        Pattern(plan_.seed, message).fill(payload(message), plan_.size_of(message));
    }
    bool arrived(std::uint64_t message) const {
        const std::size_t size = plan_.size_of(message);
        return Pattern(plan_.seed, message).first_difference(payload(message), size) == size;
    }
    void check(std::uint64_t message) const {
        const std::size_t size = plan_.size_of(message);
        const Pattern pattern(plan_.seed, message);
        const std::byte* data = payload(message);
        const std::size_t at = pattern.first_difference(data, size);
        if (at < size) {
            fail(kWrongData, "message %llu: byte %zu of %zu: expected 0x%02x, found 0x%02x",
                 static_cast<unsigned long long>(message), at, size,
                 static_cast<unsigned>(pattern.byte(at)), static_cast<unsigned>(data[at]));
        }
        for (std::size_t i = 0; i < kGuard; ++i) {
            if (data[size + i] == kGuardByte) continue;
            fail(kWrongData, "message %llu of %zu bytes: byte %zu behind it was overwritten",
                 static_cast<unsigned long long>(message), size, i);
        }
    }
    // The message's bytes as `plan.sges` pieces; a receive also covers the GRH.
    std::vector<ibv_sge> pieces(std::uint64_t message, bool with_grh) const {
        const std::uint64_t length = plan_.size_of(message) + (with_grh ? grh_ : 0);
        const std::size_t start = offset(message) + (with_grh ? 0 : grh_);
        std::vector<ibv_sge> list;
        for (std::uint64_t i = 0, done = 0; i < plan_.sges; ++i) {
            const std::uint64_t end = length * (i + 1) / plan_.sges;
            list.push_back(memory_.sge(start + done, static_cast<std::uint32_t>(end - done)));
            done = end;
        }
        return list;
    }

private:
    static std::size_t stride(const Plan& plan) {
        const std::uint64_t largest = *std::max_element(plan.sizes.begin(), plan.sizes.end());
        return (kGrh + largest + kGuard + 63) / 64 * 64;
    }
    const Plan& plan_;
    std::size_t grh_, stride_;
    Memory memory_;
};

// The value of the counter that atomics work on, before and after each message.
class AtomicModel {
public:
    AtomicModel(const Plan& plan) : plan_(plan) {}
    std::uint64_t value() const { return value_; }
    std::uint64_t operand(std::uint64_t message) const {
        std::uint64_t operand = 0;
        Pattern(plan_.seed, message).fill(reinterpret_cast<std::byte*>(&operand), sizeof operand);
        return operand;
    }
    // Every third compare-and-swap compares with a wrong value and must not swap.
    std::uint64_t compare(std::uint64_t message) const {
        return message % 3 == 2 ? ~value_ : value_;
    }
    void apply(std::uint64_t message) {
        if (plan_.verb == Verb::kFetchAdd) {
            value_ += operand(message);
        } else if (message % 3 != 2) {
            value_ = operand(message);
        }
    }

private:
    const Plan& plan_;
    std::uint64_t value_ = 0;
};

// What both roles have: device, slots, QP, the socket to the other process.
class Role {
public:
    Role(const Plan& plan, const std::string& device, int socket, bool responder)
        : plan_(plan),
          socket_(socket),
          limit_(plan.stall_limit_s),
          device_(device),
          slots_(device_, plan, responder && plan.transport == IBV_QPT_UD),
          cq_(device_, static_cast<int>(2 * plan.depth)),
          srq_(responder && plan.srq ? create_srq() : nullptr, &ibv_destroy_srq),
          qp_(device_, cq_, plan.transport, {plan.depth, plan.sges, plan.inline_bytes}, plan.psn,
              srq_.get()) {
        remote_ = swap_records(socket_, qp_.endpoint(device_, plan_.path, slots_.memory()));
        qp_.connect(remote_, plan_.path);
        swap_records(socket_, Round{});
    }

protected:
    Round next(Round round) const {
        const std::uint64_t first = round.first + round.count;
        return {first, std::min<std::uint64_t>(plan_.depth, plan_.messages - first)};
    }
    void tell() { send_bytes(socket_, "x", 1); }
    void listen() {
        char byte;
        recv_bytes(socket_, &byte, 1);
    }
    ibv_srq* create_srq() {
        ibv_srq_init_attr init{};
        init.attr.max_wr = plan_.depth;
        init.attr.max_sge = plan_.sges;
        return programs::check(ibv_create_srq(device_.pd(), &init), "ibv_create_srq");
    }

    const Plan& plan_;
    int socket_;
    Seconds limit_;
    Device device_;
    Slots slots_;
    CompletionQueue cq_;
    std::unique_ptr<ibv_srq, int (*)(ibv_srq*)> srq_;
    QueuePair qp_;
    Endpoint remote_{};
};

class Responder : Role {
public:
    Responder(const Plan& plan, int socket)
        : Role(plan, plan.server_device, socket, true), model_(plan) {}

    void run() {
        for (Round round = next({0, 0}); round.count > 0; round = next(round)) {
            prepare(round);
            tell();
            if (plan_.takes_recv()) take_completions(round);
            listen();
            check(round);
        }
        tell();
        listen();
    }

private:
    void prepare(Round round) {
        if (plan_.is_atomic()) return;
        for (std::uint64_t message = round.first; message < round.first + round.count; ++message) {
            slots_.clear(message);
            if (plan_.verb == Verb::kRead) slots_.fill(message);
            if (plan_.takes_recv()) post_recv(message);
        }
    }
    void post_recv(std::uint64_t message) {
        auto list = slots_.pieces(message, true);
        ibv_recv_wr work{};
        work.wr_id = message;
        if (plan_.lands_in_recv()) {
            work.sg_list = list.data();
            work.num_sge = static_cast<int>(list.size());
        }
        if (srq_ == nullptr) {
            qp_.post(work);
            return;
        }
        ibv_recv_wr* bad = nullptr;
        programs::check(ibv_post_srq_recv(srq_.get(), &work, &bad), "ibv_post_srq_recv");
    }
    void take_completions(Round round) {
        for (std::uint64_t message = round.first; message < round.first + round.count; ++message) {
            const ibv_wc wc = cq_.wait(limit_);
            if (wc.wr_id != message) {
                fail(kWrongData, "receive %llu completed in place of %llu",
                     static_cast<unsigned long long>(wc.wr_id),
                     static_cast<unsigned long long>(message));
            }
            const std::uint64_t grh = plan_.transport == IBV_QPT_UD ? kGrh : 0;
            if (wc.byte_len != plan_.size_of(message) + grh) {
                fail(kWrongData, "message %llu: byte_len %u",
                     static_cast<unsigned long long>(message), wc.byte_len);
            }
            const bool flagged = (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
            if (flagged != plan_.has_immediate() ||
                (flagged && ntohl(wc.imm_data) != (message & 0xffff'ffff))) {
                fail(kWrongData, "message %llu: wrong immediate",
                     static_cast<unsigned long long>(message));
            }
        }
    }
    void check(Round round) {
        for (std::uint64_t message = round.first; message < round.first + round.count; ++message) {
            if (plan_.is_atomic()) {
                model_.apply(message);
            } else {
                if (plan_.transport == IBV_QPT_UC) await(message);
                slots_.check(message);
            }
        }
        std::uint64_t counter;
        std::memcpy(&counter, slots_.memory().data(), sizeof counter);
        if (plan_.is_atomic() && counter != model_.value()) {
            fail(kWrongData, "after message %llu the counter is wrong",
                 static_cast<unsigned long long>(round.first + round.count - 1));
        }
    }

    // On UC a write completes at the requester when it is sent; nothing tells the responder when it
    // is there.
    void await(std::uint64_t message) const {
        const auto deadline = std::chrono::steady_clock::now() + Seconds(5);
        while (!slots_.arrived(message) && std::chrono::steady_clock::now() < deadline) usleep(100);
    }

    AtomicModel model_;
};

class Requester : Role {
public:
    Requester(const Plan& plan, int socket)
        : Role(plan, plan.client_device, socket, false), model_(plan) {
        if (plan.transport == IBV_QPT_UD) {
            ibv_ah_attr attr = address_of(remote_.gid, plan.path);
            ah_ = programs::check(ibv_create_ah(device_.pd(), &attr), "ibv_create_ah");
        }
    }
    ~Requester() {
        if (ah_ != nullptr) programs::check(ibv_destroy_ah(ah_), "ibv_destroy_ah");
    }

    void run() {
        for (Round round = next({0, 0}); round.count > 0; round = next(round)) {
            prepare(round);
            listen();
            for (std::uint64_t message = round.first; message < round.first + round.count;
                 ++message)
                post(message);
            for (std::uint64_t message = round.first; message < round.first + round.count;
                 ++message)
                take(message);
            tell();
        }
        listen();
        tell();
    }

private:
    void prepare(Round round) {
        if (plan_.is_atomic()) return;
        for (std::uint64_t message = round.first; message < round.first + round.count; ++message) {
            slots_.clear(message);
            if (plan_.verb != Verb::kRead) slots_.fill(message);
        }
    }
    ibv_wr_opcode opcode() const {
        switch (plan_.verb) {
            case Verb::kWrite:
                return IBV_WR_RDMA_WRITE;
            case Verb::kWriteImm:
                return IBV_WR_RDMA_WRITE_WITH_IMM;
            case Verb::kRead:
                return IBV_WR_RDMA_READ;
            case Verb::kSend:
                return IBV_WR_SEND;
            case Verb::kSendImm:
                return IBV_WR_SEND_WITH_IMM;
            case Verb::kFetchAdd:
                return IBV_WR_ATOMIC_FETCH_AND_ADD;
            case Verb::kCompareSwap:
                return IBV_WR_ATOMIC_CMP_AND_SWP;
        }
        fail(kUsage, "no such verb");
    }
    void post(std::uint64_t message) {
        auto list = slots_.pieces(message, false);
        if (plan_.is_atomic()) list = {slots_.memory().sge(slots_.offset(message), 8)};
        ibv_send_wr work{};
        work.wr_id = message;
        work.opcode = opcode();
        work.send_flags = IBV_SEND_SIGNALED;
        if (plan_.size_of(message) <= plan_.inline_bytes && plan_.verb != Verb::kRead)
            work.send_flags |= IBV_SEND_INLINE;
        work.sg_list = list.data();
        work.num_sge = static_cast<int>(list.size());
        work.imm_data = htonl(static_cast<std::uint32_t>(message));
        if (plan_.transport == IBV_QPT_UD) {
            work.wr.ud = {ah_, remote_.qpn, kQkey};
        } else if (plan_.is_atomic()) {
            fill_atomic(work, message);
        } else {
            work.wr.rdma = {remote_.address + slots_.offset(message), remote_.rkey};
        }
        qp_.post(work);
    }
    // Atomics run in order on one QP, so the model knows the value that each will find.
    void fill_atomic(ibv_send_wr& work, std::uint64_t message) {
        work.wr.atomic.remote_addr = remote_.address;
        work.wr.atomic.rkey = remote_.rkey;
        work.wr.atomic.compare_add =
            plan_.verb == Verb::kFetchAdd ? model_.operand(message) : model_.compare(message);
        work.wr.atomic.swap = model_.operand(message);
        expected_.push_back(model_.value());
        model_.apply(message);
    }
    void take(std::uint64_t message) {
        const ibv_wc wc = cq_.wait(limit_);
        if (wc.wr_id != message) {
            fail(kWrongData, "work request %llu completed in place of %llu",
                 static_cast<unsigned long long>(wc.wr_id),
                 static_cast<unsigned long long>(message));
        }
        if (plan_.verb == Verb::kRead) slots_.check(message);
        if (plan_.is_atomic()) check_old_value(message);
    }
    void check_old_value(std::uint64_t message) {
        std::uint64_t found;
        std::memcpy(&found, slots_.memory().data() + slots_.offset(message), sizeof found);
        if (found != expected_[message]) {
            fail(kWrongData, "atomic %llu: expected old value 0x%llx, found 0x%llx",
                 static_cast<unsigned long long>(message),
                 static_cast<unsigned long long>(expected_[message]),
                 static_cast<unsigned long long>(found));
        }
    }

    AtomicModel model_;
    std::vector<std::uint64_t> expected_;
    ibv_ah* ah_ = nullptr;
};

void report(const Plan& plan, double seconds) {
    std::uint64_t bytes = 0;
    for (std::uint64_t message = 0; message < plan.messages; ++message)
        bytes += plan.size_of(message);
    std::printf("{\"verb\": \"%s\", \"messages\": %llu, \"bytes\": %llu, \"seconds\": %.3f}\n",
                name_of(plan.verb), static_cast<unsigned long long>(plan.messages),
                static_cast<unsigned long long>(bytes), seconds);
}

int run_responder(const Plan& plan, int socket) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Responder(plan, socket).run();
    return 0;
}

int run_requester(const Plan& plan, int socket) {
    const auto start = std::chrono::steady_clock::now();
    Requester(plan, socket).run();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    report(plan, took.count());
    return 0;
}

int run(const Plan& plan) {
    int sockets[2];
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), "socketpair");
    const pid_t child = fork();
    if (child == 0) {
        close(sockets[0]);
        std::_Exit(run_responder(plan, sockets[1]));
    }
    close(sockets[1]);
    run_requester(plan, sockets[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : kSetUp;
}

}  // namespace
}  // namespace rdmalab::programs

int main(int argc, char** argv) {
    return rdmalab::programs::run(rdmalab::programs::parse_plan(argc, argv));
}

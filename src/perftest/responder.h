// The receiving half: keeps receives posted and takes what arrives. Verbs that place data by
// themselves (write, read, atomics) need no responder.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "perftest/endpoint.h"

namespace rdmalab::perftest {

class Responder {
public:
    explicit Responder(Endpoint& endpoint);

    // Posts the first receives; before the peer may send.
    void prime();
    // Takes what has arrived and posts receives again; number of messages.
    int poll();

    std::uint64_t received() const { return received_; }
    std::uint64_t invalid() const { return invalid_; }

private:
    struct Lane {
        ibv_qp* qp = nullptr;
        std::vector<ibv_recv_wr> ring;
        std::vector<ibv_sge> sges;
        std::uint32_t next_list = 0;
        std::uint32_t used = 0;  // receives taken since the last list was posted
        std::uint64_t received = 0;
    };

    void post_list(Lane& lane);
    void check(Lane& lane, std::uint32_t index, const ibv_wc& completion);
    void report_invalid(std::uint32_t index, std::uint64_t number, const std::string& text);

    Endpoint& endpoint_;
    const Plan& plan_;
    std::uint32_t list_ = 1;   // receives of one call
    std::uint32_t lists_ = 1;  // per lane
    std::vector<Lane> lanes_;
    std::uint64_t received_ = 0, invalid_ = 0;
};

}  // namespace rdmalab::perftest

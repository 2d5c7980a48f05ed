// The shared memory of attached congestion control processes (pcc/pcc_abi.h).
#pragma once

#include <map>
#include <memory>
#include <string>

#include "card/card.h"
#include "card/host/shared_memory.h"

namespace rdmalab::card::host {

// What a process tells about itself in its AlgorithmPage, checked.
struct AlgorithmRow {
    bool is_counter = false;
    std::uint32_t algorithm = 0, id = 0, value = 0, initial = 0, min = 0, max = 0;
    std::uint32_t permissions = 0;
    std::string text;
};
struct CongestionProcess {
    CongestionProcessId id;
    pid_t pid = 0;
    std::string path, text;
    std::vector<AlgorithmRow> rows;
};

class CongestionProcesses {
public:
    explicit CongestionProcesses(Card& card) : card_(card) {}

    // EPROTO, EINVAL, ENODEV, and what Card::attach_congestion says. The memfd is `memory_fd`.
    Result<pcc::AttachReply> attach(pid_t pid, const pcc::AttachRequest& request, Instant now);
    void detach(CongestionProcessId id, Instant now);
    int memory_fd(CongestionProcessId id) const;

    std::vector<CongestionProcess> list() const;
    // Asks the process to set a parameter of its algorithm; returns the number of the request.
    Result<std::uint32_t> request_parameter(CongestionProcessId id, std::uint32_t algorithm,
                                            std::uint32_t parameter, std::uint32_t value);
    // The answer to a request: nothing while there is none.
    std::optional<Status> answer(CongestionProcessId id, std::uint32_t request) const;

private:
    struct Entry {
        pid_t pid = 0;
        std::unique_ptr<SharedMemory> memory;
        std::byte* base = nullptr;
        std::uint32_t requests = 0;
    };

    Card& card_;
    std::uint32_t next_id_ = 1;
    std::map<std::uint32_t, Entry> entries_;
};

}  // namespace rdmalab::card::host

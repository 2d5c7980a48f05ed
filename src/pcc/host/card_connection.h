// The way from a congestion control process to its card: socket, shared rings, bell.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "pcc/pcc_abi.h"

namespace rdmalab::pcc::host {

class CardConnection {
public:
    CardConnection() = default;
    ~CardConnection();
    CardConnection(const CardConnection&) = delete;
    CardConnection& operator=(const CardConnection&) = delete;

    // ENOENT: no card listens at `socket` (empty: the rule of card/host/admin.h). Others: what the
    // card says.
    Status attach(const std::string& socket, const AttachRequest& request);
    // The card lets the process go.
    void close();
    // The card has ended or has closed the connection.
    bool is_gone() const;

    PccPage& page() const { return *reinterpret_cast<PccPage*>(base_); }
    AlgorithmPage& algorithm() const;
    WorkerRings& rings(std::uint32_t worker) const;
    // After an answer was written.
    void ring_bell() const;

private:
    Status map(std::uint64_t size);

    std::atomic<int> socket_{-1};  // another thread may close it
    int memory_fd_ = -1, page_fd_ = -1, bell_ = -1;
    std::byte* base_ = nullptr;
    std::uint64_t size_ = 0;
    void* card_page_ = nullptr;
};

}  // namespace rdmalab::pcc::host

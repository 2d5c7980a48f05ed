// Memory that the card shares with its clients: one memfd per context for the rings, and the card
// page that all clients map read only.
//
// A context's memfd is sparse and has its full size from the start; the card maps all of it once,
// so that a thousand queues cost the card one mapping. Seals keep its size fixed: a client that
// could shrink it could crash the card (SIGBUS). A client that punches holes only finds zeros.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "card/card.h"
#include "card/host/descriptor.h"

namespace rdmalab::card::host {

class SharedMemory {
public:
    static constexpr std::uint64_t kSizeMax = 1ull << 34;  // a CQ of 4 M entries takes 256 MiB
    static constexpr std::uint64_t kSizeMin = 1ull << 24;

    static Result<std::unique_ptr<SharedMemory>> create(const std::string& name,
                                                        std::uint64_t size_max = kSizeMax);
    ~SharedMemory();
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;

    // Zeroed and page aligned. First fit.
    Result<MappedRegion> allocate(std::uint64_t length);
    // The memory goes back to the system; a later region at this place is zero again.
    void free(const abi::Region& region);

    int fd() const { return fd_.value(); }
    std::uint64_t size() const { return size_; }
    std::uint64_t used() const { return used_; }

private:
    SharedMemory() = default;
    void give_back(std::uint64_t offset, std::uint64_t length);

    UniqueFd fd_;
    std::byte* base_ = nullptr;
    std::uint64_t size_ = 0, used_ = 0;
    std::map<std::uint64_t, std::uint64_t> free_;  // offset -> length; neighbours are merged
};

class CardPageMemory {
public:
    static Result<std::unique_ptr<CardPageMemory>> create();
    ~CardPageMemory();
    CardPageMemory(const CardPageMemory&) = delete;
    CardPageMemory& operator=(const CardPageMemory&) = delete;

    abi::CardPage& page() { return *page_; }
    int fd() const { return fd_.value(); }

private:
    CardPageMemory() = default;
    UniqueFd fd_;
    abi::CardPage* page_ = nullptr;
};

}  // namespace rdmalab::card::host

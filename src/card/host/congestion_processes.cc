#include "card/host/congestion_processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace rdmalab::card::host {
namespace {

// Text that another process may be writing to at this moment.
template <std::size_t Size>
std::string text_of(const char (&from)[Size]) {
    char copy[Size];
    std::memcpy(copy, from, Size);
    copy[Size - 1] = 0;
    return copy;
}

std::optional<std::uint32_t> find_device(const CardConfig& config, const std::string& name) {
    for (std::uint32_t i = 0; i < config.functions.size(); ++i)
        if (config.functions[i].device == name) return i;
    return std::nullopt;
}

Error check(const pcc::AttachRequest& request) {
    if (request.version != pcc::kAbiVersion) {
        return {EPROTO, fmt::format("the version of the congestion control rings: expected {} "
                                    "(that of the card), found {}; card and program are of "
                                    "different builds",
                                    pcc::kAbiVersion, request.version)};
    }
    if (request.workers == 0 || request.workers > pcc::kWorkerMax) {
        return {EINVAL, fmt::format("workers: expected 1 to {}, found {}", pcc::kWorkerMax,
                                    request.workers)};
    }
    return {};
}

}  // namespace

Result<pcc::AttachReply> CongestionProcesses::attach(pid_t pid, const pcc::AttachRequest& request,
                                                     Instant now) {
    if (const Error error = check(request); error.code != 0) return error;
    const std::string name = text_of(request.device);
    const auto device = find_device(card_.config(), name);
    if (!device) return Error{ENODEV, fmt::format("this card has no device \"{}\"", name)};
    const FunctionConfig& function = card_.config().functions[*device];
    if (function.kind != FunctionKind::kPf) {
        return Error{EOPNOTSUPP, fmt::format("congestion control is programmed by the PF: expected "
                                             "{}, found {}",
                                             function.pf_device, name)};
    }
    const std::uint64_t size = pcc::shared_size(request.workers);
    auto memory = SharedMemory::create("rdmalab-pcc", size);
    if (!memory.ok()) return memory.error();
    auto region = (*memory)->allocate(size);
    if (!region.ok()) return region.error();
    const CongestionProcessId id{next_id_++};
    Entry& entry = entries_[id.value];
    entry = {pid, std::move(*memory), region->base, 0};
    const Status status =
        card_.attach_congestion(id, *device, request.workers,
                                (request.flags & pcc::kAttachReportOnly) != 0, entry.base, now);
    if (!status) {
        entries_.erase(id.value);
        return status.error();
    }
    pcc::AttachReply reply;
    reply.size = size;
    reply.process = id.value;
    return reply;
}

void CongestionProcesses::detach(CongestionProcessId id, Instant now) {
    card_.detach_congestion(id, now);
    entries_.erase(id.value);
}

int CongestionProcesses::memory_fd(CongestionProcessId id) const {
    return entries_.at(id.value).memory->fd();
}

std::vector<CongestionProcess> CongestionProcesses::list() const {
    std::vector<CongestionProcess> all;
    for (const auto& [id, entry] : entries_) {
        const pcc::AlgorithmPage& page = pcc::algorithm_page_of(entry.base);
        CongestionProcess& process = all.emplace_back();
        process.id = CongestionProcessId{id};
        process.pid = entry.pid;
        process.path = text_of(page.path);
        process.text = text_of(page.text);
        const std::uint32_t count =
            std::min(page.row_count.load(std::memory_order_acquire), pcc::kAlgorithmRowsMax);
        for (std::uint32_t i = 0; i < count; ++i) {
            const pcc::AlgorithmRow& row = page.rows[i];
            process.rows.push_back({row.is_counter != 0, row.algorithm, row.id, row.value,
                                    row.initial, row.min, row.max, row.permissions,
                                    text_of(row.text)});
        }
    }
    return all;
}

Result<std::uint32_t> CongestionProcesses::request_parameter(CongestionProcessId id,
                                                             std::uint32_t algorithm,
                                                             std::uint32_t parameter,
                                                             std::uint32_t value) {
    const auto found = entries_.find(id.value);
    if (found == entries_.end()) return Error{ENOENT, "no such congestion control process"};
    pcc::AlgorithmPage& page = pcc::algorithm_page_of(found->second.base);
    if (page.answered.load(std::memory_order_acquire) != found->second.requests) {
        return Error{EBUSY, "the process has not answered the request before this one"};
    }
    page.algorithm = algorithm;
    page.id = parameter;
    page.value = value;
    page.requested.store(++found->second.requests, std::memory_order_release);
    return found->second.requests;
}

std::optional<Status> CongestionProcesses::answer(CongestionProcessId id,
                                                  std::uint32_t request) const {
    const auto found = entries_.find(id.value);
    if (found == entries_.end()) return Status(Error{ENOENT, "the process has ended"});
    const pcc::AlgorithmPage& page = pcc::algorithm_page_of(found->second.base);
    if (page.answered.load(std::memory_order_acquire) != request) return std::nullopt;
    if (page.status == 0) return Status();
    return Status(Error{page.status < 0 ? EIO : page.status, text_of(page.error)});
}

}  // namespace rdmalab::card::host

#include "card/host/attachments.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <climits>

#include "card/host/capture.h"
#include "card/host/network.h"
#include "card/host/uplinks.h"

namespace rdmalab::card::host {

Result<Attachments::Ids> Attachments::create(pid_t pid, UniqueFd& async_reader) {
    auto memory = SharedMemory::create(fmt::format("rdmalab-{}", pid));
    if (!memory.ok()) return memory.error();
    const OwnerId owner{next_id_};
    attachments_[owner].memory = std::move(*memory);
    auto ids = join(owner, pid, async_reader);
    if (!ids.ok()) attachments_.erase(owner);
    return ids;
}

Result<Attachments::Ids> Attachments::join(OwnerId owner, pid_t pid, UniqueFd& async_reader) {
    auto pipe = make_pipe();
    if (!pipe.ok()) return pipe.error();
    const Ids ids{owner, SpaceId{next_id_++}};
    attachments_.at(owner).members.push_back(
        {ids.space,
         std::make_unique<RecordPipe<abi::AsyncEventRecord>>(std::move(pipe->write_end), poller_)});
    memory_.add_process(ids.space, pid);
    async_reader = std::move(pipe->read_end);
    return ids;
}

void Attachments::leave(const Ids& ids) {
    Attachment* attachment = find(ids.owner);
    if (attachment == nullptr) return;
    memory_.remove(ids.space);
    std::erase_if(attachment->members,
                  [&](const Attachment::Member& member) { return member.space == ids.space; });
}

bool Attachments::has_others(const Ids& ids) const {
    const auto found = attachments_.find(ids.owner);
    return found != attachments_.end() && found->second.members.size() > 1;
}

std::optional<OwnerId> Attachments::find_by_memory(int fd) const {
    struct stat wanted {};
    if (::fstat(fd, &wanted) != 0) return std::nullopt;
    for (const auto& [owner, attachment] : attachments_) {
        struct stat own {};
        if (::fstat(attachment.memory->fd(), &own) != 0) continue;
        if (own.st_dev == wanted.st_dev && own.st_ino == wanted.st_ino) return owner;
    }
    return std::nullopt;
}

void Attachments::destroy(OwnerId owner) {
    const auto found = attachments_.find(owner);
    if (found == attachments_.end()) return;
    for (const Attachment::Member& member : found->second.members) memory_.remove(member.space);
    dead_.push_back(std::move(found->second.memory));
    attachments_.erase(found);
}

int Attachments::memory_fd(OwnerId owner) const {
    const auto found = attachments_.find(owner);
    return found == attachments_.end() ? -1 : found->second.memory->fd();
}

void Attachments::add_channel(OwnerId owner, std::uint32_t channel, UniqueFd write_end) {
    if (Attachment* attachment = find(owner)) {
        attachment->channels[channel] =
            std::make_unique<RecordPipe<abi::CompletionEvent>>(std::move(write_end), poller_);
    }
}

void Attachments::remove_channel(OwnerId owner, std::uint32_t channel) {
    if (Attachment* attachment = find(owner)) attachment->channels.erase(channel);
}

std::uint64_t Attachments::shared_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& [owner, attachment] : attachments_) bytes += attachment.memory->used();
    return bytes;
}

Result<MappedRegion> Attachments::allocate_region(OwnerId owner, std::uint64_t length) {
    Attachment* attachment = find(owner);
    if (!attachment) return Error{ENOMEM, "no such attachment"};
    return attachment->memory->allocate(length);
}

void Attachments::free_region(OwnerId owner, const MappedRegion& region) {
    if (Attachment* attachment = find(owner)) attachment->memory->free(region.region);
}

void Attachments::notify_channel(OwnerId owner, std::uint32_t channel,
                                 const abi::CompletionEvent& event) {
    Attachment* attachment = find(owner);
    if (!attachment) return;
    const auto found = attachment->channels.find(channel);
    if (found != attachment->channels.end()) found->second->push(event);
}

void Attachments::notify_async(OwnerId owner, const abi::AsyncEventRecord& event) {
    Attachment* attachment = find(owner);
    if (attachment == nullptr) return;
    for (const Attachment::Member& member : attachment->members) member.async->push(event);
}

void Attachments::wake(std::atomic<std::uint32_t>& word) {
    // Not FUTEX_PRIVATE: the sleepers are in another process.
    ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Attachments::captured(TapPoint point, const wire::Frame& frame, bool inbound) {
    if (captures_) captures_->record(point, frame, inbound);
}

bool Attachments::deliver_to_netdev(std::uint32_t function, const wire::Frame& frame) {
    return network_ != nullptr && network_->deliver(function, frame);
}

std::size_t Attachments::send_by_uplink(std::uint32_t port, std::span<const UplinkBurst> bursts) {
    return uplinks_ == nullptr ? bursts.size() : uplinks_->send(port, bursts);
}

std::optional<NeighbourPort::Route> Attachments::find_route(const Gid& peer) {
    return uplinks_ == nullptr ? std::nullopt : uplinks_->find_route(peer);
}

Result<MacAddress> Attachments::find_neighbour(std::uint32_t function, const Gid& source,
                                               const Gid& peer) {
    if (uplinks_ == nullptr) return HostPort::find_neighbour(function, source, peer);
    return uplinks_->find_neighbour(function, peer);
}

void Attachments::congestion_process_failed(CongestionProcessId id, pcc::ErrorReason reason) {
    const char* const why = reason == pcc::ErrorReason::kNoProgress ? "it makes no progress"
                            : reason == pcc::ErrorReason::kBadRate
                                ? "it answered a rate of 0 or above line rate"
                                : "its rings are broken";
    spdlog::error("congestion control process {} was given up: {}", id.value, why);
}

void Attachments::notify_cm(CmSessionId session, std::uint32_t channel,
                            const abi::CmEventRecord& record) {
    cm_sessions_.notify(session, channel, record);
}

std::vector<abi::CmEventRecord> Attachments::withdraw_cm(CmSessionId session, std::uint32_t channel,
                                                         std::uint32_t id) {
    return cm_sessions_.withdraw(session, channel, id);
}

Attachments::Attachment* Attachments::find(OwnerId owner) {
    const auto found = attachments_.find(owner);
    return found == attachments_.end() ? nullptr : &found->second;
}

}  // namespace rdmalab::card::host

#include "card/host/cm_sessions.h"

namespace rdmalab::card::host {

CmSessionId CmSessions::create() {
    const CmSessionId session{next_++};
    sessions_.try_emplace(session);
    return session;
}

void CmSessions::add_channel(CmSessionId session, std::uint32_t channel, UniqueFd write_end) {
    sessions_[session][channel] = std::make_unique<CmPipe>(std::move(write_end), poller_);
}

void CmSessions::remove_channel(CmSessionId session, std::uint32_t channel) {
    const auto found = sessions_.find(session);
    if (found != sessions_.end()) found->second.erase(channel);
}

CmPipe* CmSessions::find(CmSessionId session, std::uint32_t channel) {
    const auto found = sessions_.find(session);
    if (found == sessions_.end()) return nullptr;
    const auto pipe = found->second.find(channel);
    return pipe == found->second.end() ? nullptr : pipe->second.get();
}

void CmSessions::notify(CmSessionId session, std::uint32_t channel,
                        const abi::CmEventRecord& record) {
    if (CmPipe* const pipe = find(session, channel)) pipe->push(record);
}

std::vector<abi::CmEventRecord> CmSessions::withdraw(CmSessionId session, std::uint32_t channel,
                                                     std::uint32_t id) {
    CmPipe* const pipe = find(session, channel);
    return pipe != nullptr ? pipe->withdraw(id) : std::vector<abi::CmEventRecord>{};
}

}  // namespace rdmalab::card::host

// The event channels of the clients that have a CM session (cm_abi.h).
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "card/cm_host.h"
#include "card/host/cm_pipe.h"

namespace rdmalab::card::host {

class CmSessions {
public:
    explicit CmSessions(Poller& poller) : poller_(poller) {}

    CmSessionId create();
    void destroy(CmSessionId session) { sessions_.erase(session); }
    void add_channel(CmSessionId session, std::uint32_t channel, UniqueFd write_end);
    void remove_channel(CmSessionId session, std::uint32_t channel);

    void notify(CmSessionId session, std::uint32_t channel, const abi::CmEventRecord& record);
    std::vector<abi::CmEventRecord> withdraw(CmSessionId session, std::uint32_t channel,
                                             std::uint32_t id);
    std::size_t count() const { return sessions_.size(); }

private:
    using Channels = std::unordered_map<std::uint32_t, std::unique_ptr<CmPipe>>;
    CmPipe* find(CmSessionId session, std::uint32_t channel);

    Poller& poller_;
    std::uint32_t next_ = 1;
    std::unordered_map<CmSessionId, Channels> sessions_;
};

}  // namespace rdmalab::card::host

// The connection manager of a card as its clients see it (cm_abi.h): sessions, ids, ports, events;
// behind them one transport::Cm per function, which speaks to the peers.
//
// Sans-IO like the card. The card calls handle_frame for frames to QP 1, polls frames of each
// function as it polls its engine, and handle_timeout when next_deadline() has come; the host opens
// and closes sessions and hands over their requests. Events leave through CmHostPort within these
// calls.
//
// Whatever a client sends is checked; an id of another session is as good as none (EINVAL). Every
// step costs the same whatever the number of ids; closing a session costs its own ids.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "card/card.h"
#include "card/cm_directory.h"
#include "card/cm_host.h"
#include "card/cm_id.h"
#include "card/cm_ports.h"
#include "transport/cm.h"

namespace rdmalab::card {

class CmService {
public:
    CmService(const CardConfig& config, CmHostPort& host);
    CmService(const CmService&) = delete;
    CmService& operator=(const CmService&) = delete;

    // --- Sessions. `visible`: the devices of the client's network namespace. The reply of kOpen is
    // an abi::CmOpenReply; the reply of kCreateChannel lacks the descriptor, which is the host's.
    ControlReply open_session(CmSessionId session, DeviceSet visible, ByteView body);
    void close_session(CmSessionId session, Instant now);
    ControlReply handle_request(CmSessionId session, abi::CmOp op, ByteView body, Instant now);

    // --- The wire.
    void handle_frame(std::uint32_t function, const wire::Frame& frame, Instant now);
    bool poll_frame(std::uint32_t function, wire::Frame& out);
    void handle_timeout(Instant now);
    Instant next_deadline() const;
    bool has_work(std::uint32_t function) const { return cms_[function]->has_work(); }

    // --- Facts.
    const transport::CmCounters& counters(std::uint32_t function) const {
        return cms_[function]->counters();
    }
    using Counts = CmCounts;
    Counts counts() const;
    DeviceSet all_devices() const { return directory_.all(); }

private:
    // cm_service.cc: sessions, channels, ids
    template <class Request>
    ControlReply call(CmSession& session, ByteView body,
                      ControlReply (CmService::*method)(CmSession&, const Request&));
    ControlReply create_channel(CmSession& session);
    ControlReply destroy_channel(CmSession& session, const abi::HandleRequest& request);
    ControlReply create_id(CmSession& session, const abi::CmCreateIdRequest& request);
    ControlReply destroy_id(CmSession& session, const abi::CmDestroyIdRequest& request);
    ControlReply adopt(CmSession& session, const abi::CmAdoptRequest& request);
    ControlReply migrate_id(CmSession& session, const abi::CmMigrateRequest& request);
    ControlReply query(CmSession& session, const abi::HandleRequest& request);
    CmId* find(const CmSession& session, std::uint32_t handle);
    CmId* find_any(std::uint32_t handle);
    CmId* new_id(CmSession& session, std::uint32_t channel);
    void remove_id(CmId& id);
    void withdraw_waiting(CmId& listener, const std::vector<abi::CmEventRecord>& withdrawn);
    bool use_channel(CmSession& session, std::uint32_t channel);
    void leave_channel(CmSession& session, std::uint32_t channel);
    transport::Cm& cm_of(const CmId& id) { return *cms_[id.place->device]; }

    // cm_bind.cc: addresses, ports, options
    ControlReply bind(CmSession& session, const abi::CmBindRequest& request);
    ControlReply resolve_addr(CmSession& session, const abi::CmResolveAddrRequest& request);
    ControlReply resolve_route(CmSession& session, const abi::CmResolveRouteRequest& request);
    ControlReply listen(CmSession& session, const abi::CmListenRequest& request);
    ControlReply set_option(CmSession& session, const abi::CmSetOptionRequest& request);
    ControlReply join_multicast(CmSession& session, const abi::CmJoinMcastRequest& request);
    ControlReply leave_multicast(CmSession& session, const abi::CmLeaveMcastRequest& request);
    Error bind_to(CmId& id, const CmEndpoint& local);
    int start_listening(CmId& id);
    void stop_listening(CmId& id);

    // cm_connect.cc: connections
    ControlReply connect(CmSession& session, const abi::CmConnectRequest& request);
    ControlReply accept(CmSession& session, const abi::CmConnectRequest& request);
    ControlReply reject(CmSession& session, const abi::CmRejectRequest& request);
    ControlReply establish(CmSession& session, const abi::HandleRequest& request);
    ControlReply disconnect(CmSession& session, const abi::HandleRequest& request);
    ControlReply notify(CmSession& session, const abi::CmNotifyRequest& request);
    ControlReply init_qp_attr(CmSession& session, const abi::CmInitQpAttrRequest& request);
    Result<transport::CmConnId> start_connection(CmId& id, const abi::CmConnectRequest& request);
    void attach(CmId& id, transport::CmConnId connection);
    void detach(CmId& id);

    // cm_events.cc: what the Cms report, and what the clients hear
    void drain(std::uint32_t function);
    void handle_event(std::uint32_t function, const transport::CmEvent& event);
    void handle_new_connection(std::uint32_t function, const transport::CmEvent& event);
    void send_event(CmId& id, abi::CmEventType type, int status = 0, const std::string& text = {});
    void send(CmId& id, const abi::CmEventRecord& record);
    abi::CmEventRecord record_of(const CmId& id, abi::CmEventType type) const;
    abi::AhAttributes address_of(const CmId& id, const Gid& peer, std::uint8_t gid_index) const;
    abi::CmIdInfo info_of(const CmId& id) const;

    CmHostPort& host_;
    CmDirectory directory_;
    CmPorts ports_;
    std::vector<std::unique_ptr<transport::Cm>> cms_;  // by function
    std::vector<std::uint64_t> guids_;                 // by function
    std::unordered_map<CmSessionId, std::unique_ptr<CmSession>> sessions_;
    std::unordered_map<std::uint32_t, std::unique_ptr<CmId>> ids_;
    std::vector<std::unordered_map<transport::CmConnId, CmId*>> connections_;  // by function
    std::uint32_t next_handle_ = 1;
    Instant now_;  // of the call that is being handled
};

}  // namespace rdmalab::card

// The control calls of an attached client (ring_abi.h, kQueryGids to kDetachMcast): decodes,
// checks, asks the engine, makes and frees the shared rings, answers. Every failure leaves all as
// it was.
//
// Who may do what: a client names objects by handle; the card looks a handle up in the client's own
// context, the engine checks the owner of those that only it keeps (PD, MR, AH). A handle of
// somebody else is as good as none: EINVAL.
#pragma once

#include "card/address_book.h"
#include "card/card.h"
#include "card/objects.h"
#include "card/rule_abi.h"

namespace rdmalab::card {

class Control {
public:
    Control(HostPort& host, const AddressBook& addresses) : host_(host), addresses_(addresses) {}

    ControlReply handle(Context& context, abi::Op op, ByteView body, Instant now);
    // The client is gone: everything it had is freed.
    void release(Context& context);

private:
    // Calls `method` with the body taken as its request, if it has the length of one.
    template <class Request>
    ControlReply call_with_body(Context& context,
                                ControlReply (Control::*method)(Context&, const Request&),
                                ByteView body);
    ControlReply handle_memory(Context& context, abi::Op op, ByteView body);
    ControlReply handle_rules(Context& context, abi::Op op, ByteView body);

    ControlReply query_gids(Context& context);
    ControlReply alloc_pd(Context& context);
    ControlReply query_pd(Context& context, const abi::HandleRequest& request);
    ControlReply dealloc_pd(Context& context, const abi::HandleRequest& request);
    ControlReply reg_mr(Context& context, const abi::RegMrRequest& request);
    ControlReply dereg_mr(Context& context, const abi::HandleRequest& request);
    ControlReply rereg_mr(Context& context, const abi::ReregMrRequest& request);
    ControlReply query_mr(Context& context, const abi::HandleRequest& request);
    ControlReply alloc_null_mr(Context& context, const abi::HandleRequest& request);
    ControlReply alloc_mw(Context& context, const abi::AllocMwRequest& request);
    ControlReply dealloc_mw(Context& context, const abi::HandleRequest& request);
    ControlReply alloc_dm(Context& context, const abi::AllocDmRequest& request);
    ControlReply free_dm(Context& context, const abi::HandleRequest& request);
    ControlReply query_dm(Context& context, const abi::HandleRequest& request);
    ControlReply reg_dm_mr(Context& context, const abi::RegDmMrRequest& request);
    ControlReply open_xrcd(Context& context, const abi::OpenXrcdRequest& request);
    ControlReply close_xrcd(Context& context, const abi::HandleRequest& request);
    ControlReply open_qp(Context& context, const abi::OpenQpRequest& request);
    ControlReply create_channel(Context& context);
    ControlReply destroy_channel(Context& context, const abi::HandleRequest& request);
    ControlReply create_cq(Context& context, const abi::CreateCqRequest& request);
    ControlReply resize_cq(Context& context, const abi::ResizeCqRequest& request);
    ControlReply modify_cq(Context& context, const abi::ModifyCqRequest& request);
    ControlReply resolve_address(Context& context, const abi::AhAttributes& request);
    ControlReply destroy_cq(Context& context, const abi::HandleRequest& request);
    ControlReply create_srq(Context& context, const abi::CreateSrqRequest& request);
    ControlReply modify_srq(Context& context, const abi::ModifySrqRequest& request);
    ControlReply query_srq(Context& context, const abi::HandleRequest& request);
    ControlReply destroy_srq(Context& context, const abi::HandleRequest& request);
    ControlReply create_qp(Context& context, const abi::CreateQpRequest& request);
    ControlReply modify_qp(Context& context, const abi::ModifyQpRequest& request);
    ControlReply query_qp(Context& context, const abi::HandleRequest& request);
    ControlReply destroy_qp(Context& context, const abi::HandleRequest& request);
    ControlReply create_ah(Context& context, const abi::CreateAhRequest& request);
    ControlReply destroy_ah(Context& context, const abi::HandleRequest& request);
    ControlReply attach_multicast(Context& context, const abi::McastRequest& request);
    ControlReply detach_multicast(Context& context, const abi::McastRequest& request);

    ControlReply create_flow(Context& context, const abi::CreateFlowRequest& request);
    ControlReply destroy_flow(Context& context, const abi::HandleRequest& request);
    ControlReply create_counters(Context& context);
    ControlReply destroy_counters(Context& context, const abi::HandleRequest& request);
    ControlReply read_counters(Context& context, const abi::HandleRequest& request);
    ControlReply create_hash_qp(Context& context, const abi::CreateHashQpRequest& request);

    bool allocate(OwnerId owner, std::uint64_t length, MappedRegion& out);
    void free(OwnerId owner, MappedRegion& region);
    bool allocate_rings(Context& context, QpRecord& qp, const abi::CreateQpReply& shape,
                        transport::QpType type);
    void free_qp(Context& context, QpRecord& qp);
    int take_queues(Context& context, const abi::CreateQpRequest& request, QpRecord& qp);
    int release_target(Context& context, QpRecord& qp);
    void pass_on_targets(Context& context);

    HostPort& host_;
    const AddressBook& addresses_;
    std::uint32_t next_generation_ = 1;
    Instant now_;  // of the call that is being handled
};

}  // namespace rdmalab::card

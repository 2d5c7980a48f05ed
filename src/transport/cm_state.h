// The states of a connection and what each input does in them, as one table (IBTA vol. 1, 12.9.5 to
// 12.9.7, figures 138 and 139; SIDR: 12.11). The CM looks a row up, carries out its action and
// takes its next state; nothing else changes a state.
//
// Where the card differs from the figures:
// - A DREQ is answered by a DREP at once, not when the application gets to it; so there is no state
//   "DREQ received".
// - An application that gives a connection up, or dies, leaves it to the CM, which ends it towards
//   the peer: REJ while the peer repeats its message until it gets an answer, DREQ, which we
//   repeat, once the peer may be established (that is, from our REP on).
// - A REJ for an established connection ends it.
// - After a REJ was sent the state `Rejected` answers repeated requests with the same REJ for a
//   while; a lost REJ would otherwise look like a new request. Likewise `Timewait`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rdmalab::transport {

enum class CmState : std::uint8_t {
    kIdle,  // over, or not begun: nothing is sent or expected
    kReqSent,
    kMraReqReceived,
    kRepReceived,
    kMraRepSent,
    kReqReceived,
    kMraReqSent,
    kRepSent,
    kMraRepReceived,
    kEstablished,
    kDreqSent,
    kTimewait,
    kRejected,
    kSidrReqSent,
    kSidrReqReceived,
    kSidrAnswered,
};
inline constexpr std::size_t kCmStateCount = 16;

enum class CmInput : std::uint8_t {
    // messages of the peer
    kReq,  // again
    kMraOfReq,
    kMraOfRep,
    kRep,
    kRtu,
    kRej,
    kDreq,
    kDrep,
    kLap,
    kSidrReq,  // again
    kSidrRep,
    // the timer of the connection
    kTimeout,  // and retries are left
    kGaveUp,   // no retry is left
    // the user
    kAccept,
    kReject,
    kEstablish,
    kDisconnect,
    kNotify,   // a message arrived on the QP: the RTU was lost
    kRelease,  // the id is destroyed
};
inline constexpr std::size_t kCmInputCount = 19;

enum class CmAction : std::uint8_t {
    kIgnore,  // a message that means nothing here; a call that succeeds and does nothing
    kRefuse,  // a call that makes no sense here: EINVAL
    kResend,  // the last message once more
    kSendRep,
    kSendRtu,
    kSendMra,
    kSendRej,          // as the user says
    kSendRejTimeout,   // with our GUID: the peer may not know our communication id
    kSendRejConsumer,  // on behalf of a user that is gone
    kSendRejStale,
    kSendDreq,
    kAnswerDreq,  // DREP
    kAnswerLap,   // APR: there is one path only
    kSendSidrRep,
    kSendSidrReject,
    kExtend,  // wait as long as the MRA says
    kTakeRep,
    kReportEstablished,
    kReportRejected,
    kReportUnreachable,  // and REJ, reason timeout
    kReportServiceUnreachable,
    kReportServiceReply,
    kTakeDreq,  // DREP, and the user is told
    kReportDisconnected,
    kReportTimewaitExit,
};
inline constexpr std::size_t kCmActionCount = 25;

struct CmStep {
    CmAction action;
    CmState next;
};

CmStep cm_step(CmState state, CmInput input);

const char* to_string(CmState state);
const char* to_string(CmInput input);
const char* to_string(CmAction action);

}  // namespace rdmalab::transport

#include "transport/cm_state.h"

#include <cassert>

namespace rdmalab::transport {
namespace {

using A = CmAction;
using I = CmInput;
using S = CmState;

struct Row {
    CmState state;
    CmInput input;
    CmAction action;
    CmState next;
};

// What is not listed: messages, timers and kDisconnect are ignored, the other calls refused, and
// kRelease only lets the connection run its course.
constexpr Row kRows[] = {
    // Active side.
    {S::kReqSent, I::kMraOfReq, A::kExtend, S::kMraReqReceived},
    {S::kReqSent, I::kRep, A::kTakeRep, S::kRepReceived},
    {S::kReqSent, I::kRej, A::kReportRejected, S::kIdle},
    {S::kReqSent, I::kTimeout, A::kResend, S::kReqSent},
    {S::kReqSent, I::kGaveUp, A::kReportUnreachable, S::kIdle},
    {S::kReqSent, I::kRelease, A::kSendRejTimeout, S::kIdle},

    {S::kMraReqReceived, I::kMraOfReq, A::kExtend, S::kMraReqReceived},
    {S::kMraReqReceived, I::kRep, A::kTakeRep, S::kRepReceived},
    {S::kMraReqReceived, I::kRej, A::kReportRejected, S::kIdle},
    {S::kMraReqReceived, I::kTimeout, A::kResend, S::kMraReqReceived},
    {S::kMraReqReceived, I::kGaveUp, A::kReportUnreachable, S::kIdle},
    {S::kMraReqReceived, I::kRelease, A::kSendRejTimeout, S::kIdle},

    {S::kRepReceived, I::kRep, A::kSendMra, S::kMraRepSent},
    {S::kRepReceived, I::kRej, A::kReportRejected, S::kIdle},
    {S::kRepReceived, I::kDreq, A::kTakeDreq, S::kTimewait},
    {S::kRepReceived, I::kEstablish, A::kSendRtu, S::kEstablished},
    {S::kRepReceived, I::kReject, A::kSendRej, S::kRejected},
    {S::kRepReceived, I::kRelease, A::kSendRejConsumer, S::kRejected},

    {S::kMraRepSent, I::kRep, A::kSendMra, S::kMraRepSent},
    {S::kMraRepSent, I::kRej, A::kReportRejected, S::kIdle},
    {S::kMraRepSent, I::kDreq, A::kTakeDreq, S::kTimewait},
    {S::kMraRepSent, I::kEstablish, A::kSendRtu, S::kEstablished},
    {S::kMraRepSent, I::kReject, A::kSendRej, S::kRejected},
    {S::kMraRepSent, I::kRelease, A::kSendRejConsumer, S::kRejected},

    // Passive side.
    {S::kReqReceived, I::kReq, A::kSendMra, S::kMraReqSent},
    {S::kReqReceived, I::kRej, A::kReportRejected, S::kIdle},
    {S::kReqReceived, I::kAccept, A::kSendRep, S::kRepSent},
    {S::kReqReceived, I::kReject, A::kSendRej, S::kRejected},
    {S::kReqReceived, I::kRelease, A::kSendRejConsumer, S::kRejected},

    {S::kMraReqSent, I::kReq, A::kSendMra, S::kMraReqSent},
    {S::kMraReqSent, I::kRej, A::kReportRejected, S::kIdle},
    {S::kMraReqSent, I::kAccept, A::kSendRep, S::kRepSent},
    {S::kMraReqSent, I::kReject, A::kSendRej, S::kRejected},
    {S::kMraReqSent, I::kRelease, A::kSendRejConsumer, S::kRejected},

    {S::kRepSent, I::kReq, A::kResend, S::kRepSent},
    {S::kRepSent, I::kMraOfRep, A::kExtend, S::kMraRepReceived},
    {S::kRepSent, I::kRtu, A::kReportEstablished, S::kEstablished},
    {S::kRepSent, I::kRej, A::kReportRejected, S::kIdle},
    {S::kRepSent, I::kDreq, A::kTakeDreq, S::kTimewait},
    {S::kRepSent, I::kLap, A::kAnswerLap, S::kRepSent},
    {S::kRepSent, I::kTimeout, A::kResend, S::kRepSent},
    {S::kRepSent, I::kGaveUp, A::kReportUnreachable, S::kIdle},
    {S::kRepSent, I::kNotify, A::kReportEstablished, S::kEstablished},
    {S::kRepSent, I::kDisconnect, A::kSendDreq, S::kDreqSent},
    {S::kRepSent, I::kRelease, A::kSendDreq, S::kDreqSent},

    {S::kMraRepReceived, I::kReq, A::kResend, S::kMraRepReceived},
    {S::kMraRepReceived, I::kMraOfRep, A::kExtend, S::kMraRepReceived},
    {S::kMraRepReceived, I::kRtu, A::kReportEstablished, S::kEstablished},
    {S::kMraRepReceived, I::kRej, A::kReportRejected, S::kIdle},
    {S::kMraRepReceived, I::kDreq, A::kTakeDreq, S::kTimewait},
    {S::kMraRepReceived, I::kLap, A::kAnswerLap, S::kMraRepReceived},
    {S::kMraRepReceived, I::kTimeout, A::kResend, S::kMraRepReceived},
    {S::kMraRepReceived, I::kGaveUp, A::kReportUnreachable, S::kIdle},
    {S::kMraRepReceived, I::kNotify, A::kReportEstablished, S::kEstablished},
    {S::kMraRepReceived, I::kDisconnect, A::kSendDreq, S::kDreqSent},
    {S::kMraRepReceived, I::kRelease, A::kSendDreq, S::kDreqSent},

    // Both sides. A repeated REP means that the RTU, which is still the last message, was lost.
    {S::kEstablished, I::kRep, A::kResend, S::kEstablished},
    {S::kEstablished, I::kRej, A::kReportDisconnected, S::kTimewait},
    {S::kEstablished, I::kDreq, A::kTakeDreq, S::kTimewait},
    {S::kEstablished, I::kLap, A::kAnswerLap, S::kEstablished},
    {S::kEstablished, I::kNotify, A::kIgnore, S::kEstablished},
    {S::kEstablished, I::kDisconnect, A::kSendDreq, S::kDreqSent},
    {S::kEstablished, I::kRelease, A::kSendDreq, S::kDreqSent},

    {S::kDreqSent, I::kReq, A::kSendRejStale, S::kDreqSent},
    {S::kDreqSent, I::kRej, A::kReportDisconnected, S::kTimewait},
    {S::kDreqSent, I::kDreq, A::kTakeDreq, S::kTimewait},
    {S::kDreqSent, I::kDrep, A::kReportDisconnected, S::kTimewait},
    {S::kDreqSent, I::kTimeout, A::kResend, S::kDreqSent},
    {S::kDreqSent, I::kGaveUp, A::kReportDisconnected, S::kTimewait},

    {S::kTimewait, I::kReq, A::kSendRejStale, S::kTimewait},
    {S::kTimewait, I::kDreq, A::kAnswerDreq, S::kTimewait},
    {S::kTimewait, I::kTimeout, A::kReportTimewaitExit, S::kIdle},
    {S::kTimewait, I::kGaveUp, A::kReportTimewaitExit, S::kIdle},

    {S::kRejected, I::kReq, A::kResend, S::kRejected},
    {S::kRejected, I::kRep, A::kResend, S::kRejected},
    {S::kRejected, I::kTimeout, A::kIgnore, S::kIdle},
    {S::kRejected, I::kGaveUp, A::kIgnore, S::kIdle},

    // Service id resolution.
    {S::kSidrReqSent, I::kSidrRep, A::kReportServiceReply, S::kIdle},
    {S::kSidrReqSent, I::kTimeout, A::kResend, S::kSidrReqSent},
    {S::kSidrReqSent, I::kGaveUp, A::kReportServiceUnreachable, S::kIdle},
    {S::kSidrReqSent, I::kRelease, A::kIgnore, S::kIdle},

    {S::kSidrReqReceived, I::kAccept, A::kSendSidrRep, S::kSidrAnswered},
    {S::kSidrReqReceived, I::kReject, A::kSendSidrRep, S::kSidrAnswered},
    {S::kSidrReqReceived, I::kRelease, A::kSendSidrReject, S::kSidrAnswered},

    {S::kSidrAnswered, I::kSidrReq, A::kResend, S::kSidrAnswered},
    {S::kSidrAnswered, I::kTimeout, A::kIgnore, S::kIdle},
    {S::kSidrAnswered, I::kGaveUp, A::kIgnore, S::kIdle},
};

using Table = std::array<std::array<CmStep, kCmInputCount>, kCmStateCount>;

constexpr bool is_refused_by_default(CmInput input) {
    return input == I::kAccept || input == I::kReject || input == I::kEstablish ||
           input == I::kNotify;
}

constexpr Table make_table() {
    Table table{};
    for (std::size_t state = 0; state < kCmStateCount; ++state)
        for (std::size_t input = 0; input < kCmInputCount; ++input)
            table[state][input] = {
                is_refused_by_default(static_cast<CmInput>(input)) ? A::kRefuse : A::kIgnore,
                static_cast<CmState>(state)};
    for (const Row& row : kRows)
        table[static_cast<std::size_t>(row.state)][static_cast<std::size_t>(row.input)] = {
            row.action, row.next};
    return table;
}

constexpr Table kTable = make_table();

constexpr std::array<const char*, kCmStateCount> kStateNames = {
    "Idle",       "ReqSent",     "MraReqReceived",  "RepReceived", "MraRepSent", "ReqReceived",
    "MraReqSent", "RepSent",     "MraRepReceived",  "Established", "DreqSent",   "Timewait",
    "Rejected",   "SidrReqSent", "SidrReqReceived", "SidrAnswered"};
constexpr std::array<const char*, kCmInputCount> kInputNames = {
    "REQ",    "MRA(REQ)",  "MRA(REP)",   "REP",      "RTU",     "REJ",     "DREQ",
    "DREP",   "LAP",       "SIDR_REQ",   "SIDR_REP", "timeout", "gave up", "accept",
    "reject", "establish", "disconnect", "notify",   "release"};
constexpr std::array<const char*, kCmActionCount> kActionNames = {
    "ignore",
    "refuse",
    "resend",
    "send REP",
    "send RTU",
    "send MRA",
    "send REJ",
    "send REJ(timeout)",
    "send REJ(consumer)",
    "send REJ(stale)",
    "send DREQ",
    "send DREP",
    "send APR",
    "send SIDR_REP",
    "send SIDR_REP(rejected)",
    "wait longer",
    "take REP, report reply",
    "report established",
    "report rejected",
    "report unreachable, send REJ(timeout)",
    "report service unreachable",
    "report service reply",
    "send DREP, report disconnected",
    "report disconnected",
    "report timewait exit"};
static_assert(kStateNames.back() != nullptr && kInputNames.back() != nullptr &&
              kActionNames.back() != nullptr);

}  // namespace

CmStep cm_step(CmState state, CmInput input) {
    assert(static_cast<std::size_t>(state) < kCmStateCount);
    assert(static_cast<std::size_t>(input) < kCmInputCount);
    return kTable[static_cast<std::size_t>(state)][static_cast<std::size_t>(input)];
}

const char* to_string(CmState state) { return kStateNames[static_cast<std::size_t>(state)]; }
const char* to_string(CmInput input) { return kInputNames[static_cast<std::size_t>(input)]; }
const char* to_string(CmAction action) { return kActionNames[static_cast<std::size_t>(action)]; }

}  // namespace rdmalab::transport

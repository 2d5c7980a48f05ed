#include "transport/qp_state.h"

#include <array>

namespace rdmalab::transport {
namespace {

using enum QpState;

constexpr std::uint32_t kInitConnected = kQpPkeyIndex | kQpPort | kQpAccessFlags;
constexpr std::uint32_t kInitUd = kQpPkeyIndex | kQpPort | kQpQkey;
constexpr std::uint32_t kRtrUc = kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn;
constexpr std::uint32_t kRtrRc = kRtrUc | kQpMaxDestRdAtomic | kQpMinRnrTimer;
constexpr std::uint32_t kRtsRc =
    kQpSqPsn | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic;
constexpr std::uint32_t kMigration = kQpAltPath | kQpPathMigState;
constexpr std::uint32_t kRtsAlsoUd = kQpCurState | kQpQkey;
constexpr std::uint32_t kRtsAlsoUc = kQpCurState | kQpAccessFlags | kMigration;
constexpr std::uint32_t kRtsAlsoRc = kRtsAlsoUc | kQpMinRnrTimer;
constexpr std::uint32_t kSqdAlsoUc = kQpAv | kQpAccessFlags | kQpPkeyIndex | kMigration;
constexpr std::uint32_t kSqdAlsoRc = kSqdAlsoUc | kQpPort | kQpTimeout | kQpRetryCnt | kQpRnrRetry |
                                     kQpMaxQpRdAtomic | kQpMaxDestRdAtomic | kQpMinRnrTimer;

constexpr std::array kUdRows{
    Transition{kReset, kInit, kInitUd, 0},
    Transition{kInit, kInit, 0, kInitUd},
    Transition{kInit, kRtr, 0, kQpPkeyIndex | kQpQkey},
    Transition{kRtr, kRts, kQpSqPsn, kRtsAlsoUd},
    Transition{kRts, kRts, 0, kRtsAlsoUd},
    Transition{kRts, kSqd, 0, kQpEnSqdAsyncNotify},
    Transition{kSqd, kRts, 0, kRtsAlsoUd},
    Transition{kSqd, kSqd, 0, kQpPkeyIndex | kQpQkey},
    Transition{kSqe, kRts, 0, kRtsAlsoUd},
};
constexpr std::uint32_t kRtsAlsoRaw = kQpCurState | kQpRateLimit;
constexpr std::array kRawRows{
    Transition{kReset, kInit, kQpPort, 0},  Transition{kInit, kInit, 0, kQpPort},
    Transition{kInit, kRtr, 0, 0},          Transition{kRtr, kRts, 0, kRtsAlsoRaw},
    Transition{kRts, kRts, 0, kRtsAlsoRaw}, Transition{kRts, kSqd, 0, kQpEnSqdAsyncNotify},
    Transition{kSqd, kRts, 0, kRtsAlsoRaw}, Transition{kSqd, kSqd, 0, 0},
    Transition{kSqe, kRts, 0, kQpCurState},
};
constexpr std::array kUcRows{
    Transition{kReset, kInit, kInitConnected, 0},
    Transition{kInit, kInit, 0, kInitConnected},
    Transition{kInit, kRtr, kRtrUc, kQpAltPath | kQpAccessFlags | kQpPkeyIndex},
    Transition{kRtr, kRts, kQpSqPsn, kRtsAlsoUc},
    Transition{kRts, kRts, 0, kRtsAlsoUc},
    Transition{kRts, kSqd, 0, kQpEnSqdAsyncNotify},
    Transition{kSqd, kRts, 0, kRtsAlsoUc},
    Transition{kSqd, kSqd, 0, kSqdAlsoUc},
    Transition{kSqe, kRts, 0, kQpCurState | kQpAccessFlags},
};
// Programs (perftest) give both ends of XRC the attributes of a whole RC QP; those of the half that
// is not there are taken and mean nothing.
constexpr std::uint32_t kAnswering = kQpMaxDestRdAtomic | kQpMinRnrTimer;
constexpr std::uint32_t kAsking = kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic;
constexpr std::array kXrcSendRows{
    Transition{kReset, kInit, kInitConnected, 0},
    Transition{kInit, kInit, 0, kInitConnected},
    Transition{kInit, kRtr, kRtrUc, kQpAltPath | kQpAccessFlags | kQpPkeyIndex | kAnswering},
    Transition{kRtr, kRts, kRtsRc, kRtsAlsoUc},
    Transition{kRts, kRts, 0, kRtsAlsoUc},
    Transition{kRts, kSqd, 0, kQpEnSqdAsyncNotify},
    Transition{kSqd, kRts, 0, kRtsAlsoUc},
    Transition{kSqd, kSqd, 0,
               kSqdAlsoUc | kQpPort | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic},
};
constexpr std::array kXrcRecvRows{
    Transition{kReset, kInit, kInitConnected, 0},
    Transition{kInit, kInit, 0, kInitConnected},
    Transition{kInit, kRtr, kRtrRc, kQpAltPath | kQpAccessFlags | kQpPkeyIndex},
    Transition{kRtr, kRts, kQpSqPsn | kQpTimeout, kRtsAlsoRc | kAsking},
    Transition{kRts, kRts, 0, kRtsAlsoRc},
    Transition{kRts, kSqd, 0, kQpEnSqdAsyncNotify},
    Transition{kSqd, kRts, 0, kRtsAlsoRc},
    Transition{kSqd, kSqd, 0,
               kSqdAlsoUc | kQpPort | kQpTimeout | kQpMaxDestRdAtomic | kQpMinRnrTimer},
};
constexpr std::array kRcRows{
    Transition{kReset, kInit, kInitConnected, 0},
    Transition{kInit, kInit, 0, kInitConnected},
    Transition{kInit, kRtr, kRtrRc, kQpAltPath | kQpAccessFlags | kQpPkeyIndex},
    Transition{kRtr, kRts, kRtsRc, kRtsAlsoRc},
    Transition{kRts, kRts, 0, kRtsAlsoRc},
    Transition{kRts, kSqd, 0, kQpEnSqdAsyncNotify},
    Transition{kSqd, kRts, 0, kRtsAlsoRc},
    Transition{kSqd, kSqd, 0, kSqdAlsoRc},
};

}  // namespace

std::span<const Transition> transitions(QpType type) {
    switch (type) {
        case QpType::kRc:
            return kRcRows;
        case QpType::kUc:
            return kUcRows;
        case QpType::kUd:
            return kUdRows;
        case QpType::kXrcSend:
            return kXrcSendRows;
        case QpType::kXrcRecv:
            return kXrcRecvRows;
        case QpType::kRaw:
            return kRawRows;
    }
    return {};
}

bool is_transition_allowed(QpType type, QpState from, QpState to, std::uint32_t mask) {
    const std::uint32_t given = mask & ~std::uint32_t{kQpState};
    if (to == kReset || to == kErr) return (given & ~std::uint32_t{kQpCurState}) == 0;
    for (const Transition& row : transitions(type))
        if (row.from == from && row.to == to)
            return (row.required & ~given) == 0 && (given & ~(row.required | row.optional)) == 0;
    return false;
}

const char* to_string(QpState state) {
    static constexpr std::array kNames{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    return kNames[static_cast<std::size_t>(state)];
}

const char* to_string(QpType type) {
    static constexpr std::array kNames{"RC", "UC", "UD", "XRC send", "XRC receive", "raw"};
    return kNames[static_cast<std::size_t>(type)];
}

}  // namespace rdmalab::transport

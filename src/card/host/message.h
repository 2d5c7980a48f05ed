// One control message with the descriptors that travel with it (SCM_RIGHTS), over a SOCK_SEQPACKET
// socket.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "card/host/descriptor.h"
#include "card/ring_abi.h"

namespace rdmalab::card::host {

struct Message {
    std::size_t length = 0;
    bool truncated = false;
    std::vector<UniqueFd> fds;
};

// Reads one message into `buffer`. length 0 with code 0: the peer has closed. EAGAIN: none there.
Result<Message> receive_message(int socket, ByteSpan buffer);

// EAGAIN when the peer does not read its replies.
Status send_message(int socket, ByteView bytes, std::span<const int> fds);

}  // namespace rdmalab::card::host

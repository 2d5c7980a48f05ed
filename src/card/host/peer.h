// What the card finds out about a process that connects to it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/result.h"
#include "card/host/descriptor.h"

namespace rdmalab::card::host {

struct Peer {
    pid_t pid = 0;
    uid_t uid = 0;
    UniqueFd pidfd;  // readable when the process has ended; may be absent on old kernels
};

Result<Peer> identify_peer(int socket);

// May this card read and write the memory of the process? Reads the uint64_t at `address`, which
// must be `value`. The error is EPERM with the reason, as far as it can be known.
Status probe_memory(pid_t pid, std::uint64_t address, std::uint64_t value);

// Does the process have CAP_NET_RAW, which raw packets and flow rules take? As of now: programs
// give rights up.
bool may_use_raw_packets(pid_t pid);

// /proc/PID/comm
std::string command_of(pid_t pid);

}  // namespace rdmalab::card::host

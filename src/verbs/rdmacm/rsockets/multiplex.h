// rpoll(2) and rselect(2).
#pragma once

#include <poll.h>
#include <sys/select.h>

namespace rdmalab::rdmacm {

int multiplex(pollfd* fds, nfds_t count, int timeout);
int multiplex(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
              const timeval* timeout);

}  // namespace rdmalab::rdmacm

// A process forked to work for this one, at the other end of a channel.
#pragma once

#include <sys/types.h>

#include <functional>

#include "perftest/channel.h"

namespace rdmalab::perftest {

struct Child {
    pid_t pid = 0;
    Channel channel{Fd()};
};

// `work` runs in the child, which is killed when this process ends, and must not return. It has to
// let go of the channels of children before it. Throws Failure.
Child fork_child(const std::function<void(Channel parent)>& work);

}  // namespace rdmalab::perftest

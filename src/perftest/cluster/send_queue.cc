#include "perftest/cluster/send_queue.h"

#include <errno.h>
#include <unistd.h>

namespace rdmalab::perftest {

bool SendQueue::flush(int fd) {
    constexpr std::size_t kCompactAt = 1u << 20;
    while (!empty()) {
        ssize_t count = write(fd, bytes_.data() + sent_, bytes_.size() - sent_);
        if (count > 0) {
            sent_ += static_cast<std::size_t>(count);
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            return false;
        }
    }
    if (empty() || sent_ > kCompactAt) {
        bytes_.erase(0, sent_);
        sent_ = 0;
    }
    return true;
}

}  // namespace rdmalab::perftest

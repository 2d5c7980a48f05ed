// Bytes that wait for a socket or pipe to take them. Whoever passes messages between others must
// never wait for one of them: two that send much to each other would wait for ever.
#pragma once

#include <string>
#include <string_view>

namespace rdmalab::perftest {

class SendQueue {
public:
    void add(std::string_view bytes) { bytes_ += bytes; }
    bool empty() const { return sent_ == bytes_.size(); }
    // Writes what is taken without waiting; false when the other end is gone. The descriptor must
    // be non-blocking.
    bool flush(int fd);

private:
    std::string bytes_;
    std::size_t sent_ = 0;
};

}  // namespace rdmalab::perftest

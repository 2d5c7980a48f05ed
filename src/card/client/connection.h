// A program's connection to a running card: where its socket is, one request and its reply at a
// time. For programs of this tree that are not RDMA programs (the drop-in has its own, which must
// not throw or allocate).
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "card/ring_abi.h"

namespace rdmalab::card::client {

// Of the card's socket: $RDMALAB_SOCKET, else $RDMALAB_CARD or "default" in the runtime folder
// (card/host/admin.h has the rule).
std::string default_socket();

class Connection {
public:
    Connection() = default;
    ~Connection() { close(); }
    Connection(Connection&& other) noexcept;
    Connection& operator=(Connection&& other) noexcept;

    // `path` empty: default_socket(). ENOENT: no card listens there.
    static Result<Connection> open(const std::string& path);

    // The body of the reply. The card's own error, or EPIPE when there is no card any more. The
    // descriptors that come with it go to `descriptors`, whose owner the caller becomes; without a
    // place for them there are none.
    Result<std::vector<std::byte>> call(abi::Op op, ByteView body,
                                        std::vector<int>* descriptors = nullptr);
    void close();
    // Gives the socket away.
    int release();
    bool is_open() const { return socket_ >= 0; }
    int descriptor() const { return socket_; }

private:
    explicit Connection(int socket) : socket_(socket) {}

    int socket_ = -1;
};

}  // namespace rdmalab::card::client

#include "flow/client/client.h"

#include <utility>

#include "card/client/connection.h"
#include "flow/message_port.h"

namespace rdmalab::flow::client {
namespace {

using card::client::Connection;

// `connection` outlives it.
MessagePort::Call call_of(Connection& connection) {
    return [&connection](ByteView request) { return connection.call(abi::Op::kFlow, request); };
}

class ConnectedDomain final : public Domain {
public:
    ConnectedDomain(Connection connection, AttachReply reply, std::uint32_t queue_depth)
        : connection_(std::move(connection)),
          device_(std::move(reply.device)),
          card_(std::move(reply.card)),
          pipes_(std::make_unique<MessagePort>(call_of(connection_), std::move(reply.ports)),
                 queue_depth) {}

    PipeControl& pipes() override { return pipes_; }
    const std::string& device() const override { return device_; }
    const std::string& card() const override { return card_; }
    int descriptor() const override { return connection_.descriptor(); }

private:
    Connection connection_;
    std::string device_, card_;
    QueuedPipeControl pipes_;
};

}  // namespace

Result<std::unique_ptr<Domain>> Domain::attach(const DomainOptions& options) {
    if (options.queue_depth == 0) return Error{EINVAL, "queue_depth: expected at least 1, found 0"};
    auto connection = Connection::open(options.socket);
    if (!connection.ok()) return connection.error();
    auto attached = MessagePort::attach(
        call_of(*connection), {options.pf, options.counters_max, options.hash_root_allowed});
    if (!attached.ok()) return attached.error();
    std::unique_ptr<Domain> domain = std::make_unique<ConnectedDomain>(
        std::move(*connection), std::move(*attached), options.queue_depth);
    return domain;
}

}  // namespace rdmalab::flow::client

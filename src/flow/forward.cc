#include "flow/pipe_types.h"

namespace rdmalab::flow {

Forward Forward::to_port(PortId port) {
    Forward forward;
    forward.kind = ForwardKind::kPort;
    forward.port = port;
    return forward;
}

Forward Forward::to_pipe(PipeId pipe) {
    Forward forward;
    forward.kind = ForwardKind::kPipe;
    forward.pipe = pipe;
    return forward;
}

Forward Forward::to_hash_pipe(PipeId pipe, HashAlgorithm algorithm) {
    Forward forward;
    forward.kind = ForwardKind::kHashPipe;
    forward.pipe = pipe;
    forward.algorithm = algorithm;
    return forward;
}

Forward Forward::to_queue(std::uint16_t queue) { return to_queues({queue}); }

Forward Forward::to_queues(std::vector<std::uint16_t> queues) {
    Forward forward;
    forward.kind = ForwardKind::kRss;
    forward.queues = std::move(queues);
    return forward;
}

Forward Forward::drop() {
    Forward forward;
    forward.kind = ForwardKind::kDrop;
    return forward;
}

Forward Forward::changeable() {
    Forward forward;
    forward.kind = ForwardKind::kChangeable;
    return forward;
}

}  // namespace rdmalab::flow

#include <string.h>

#include "verbs/rdmacm/id.h"

namespace rdmalab::rdmacm {

namespace {

// On RoCE the path follows from the addresses, so a given path record only says that the program
// has one: the route counts as resolved.
int set_path(Id& id, std::size_t length) {
    if (length == 0 || length % sizeof(ibv_path_data) != 0) return EINVAL;
    abi::CmResolveRouteRequest request{.id = id.handle, .timeout_ms = 0};
    return id.session->call(abi::CmOp::kResolveRoute, request);
}

}  // namespace

}  // namespace rdmalab::rdmacm

using namespace rdmalab;
using namespace rdmalab::rdmacm;

extern "C" int rdma_set_option(rdma_cm_id* public_id, int level, int name, void* value,
                               size_t length) {
    Id& id = id_of(public_id);
    if (level == RDMA_OPTION_IB && name == RDMA_OPTION_IB_PATH) return answer(set_path(id, length));
    abi::CmSetOptionRequest request{};
    request.id = id.handle;
    request.level = static_cast<std::uint32_t>(level);
    request.name = static_cast<std::uint32_t>(name);
    request.length = static_cast<std::uint32_t>(length);
    if (length > sizeof request.value || value == nullptr) return fail(EINVAL);
    memcpy(&request.value, value, length);
    return answer(id.session->call(abi::CmOp::kSetOption, request));
}

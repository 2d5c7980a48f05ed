// The installed headers as this library must see them: their functions are exported.
#pragma once

#pragma GCC visibility push(default)
#include <infiniband/ib.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>
#pragma GCC visibility pop

#include <errno.h>

#include <cstddef>

namespace rdmalab::rdmacm {

// Calls of this library answer -1 (or null) and set errno.
inline int fail(int error) {
    errno = error;
    return -1;
}
inline std::nullptr_t fail_null(int error) {
    errno = error;
    return nullptr;
}
// For a status that is 0 or an errno value.
inline int answer(int status) { return status == 0 ? 0 : fail(status); }

}  // namespace rdmalab::rdmacm

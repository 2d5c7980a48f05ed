// What becomes of open devices in the child of a fork: they are the parent's. The child's copies
// answer EIO and hold no descriptor but that of the shared memory; a child that wants RDMA opens
// the device itself. One call is different, since programs make it in children (rdma-core's tests
// do): ibv_alloc_dm joins the context of the parent first.
#pragma once

namespace rdmalab::verbs {

struct Context;

void remember_for_fork(Context& context);
void forget_for_fork(Context& context);

}  // namespace rdmalab::verbs

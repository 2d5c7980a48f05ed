// What becomes of open devices in the child of a fork: they are the parent's. The child's copies
// answer EIO and hold no descriptors; a child that wants RDMA opens the device itself.
#pragma once

namespace rdmalab::verbs {

struct Context;

void remember_for_fork(Context& context);
void forget_for_fork(Context& context);

}  // namespace rdmalab::verbs

// Creation of shared receive queues, shared by srq.cc and xrc.cc.
#pragma once

#include "verbs/objects.h"

namespace rdmalab::verbs {

struct SrqRequest {
    ibv_pd* pd = nullptr;
    void* context = nullptr;
    Xrcd* xrcd = nullptr;  // XRC, and then `cq` too
    ibv_cq* cq = nullptr;
};
// Null and errno when it fails. `attributes` are updated to what the SRQ really has.
ibv_srq* create_srq(const SrqRequest& request, ibv_srq_attr& attributes);

}  // namespace rdmalab::verbs

// Creation of queue pairs, shared by qp.cc and qp_ex.cc.
#pragma once

#include "verbs/objects.h"

namespace rdmalab::verbs {

// Null and errno when it fails. `init.cap` is updated to what the QP really has.
Qp* create_qp(ibv_pd* pd, ibv_qp_init_attr& init);
int destroy_qp(Qp& qp);

abi::AhAttributes to_abi(const ibv_ah_attr& in);
ibv_ah_attr from_abi(const abi::AhAttributes& in);
abi::QpAttributes to_abi(const ibv_qp_attr& in);
ibv_qp_attr from_abi(const abi::QpAttributes& in);

}  // namespace rdmalab::verbs

// Creation of queue pairs, shared by qp.cc and qp_ex.cc.
#pragma once

#include "verbs/objects.h"

namespace rdmalab::verbs {

// Null and errno when it fails. `init.cap` is updated to what the QP really has.
Qp* create_qp(ibv_pd* pd, ibv_qp_init_attr& init);
// XRC: the receiving end, which has a domain and nothing else; and one that another process made.
Qp* create_target_qp(Context& context, Xrcd& xrcd, ibv_qp_init_attr& init);
Qp* open_target_qp(Context& context, Xrcd& xrcd, std::uint32_t qpn, void* qp_context);
// A raw packet QP without queues (abi::CreateHashQpRequest).
Qp* create_hash_qp(const ibv_qp_init_attr_ex& init, const abi::CreateHashQpRequest& request);
int destroy_qp(Qp& qp);

abi::AhAttributes to_abi(const ibv_ah_attr& in);
ibv_ah_attr from_abi(const abi::AhAttributes& in);
abi::QpAttributes to_abi(const ibv_qp_attr& in);
ibv_qp_attr from_abi(const abi::QpAttributes& in);

}  // namespace rdmalab::verbs

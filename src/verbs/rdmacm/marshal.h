// Addresses and parameters in the structs of rdma_cma.h and in those of the card.
#pragma once

#include <sys/socket.h>

#include <optional>

#include "card/cm_abi.h"
#include "verbs/rdmacm/api.h"

namespace rdmalab::rdmacm {

// Nothing for a family that is not AF_INET, AF_INET6 or AF_IB. An AF_IB address is its GID, and the
// port is the low half of the service id.
std::optional<abi::CmAddress> from_sockaddr(const sockaddr* address);
// Family 0 leaves zeros.
void to_sockaddr(const abi::CmAddress& in, sockaddr_storage& out);
socklen_t sockaddr_length(const sockaddr* address);  // 0: unknown family
std::uint16_t port_of(const sockaddr& address);      // network order
bool is_wildcard(const abi::CmAddress& address);
bool same_host(const abi::CmAddress& a, const abi::CmAddress& b);

ibv_sa_path_rec path_record(const abi::CmIdInfo& info);

rdma_conn_param from_abi(const abi::CmConnParam& in);

// False when `length` is more than fits.
bool set_private_data(abi::CmPrivateData& out, const void* data, std::size_t length);

}  // namespace rdmalab::rdmacm

// The MAC address behind a GID.
#include <errno.h>
#include <string.h>

#include <cstdint>

#include "verbs/api.h"
#include "verbs/objects.h"
#include "verbs/qp.h"

using namespace rdmalab::verbs;

namespace {

// fe80:: with an EUI-64 made from a MAC (RFC 4291, appendix A).
bool is_link_local_eui64(const std::uint8_t* gid) {
    return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80 && gid[11] == 0xff && gid[12] == 0xfe;
}

void mac_from_eui64(const std::uint8_t* gid, std::uint8_t* mac) {
    mac[0] = gid[8] ^ 2;
    mac[1] = gid[9];
    mac[2] = gid[10];
    memcpy(mac + 3, gid + 13, 3);
}

bool is_ipv4_multicast(const std::uint8_t* gid) {
    static constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return memcmp(gid, kMapped, sizeof kMapped) == 0 && (gid[12] & 0xf0) == 0xe0;
}

}  // namespace

// What follows from the address itself is answered here; the MAC of another address is known to the
// card. As the original does, failure is a negative errno value.
extern "C" int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attributes,
                                           uint8_t* mac, uint16_t* vlan) {
    constexpr std::uint16_t kNoVlan = 0xffff;
    const std::uint8_t* gid = attributes->grh.dgid.raw;
    if (is_ipv4_multicast(gid)) {
        const std::uint8_t out[] = {0x01,    0x00,   0x5e, std::uint8_t(gid[13] & 0x7f),
                                    gid[14], gid[15]};
        memcpy(mac, out, sizeof out);
    } else if (gid[0] == 0xff) {
        const std::uint8_t out[] = {0x33, 0x33, gid[12], gid[13], gid[14], gid[15]};
        memcpy(mac, out, sizeof out);
    } else if (is_link_local_eui64(gid)) {
        mac_from_eui64(gid, mac);
    } else {
        rdmalab::abi::AhAttributes request = to_abi(*attributes);
        request.is_global = 1;  // callers fill in the addresses only
        if (request.port == 0) request.port = 1;
        rdmalab::abi::ResolveReply reply{};
        int status =
            context_of(context).connection.call(rdmalab::abi::Op::kResolveAddress, request, reply);
        if (status != 0) return -status;
        memcpy(mac, reply.mac, sizeof reply.mac);
    }
    if (vlan != nullptr) *vlan = kNoVlan;
    return 0;
}

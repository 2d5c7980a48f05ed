// The checksums of IP packets that a program leaves to its adapter (IBV_SEND_IP_CSUM), and those
// that the adapter checks for it (IBV_WC_IP_CSUM_OK): of the IPv4 header (RFC 791), TCP (RFC 9293)
// and UDP (RFC 768), on whole Ethernet frames with up to two VLAN tags.
#pragma once

#include "base/bytes.h"

namespace rdmalab::wire {

// Fills in what there is to fill in: IPv6 has no header checksum, a fragment no whole TCP or UDP.
void fill_checksums(ByteSpan frame);

// True for an IPv4 packet with TCP or UDP in one piece whose two checksums are right. A UDP
// checksum of 0 means that there is none.
bool has_right_checksums(ByteView frame);

}  // namespace rdmalab::wire

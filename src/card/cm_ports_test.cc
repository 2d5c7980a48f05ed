#include "card/cm_ports.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <deque>
#include <set>

#include "card/cm_testing.h"

namespace rdmalab::card {
namespace {

CmPortClaim claim_of(const std::string& address, std::uint16_t port, DeviceSet devices = 1) {
    CmPortClaim claim;
    claim.port_space = abi::kPortSpaceTcp;
    claim.address = *CmEndpoint::from_abi(testing::cm_address(address, port));
    claim.devices = devices;
    claim.family_only = claim.address.family == kFamilyIpv4;
    return claim;
}

TEST(CmPorts, the_same_address_and_port_are_taken_once) {
    CmPorts ports(1);
    CmPortClaim first = claim_of("10.0.0.1", 80), second = first, other = claim_of("10.0.0.1", 81);
    EXPECT_EQ(ports.claim(first), 0);
    EXPECT_EQ(ports.claim(second), EADDRINUSE);
    EXPECT_EQ(ports.claim(other), 0);
    ports.release(first);
    EXPECT_EQ(ports.claim(second), 0) << "free at once";
    EXPECT_EQ(ports.claimed_count(), 2u);
}

TEST(CmPorts, port_spaces_are_apart) {
    CmPorts ports(1);
    CmPortClaim tcp = claim_of("10.0.0.1", 80), udp = tcp;
    udp.port_space = abi::kPortSpaceUdp;
    EXPECT_EQ(ports.claim(tcp), 0);
    EXPECT_EQ(ports.claim(udp), 0);
}

TEST(CmPorts, a_wildcard_conflicts_with_every_address_of_its_devices) {
    CmPorts ports(1);
    CmPortClaim wildcard = claim_of("0.0.0.0", 80, 0b11), address = claim_of("10.0.0.1", 80, 0b01),
                elsewhere = claim_of("10.0.0.2", 80, 0b100);
    EXPECT_EQ(ports.claim(wildcard), 0);
    EXPECT_EQ(ports.claim(address), EADDRINUSE);
    EXPECT_EQ(ports.claim(elsewhere), 0) << "another namespace";
}

TEST(CmPorts, an_ipv6_wildcard_covers_ipv4_unless_it_keeps_to_its_family) {
    CmPorts ports(1);
    CmPortClaim ipv4 = claim_of("0.0.0.0", 80), ipv6 = claim_of("::", 80);
    EXPECT_EQ(ports.claim(ipv4), 0);
    EXPECT_EQ(ports.claim(ipv6), EADDRINUSE);
    ipv6.family_only = true;
    EXPECT_EQ(ports.claim(ipv6), 0);
}

TEST(CmPorts, reuse_needs_both_and_does_not_hold_for_listeners) {
    CmPorts ports(1);
    CmPortClaim first = claim_of("0.0.0.0", 80), second = first;
    EXPECT_EQ(ports.claim(first), 0);
    second.allows_reuse = true;
    EXPECT_EQ(ports.claim(second), EADDRINUSE);
    first.allows_reuse = true;
    EXPECT_EQ(ports.claim(second), 0);
    EXPECT_FALSE(ports.is_exclusive(second));
    ports.release(first);
    EXPECT_TRUE(ports.is_exclusive(second));
}

TEST(CmPorts, ephemeral_ports_are_all_different_and_come_back) {
    CmPorts ports(1);
    CmPortClaim explicit_claim = claim_of("10.0.0.1", 50'000);
    ASSERT_EQ(ports.claim(explicit_claim), 0);
    std::deque<CmPortClaim> claims;
    std::set<std::uint16_t> seen = {50'000};
    int status = 0;
    while (true) {
        claims.push_back(claim_of("10.0.0.1", 0));
        status = ports.claim(claims.back());
        if (status != 0) break;
        const std::uint16_t port = claims.back().address.port;
        EXPECT_GE(port, CmPorts::kEphemeralFirst);
        EXPECT_TRUE(seen.insert(port).second) << port;
    }
    EXPECT_EQ(status, EADDRNOTAVAIL);
    EXPECT_EQ(seen.size(), 16'384u);
    ports.release(explicit_claim);
    EXPECT_EQ(ports.claim(claims.back()), 0);
    EXPECT_EQ(claims.back().address.port, 50'000);
    ports.release(claims.front());
    CmPortClaim again = claim_of("10.0.0.1", 0);
    EXPECT_EQ(ports.claim(again), 0);
    EXPECT_EQ(again.address.port, claims.front().address.port);
}

TEST(CmPorts, a_port_that_was_taken_by_number_is_skipped_and_not_lost) {
    CmPorts ports(1);
    CmPortClaim probe = claim_of("10.0.0.1", 0);
    ASSERT_EQ(ports.claim(probe), 0);
    ports.release(probe);
    for (int round = 0; round < 3; ++round) {
        CmPortClaim fixed = claim_of("10.0.0.1", 60'000);
        ASSERT_EQ(ports.claim(fixed), 0);
        ports.release(fixed);
    }
    std::deque<CmPortClaim> claims;
    std::size_t count = 0;
    for (;; ++count) {
        claims.push_back(claim_of("10.0.0.1", 0));
        if (ports.claim(claims.back()) != 0) break;
    }
    EXPECT_EQ(count, 16'384u);
}

}  // namespace
}  // namespace rdmalab::card

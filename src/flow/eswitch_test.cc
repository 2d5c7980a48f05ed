#include "flow/eswitch.h"

#include <gtest/gtest.h>

#include "wire/headers.h"

namespace rdmalab::flow {
namespace {

constexpr VportId kWire{0}, kPf{1}, kSf0{2}, kSf4{3};

MacAddress mac_of(VportId port) { return {{2, 0, 0, 0, 0, static_cast<std::uint8_t>(port.value)}}; }
constexpr MacAddress kElsewhere{{2, 0, 0, 0, 1, 1}};

class Eswitch : public ::testing::Test {
protected:
    Eswitch() {
        domain_.add_wire(kWire);
        for (const VportId port : {kPf, kSf0, kSf4}) domain_.add_vport(port, mac_of(port));
    }

    // The ports that a frame of 14 bytes for `destination` leaves by.
    std::vector<VportId> outputs(VportId ingress, const MacAddress& destination) {
        wire::Frame frame;
        frame.header_length = sizeof(wire::EthernetHeader);
        *wire::header_at<wire::EthernetHeader>(frame, 0) = {destination.bytes, {}, 0x88b5};
        OutputList out;
        out.add(VportId{9});  // what was in the list does not matter
        domain_.process(ingress, frame, out);
        std::vector<VportId> ports;
        for (std::size_t i = 0; i < out.size(); ++i) ports.push_back(out[i]);
        return ports;
    }

    using Ports = std::vector<VportId>;
    EswitchDomain domain_;
};

TEST_F(Eswitch, unicast_goes_to_the_vport_with_that_mac) {
    EXPECT_EQ(outputs(kSf0, mac_of(kSf4)), Ports{kSf4});
    EXPECT_EQ(outputs(kSf0, mac_of(kPf)), Ports{kPf});
    EXPECT_EQ(outputs(kWire, mac_of(kSf0)), Ports{kSf0});
}

TEST_F(Eswitch, unicast_to_the_senders_own_mac_comes_back) {
    EXPECT_EQ(outputs(kSf0, mac_of(kSf0)), Ports{kSf0});
}

TEST_F(Eswitch, unknown_unicast_from_a_vport_goes_to_the_wire) {
    EXPECT_EQ(outputs(kSf4, kElsewhere), Ports{kWire});
}

TEST_F(Eswitch, unknown_unicast_from_the_wire_is_dropped_and_counted) {
    EXPECT_EQ(outputs(kWire, kElsewhere), Ports{});
    EXPECT_EQ(domain_.counters(kWire).dropped, 1u);
    EXPECT_EQ(domain_.counters(kWire).ingress_frames, 1u);
}

TEST_F(Eswitch, multicast_goes_to_every_port_but_the_senders) {
    const MacAddress group = Gid::parse("239.1.2.3")->multicast_mac();
    EXPECT_EQ(outputs(kSf0, group), (Ports{kWire, kPf, kSf4}));
    EXPECT_EQ(outputs(kWire, group), (Ports{kPf, kSf0, kSf4}));
    EXPECT_EQ(outputs(kSf0, MacAddress::broadcast()), (Ports{kWire, kPf, kSf4}));
}

TEST_F(Eswitch, counters_tell_ingress_from_egress) {
    outputs(kSf0, mac_of(kSf4));
    outputs(kSf0, MacAddress::broadcast());
    outputs(kSf0, mac_of(kSf0));
    const PortCounters& sf0 = domain_.counters(kSf0);
    EXPECT_EQ(sf0.ingress_frames, 3u);
    EXPECT_EQ(sf0.ingress_bytes, 3u * 14);
    EXPECT_EQ(sf0.egress_frames, 1u);
    EXPECT_EQ(sf0.dropped, 0u);
    const PortCounters& sf4 = domain_.counters(kSf4);
    EXPECT_EQ(sf4.ingress_frames, 0u);
    EXPECT_EQ(sf4.egress_frames, 2u);
    EXPECT_EQ(sf4.egress_bytes, 2u * 14);
    EXPECT_EQ(domain_.counters(kWire).egress_frames, 1u);
}

TEST_F(Eswitch, bytes_are_those_on_the_wire) {
    wire::Path path;
    path.source = path.destination = *Gid::parse("10.0.0.1");
    path.destination_mac = mac_of(kSf4);
    wire::Frame frame;
    wire::start_roce(frame, wire::make_lower_template(path), *wire::find_opcode(0x04));
    frame.add_segment({SpaceId{1}, 5, 0x1000});
    wire::finish_roce(frame);
    OutputList out;
    domain_.process(kSf0, frame, out);
    EXPECT_EQ(domain_.counters(kSf4).egress_bytes, 14u + 20 + 8 + 12 + 8 + 4);
}

TEST(EswitchAlone, a_domain_without_a_wire_drops_unknown_unicast) {
    EswitchDomain domain;
    domain.add_vport(kSf0, mac_of(kSf0));
    wire::Frame frame;
    frame.header_length = sizeof(wire::EthernetHeader);
    *wire::header_at<wire::EthernetHeader>(frame, 0) = {kElsewhere.bytes, {}, 0x88b5};
    OutputList out;
    domain.process(kSf0, frame, out);
    EXPECT_TRUE(out.empty());
    EXPECT_EQ(domain.counters(kSf0).dropped, 1u);
}

TEST(EswitchFull, a_flood_of_the_largest_domain_fits_the_list) {
    EswitchDomain domain;
    domain.add_wire(VportId{0});
    for (std::uint16_t i = 1; i < kPortMax; ++i)
        domain.add_vport(VportId{i}, {{2, 0, 0, 0, 0, static_cast<std::uint8_t>(i)}});
    wire::Frame frame;
    frame.header_length = sizeof(wire::EthernetHeader);
    *wire::header_at<wire::EthernetHeader>(frame, 0) = {MacAddress::broadcast().bytes, {}, 0x88b5};
    OutputList out;
    domain.process(VportId{5}, frame, out);
    EXPECT_EQ(out.size(), kPortMax - 1);
    EXPECT_EQ(out.back(), VportId{kPortMax - 1});
}

}  // namespace
}  // namespace rdmalab::flow

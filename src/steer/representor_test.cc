#include "steer/representor.h"

#include <gtest/gtest.h>

namespace rdmalab::steer {
namespace {

TEST(Representor, is_a_pci_address_and_a_name) {
    EXPECT_EQ(*parse_representor("pci/0000:03:00.0,pf0sf0"),
              (Representor{"0000:03:00.0", "pf0sf0"}));
    EXPECT_EQ(*parse_representor("pci/0000:03:00.1,pf1sf0"),
              (Representor{"0000:03:00.1", "pf1sf0"}));
    EXPECT_EQ(*parse_representor("pci/03:00.1,pf1vf12"), (Representor{"0000:03:00.1", "pf1vf12"}));
    EXPECT_EQ(*parse_representor("pci/00AB:03:00.1,pf1sf0"),
              (Representor{"00ab:03:00.1", "pf1sf0"}));
}

TEST(Representor, says_what_is_wrong_with_others) {
    const auto why = [](const char* text) { return parse_representor(text).error().text; };
    EXPECT_EQ(why("pf0sf0"),
              "'pf0sf0' is no representor: it does not begin with 'pci/'; expected one like "
              "pci/0000:03:00.0,pf0sf0");
    EXPECT_EQ(why("pci/0000:03:00.0"),
              "'pci/0000:03:00.0' is no representor: there is no ',' behind the PCI address; "
              "expected one like pci/0000:03:00.0,pf0sf0");
    EXPECT_EQ(why("pci/0000:03:00,pf0sf0"),
              "'pci/0000:03:00,pf0sf0' is no representor: 'pci/0000:03:00' is no PCI address; "
              "expected one like pci/0000:03:00.0,pf0sf0");
    for (const char* text :
         {"pci/0000:03:00.0,sf0", "pci/0000:03:00.0,", "pci/0000:03:00.8,pf0sf0",
          "pci/0000:03:00.0,pf0sf0 ", "pci/0000:03:00.0,pf0sf0,pf0sf1", "", ","}) {
        EXPECT_FALSE(parse_representor(text).ok()) << text;
    }
}

TEST(PciAddress, may_leave_out_the_domain_and_carry_the_prefix) {
    EXPECT_EQ(*parse_pci_address("03:00.1"), "0000:03:00.1");
    EXPECT_EQ(*parse_pci_address("pci/0000:03:00.1"), "0000:03:00.1");
    EXPECT_FALSE(parse_pci_address("mlx5_1").ok());
}

}  // namespace
}  // namespace rdmalab::steer

#include "rdmalab/table.h"

#include <gtest/gtest.h>

namespace rdmalab::launcher {
namespace {

TEST(Table, numbers_stand_right_and_words_left) {
    Table table({"port", "frames"});
    table.add_row({"p0", "5"});
    table.add_row({"pf0sf0", "1,234"});
    EXPECT_EQ(table.print(),
              "  port    frames\n"
              "  p0           5\n"
              "  pf0sf0   1,234\n");
}

TEST(Table, missing_cells_stay_empty_and_leave_no_trailing_blanks) {
    Table table({"a", "b"});
    table.add_row({"x"});
    EXPECT_EQ(table.print(0), "a  b\nx\n");
}

TEST(Table, an_address_is_not_a_number) {
    Table table({"ip", "n"});
    table.add_row({"10.0.0.1", "1"});
    table.add_row({"10.0.0.11", "2"});
    EXPECT_EQ(table.print(0),
              "ip         n\n"
              "10.0.0.1   1\n"
              "10.0.0.11  2\n");
}

TEST(Table, counts_are_grouped_by_thousands) {
    EXPECT_EQ(print_count(0), "0");
    EXPECT_EQ(print_count(999), "999");
    EXPECT_EQ(print_count(1'000), "1,000");
    EXPECT_EQ(print_count(1'234'567), "1,234,567");
}

}  // namespace
}  // namespace rdmalab::launcher

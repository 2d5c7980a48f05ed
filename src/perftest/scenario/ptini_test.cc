#include "perftest/scenario/ptini.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace rdmalab::perftest {
namespace {

using ::testing::HasSubstr;

// The example of the guide.
constexpr char kSample[] = R"([format]
version = 1.0

[collective]
type = ALLTOALLV
team_size = 5
flags = COUNT_32BIT
counts = {
    0,        33554432, 262144,   2097152,  524288
    33554432, 0,        1048576,  0,        524288
    262144,   1048576,  0,        16777216, 524288
    2097152,  0,        16777216, 0,        524288
    2097152,  0,        16777216, 1048576,  0
}
)";

std::string refusal(const std::string& text, std::uint32_t ranks = 2, std::uint32_t bytes = 4) {
    Result<SizeMatrix> matrix = parse_ptini(text, ranks, bytes);
    return matrix.ok() ? "accepted" : matrix.error().text;
}

std::string counts(const std::string& values) {
    return "[collective]\ncounts = {" + values + "}\n";
}

TEST(Ptini, the_sample_of_the_guide_gives_its_matrix) {
    SizeMatrix matrix = parse_ptini(kSample, 5, 4).value();
    EXPECT_EQ(matrix.skipped, 3u);
    EXPECT_EQ(matrix.at(1, 3), 0u);
    EXPECT_EQ(matrix.at(3, 1), 0u);
    EXPECT_EQ(matrix.at(4, 1), 0u);
    std::vector<std::uint64_t> rows(5), columns(5);
    std::uint64_t smallest = UINT64_MAX, largest = 0;
    for (std::uint32_t from = 0; from < 5; ++from) {
        for (std::uint32_t to = 0; to < 5; ++to) {
            std::uint64_t bytes = matrix.at(from, to);
            rows[from] += bytes;
            columns[to] += bytes;
            largest = std::max(largest, bytes);
            if (bytes > 0) smallest = std::min(smallest, bytes);
        }
    }
    EXPECT_EQ(smallest, 1048576u);
    EXPECT_EQ(largest, 134217728u);
    EXPECT_EQ(rows,
              (std::vector<std::uint64_t>{145752064, 140509184, 74448896, 77594624, 79691776}));
    EXPECT_EQ(columns,
              (std::vector<std::uint64_t>{152043520, 138412032, 139460608, 79691776, 8388608}));
    EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), std::uint64_t{0}), 517996544u);
    EXPECT_EQ(std::accumulate(columns.begin(), columns.end(), std::uint64_t{0}), 517996544u);
}

TEST(Ptini, line_breaks_comments_and_other_keys_do_not_matter) {
    for (const char* text :
         {"[collective]\ncounts={0,3,5,0}\n", "[collective]\ncounts = {\n0,\n3\n5\n0\n}",
          "# head\n[format]\ncounts = { 9, 9 }\n[collective] ; here\r\n datatype = int8\r\ncounts "
          "= "
          "{ 0, 3, # row\r\n 5, 0, }\r\n",
          "[collective]\nteam_size = 2\ntype = ALLTOALLV\ncounts = {7, 3\n5, 7}\n[other]\nx = y"}) {
        Result<SizeMatrix> matrix = parse_ptini(text, 2, 1);
        ASSERT_TRUE(matrix.ok()) << matrix.error().text;
        EXPECT_EQ(matrix->bytes, (std::vector<std::uint64_t>{0, 3, 5, 0})) << text;
    }
}

TEST(Ptini, totals_are_64_bit) {
    std::string big = std::to_string((1u << 29));
    SizeMatrix matrix =
        parse_ptini(counts(fmt::format("0,{0},{0},{0},0,{0},{0},{0},0", big)), 3, 4).value();
    EXPECT_EQ(std::accumulate(matrix.bytes.begin(), matrix.bytes.end(), std::uint64_t{0}),
              6 * (std::uint64_t{1} << 31));
}

TEST(Ptini, wrong_files_are_refused_with_line_and_rule) {
    EXPECT_THAT(refusal(counts("0,1,2")), HasSubstr("expected 2 times 2 values"));
    EXPECT_THAT(refusal(counts("0,1,2")), HasSubstr("found 3"));
    EXPECT_THAT(refusal(counts("0,1,2,0,4")), HasSubstr("found more"));
    EXPECT_THAT(refusal(counts("0,x,2,0")), HasSubstr("line 2: counts: expected a whole number"));
    EXPECT_THAT(refusal(counts("0,-1,2,0")), HasSubstr("found '-1'"));
    EXPECT_THAT(refusal(counts("0,1 2,2,0")), HasSubstr("found '1 2'"));
    EXPECT_THAT(refusal(counts("0,536870913,2,0")), HasSubstr("more than a message can have"));
    EXPECT_THAT(refusal(counts("0,99999999999999999999999,2,0")),
                HasSubstr("from rank 0 to rank 1"));
    EXPECT_THAT(refusal("[collective]\ntype = ALLREDUCE\n"), HasSubstr("expected ALLTOALLV"));
    EXPECT_THAT(refusal("[collective]\nteam_size = 3\n" + counts("0,1,2,0").substr(13)),
                HasSubstr("team_size: expected 2"));
    EXPECT_THAT(refusal(counts("0,1,2,0") + counts("0,1,2,0")), HasSubstr("second [collective]"));
    EXPECT_THAT(refusal(counts("0,1,2,0") + "counts = {0,1,2,0}\n"), HasSubstr("second block"));
    EXPECT_THAT(refusal("[collective]\ncounts = {0,1,\n"), HasSubstr("'{' without '}'"));
    EXPECT_THAT(refusal("[collective]\ncounts = 0,1,2,0\n"), HasSubstr("expected '{'"));
    EXPECT_THAT(refusal(""), HasSubstr("no counts"));
    EXPECT_THAT(refusal("hello"), HasSubstr("expected KEY = VALUE"));
    EXPECT_THAT(read_ptini("/nowhere/x.ptini", 2, 4).error().text, HasSubstr("/nowhere/x.ptini"));
}

TEST(Ptini, the_diagonal_is_ignored_whatever_it_says) {
    EXPECT_EQ(parse_ptini(counts("4000000000,1,2,4000000000"), 2, 4)->bytes,
              (std::vector<std::uint64_t>{0, 4, 8, 0}));
}

TEST(Ptini, datatypes_have_the_sizes_that_ucc_gives_them) {
    EXPECT_EQ(datatype_names().size(), 18u);
    EXPECT_EQ(datatype_bytes("int8"), 1u);
    EXPECT_EQ(datatype_bytes("bfloat16"), 2u);
    EXPECT_EQ(datatype_bytes("float32"), 4u);
    EXPECT_EQ(datatype_bytes("float32_complex"), 8u);
    EXPECT_EQ(datatype_bytes("float128"), 16u);
    EXPECT_EQ(datatype_bytes("float128_complex"), 32u);
    EXPECT_FALSE(datatype_bytes("FLOAT32"));
}

}  // namespace
}  // namespace rdmalab::perftest

#include "perftest/scenario/ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"

namespace rdmalab::perftest {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string expanded(const std::string& text) {
    Result<std::vector<std::string>> names = expand_ranges(text);
    if (!names.ok()) return "error";
    std::string out;
    for (const std::string& name : *names) out += (out.empty() ? "" : " ") + name;
    return out;
}

// What Slurm's own tool makes of the same texts.
TEST(Ranges, good_lists_are_read_as_slurm_reads_them) {
    const std::pair<const char*, const char*> rows[] = {
        {"node[01-04,7]", "node01 node02 node03 node04 node7"},
        {"node[1-4]", "node1 node2 node3 node4"},
        {"node[01-03]", "node01 node02 node03"},
        {"node[1-10]", "node1 node2 node3 node4 node5 node6 node7 node8 node9 node10"},
        {"node[08-11]", "node08 node09 node10 node11"},
        {"node[1,2,4-5]", "node1 node2 node4 node5"},
        {"node[001-3]", "node001 node002 node003"},
        {"node[9-011]", "node9 node10 node11"},
        {"node[99-101]", "node99 node100 node101"},
        {"node[098-101]", "node098 node099 node100 node101"},
        {"n[00-1]", "n00 n01"},
        {"node[1-3,2]", "node1 node2 node3 node2"},
        {"node1,node1", "node1 node1"},
        {"node[1-2][1-2]", "node11 node12 node21 node22"},
        {"node[1-2]-ib[0-1]", "node1-ib0 node1-ib1 node2-ib0 node2-ib1"},
        {"n[1-2]-[3-4]", "n1-3 n1-4 n2-3 n2-4"},
        {"my_node_0[1-12]",
         "my_node_01 my_node_02 my_node_03 my_node_04 my_node_05 my_node_06 my_node_07 my_node_08 "
         "my_node_09 my_node_010 my_node_011 my_node_012"},
        {"a1,b[2-3],c", "a1 b2 b3 c"},
        {"rack1-[01-04],rack2-[05-08]",
         "rack1-01 rack1-02 rack1-03 rack1-04 rack2-05 rack2-06 rack2-07 rack2-08"},
        {"10.0.0.[1-3]", "10.0.0.1 10.0.0.2 10.0.0.3"},
        {"mlx5_[0,1]", "mlx5_0 mlx5_1"},
        {"[1-3]", "1 2 3"},
        {"node1", "node1"},
        {"n1-3", "n1-3"},
        {"node[1-2], node5", "node1 node2 node5"},
        {"n[1-3] m[1-2]", "n1 n2 n3 m1 m2"},
        {"tux[0-3],,x", "tux0 tux1 tux2 tux3 x"},
        {",n1,", "n1"},
    };
    for (const auto& [text, names] : rows) EXPECT_EQ(expanded(text), names) << text;
}

TEST(Ranges, text_after_a_bracket_and_words_in_lists_are_allowed) {
    EXPECT_EQ(expanded("node[0-1].example.org"), "node0.example.org node1.example.org");
    EXPECT_EQ(expanded("n[1-3]x"), "n1x n2x n3x");
    EXPECT_EQ(expanded("node[1-2]x[08-09]y"), "node1x08y node1x09y node2x08y node2x09y");
    EXPECT_EQ(expanded("node[a,b]"), "nodea nodeb");
    EXPECT_EQ(expanded("[n1,n2]"), "n1 n2");
    EXPECT_EQ(expanded("n[0-1][00-01][a]"), "n000a n001a n100a n101a");
}

TEST(Ranges, wrong_lists_are_refused) {
    for (const char* text : {"node[3-1]",
                             "n[010-8]",
                             "node[]",
                             "node[ 1-2 ]",
                             "node[1-2:2]",
                             "n[1--2]",
                             "n[0x1-2]",
                             "node[1-]",
                             "node[1",
                             "node1]",
                             "n[+1-2]",
                             "[1-70000]",
                             "n[1-2,]",
                             "n[[1]]",
                             "n[1[2]",
                             "",
                             ",",
                             " ",
                             "n[18446744073709551615-18446744073709551616]",
                             "n[a-c]",
                             "[1-300][1-300]",
                             "n[1-65536],m"}) {
        EXPECT_EQ(expanded(text), "error") << text;
    }
}

TEST(Ranges, the_limit_itself_is_allowed) {
    EXPECT_EQ(expand_ranges("n[1-65536]")->size(), kNamesMax);
    EXPECT_EQ(expand_ranges("n[18446744073709551614-18446744073709551615]")->size(), 2u);
}

TEST(Ranges, the_error_names_the_part_that_is_wrong) {
    EXPECT_THAT(expand_ranges("node[3-1]").error().text, HasSubstr("'3-1' ends before it begins"));
    EXPECT_THAT(expand_ranges("a,node[1").error().text, HasSubstr("'[' without ']' in 'node[1'"));
    EXPECT_THAT(expand_ranges("[1-70000]").error().text, HasSubstr("more than 65536 names"));
}

// Whatever comes in, the answer is a list within the limit or a reason.
TEST(Ranges, random_texts_neither_crash_nor_grow) {
    Prng prng(7);
    constexpr std::string_view kAlphabet = "ab01239[],- ._x";
    for (int round = 0; round < 20000; ++round) {
        std::string text;
        std::size_t length = prng.next() % 24;
        while (text.size() < length) text += kAlphabet[prng.next() % kAlphabet.size()];
        Result<std::vector<std::string>> names = expand_ranges(text);
        if (names.ok()) {
            EXPECT_LE(names->size(), kNamesMax);
            for (const std::string& name : *names) {
                EXPECT_EQ(name.find_first_of("[], "), std::string::npos) << text;
            }
        } else {
            EXPECT_FALSE(names.error().text.empty());
        }
    }
}

}  // namespace
}  // namespace rdmalab::perftest

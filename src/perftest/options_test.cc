#include "perftest/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perftest/parameters.h"

namespace rdmalab::perftest {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

CommandLine read(std::vector<const char*> words) {
    words.insert(words.begin(), "/usr/bin/rdma_perftest");
    return read_command_line(static_cast<int>(words.size()), words.data());
}

TEST(Options, short_long_and_attached_values_mean_the_same) {
    Request expected = {{"msg_size", "8"}, {"bidirectional", "true"}};
    EXPECT_EQ(read({"-s", "8", "-b"}).request, expected);
    EXPECT_EQ(read({"--msg_size", "8", "--bidirectional"}).request, expected);
    EXPECT_EQ(read({"--msg_size=8", "-b"}).request, expected);
}

TEST(Options, a_negative_value_is_a_value) {
    CommandLine line = read({"-s", "-1"});
    EXPECT_TRUE(line.errors.empty());
    EXPECT_EQ(line.request.at("msg_size"), "-1");
}

TEST(Options, the_json_file_is_optional) {
    EXPECT_EQ(read({"-j"}).request.at("json_output"), "");
    EXPECT_EQ(read({"-j", "out.json"}).request.at("json_output"), "out.json");
    EXPECT_EQ(read({"-j", "-b"}).request.at("json_output"), "");
}

TEST(Options, a_repeated_flag_is_refused_with_its_values) {
    EXPECT_THAT(read({"-s", "8", "--msg_size", "16"}).errors,
                Contains(HasSubstr("--msg_size: expected once, found 2 times (8, 16)")));
    EXPECT_THAT(read({"-b", "-b"}).errors, Contains(HasSubstr("--bidirectional")));
}

TEST(Options, unknown_flags_and_stray_words_are_refused) {
    EXPECT_THAT(read({"--msgsize", "8"}).errors,
                Contains(HasSubstr("--msgsize: unknown flag; did you mean '--msg_size'?")));
    EXPECT_THAT(read({"node02"}).errors, Contains(HasSubstr("node02: unknown argument")));
    EXPECT_FALSE(read({"-s"}).errors.empty());
    EXPECT_FALSE(read({"-b=5"}).errors.empty());
}

TEST(Options, help_lists_every_flag_and_the_memory_types) {
    std::string help = *read({"--help"}).print;
    for (const Parameter& parameter : parameters()) {
        EXPECT_THAT(help, HasSubstr("--" + std::string(parameter.name)));
    }
    for (const char* word : {"-H, --qp_histogram", "cuda_data_direct", "nullmr"}) {
        EXPECT_THAT(help, HasSubstr(word));
    }
    EXPECT_THAT(*read({"--help", "queues"}).print, HasSubstr("--tx_depth"));
    EXPECT_THAT(read({"--help", "nonsense"}).errors, Contains(HasSubstr("expected one of")));
}

TEST(Options, help_fits_a_terminal) {
    std::string help = *read({"--help"}).print;
    for (std::size_t at = 0, end = 0; (end = help.find('\n', at)) != std::string::npos;
         at = end + 1) {
        EXPECT_LE(end - at, 102u) << help.substr(at, end - at);
    }
}

TEST(Options, the_version_names_the_program_as_it_was_called) {
    EXPECT_EQ(*read({"--version"}).print, "rdma_perftest " RDMALAB_VERSION "\n");
}

TEST(Options, completion_knows_every_flag) {
    for (const char* shell : {"bash", "zsh", "fish"}) {
        std::string script = *read({"--completion", shell}).print;
        for (const Parameter& parameter : parameters())
            EXPECT_THAT(script, HasSubstr(parameter.name));
    }
    EXPECT_FALSE(read({"--completion", "csh"}).errors.empty());
}

TEST(Options, every_json_field_belongs_to_one_flag) {
    for (const Parameter& parameter : parameters()) {
        EXPECT_EQ(find_parameter(parameter.name), &parameter);
        if (parameter.json[0] != '\0') {
            EXPECT_EQ(find_json_field(parameter.json), &parameter);
        }
    }
}

}  // namespace
}  // namespace rdmalab::perftest

#include "rdmalab/runtime_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "rdmalab/failure.h"

namespace rdmalab::launcher {
namespace {

class RuntimeFolder : public testing::Test {
protected:
    void SetUp() override {
        char pattern[] = "/tmp/rdmalab-unit-XXXXXX";
        folder_ = mkdtemp(pattern);
        setenv("RDMALAB_RUNTIME_DIR", folder_.c_str(), 1);
    }
    void TearDown() override {
        unsetenv("RDMALAB_RUNTIME_DIR");
        unsetenv("RDMALAB_CARD");
        std::filesystem::remove_all(folder_);
    }
    std::filesystem::path folder_;
};

TEST_F(RuntimeFolder, the_explicit_folder_wins_over_the_session_folder) {
    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    EXPECT_EQ(runtime_folder(), folder_);
    unsetenv("RDMALAB_RUNTIME_DIR");
    EXPECT_EQ(runtime_folder(), "/run/user/7/rdmalab");
    unsetenv("XDG_RUNTIME_DIR");
    EXPECT_THAT(runtime_folder().string(),
                testing::AnyOf("/run/rdmalab", testing::StartsWith("/tmp/rdmalab-")));
}

TEST_F(RuntimeFolder, sockets_and_records_name_cards) {
    for (const char* file : {"b.sock", "a.sock", "a.lock", "a.log", "a.netns", "c.netns", "note"}) {
        std::ofstream(folder_ / file) << "";
    }
    EXPECT_THAT(names_in_use(), testing::ElementsAre("a", "b", "c"));
}

TEST_F(RuntimeFolder, a_missing_folder_holds_no_cards) {
    std::filesystem::remove_all(folder_);
    EXPECT_THAT(names_in_use(), testing::IsEmpty());
}

TEST_F(RuntimeFolder, the_card_of_the_surrounding_run_is_the_default) {
    EXPECT_EQ(card_name_or_default(""), "default");
    setenv("RDMALAB_CARD", "lab", 1);
    EXPECT_EQ(card_name_or_default(""), "lab");
    EXPECT_EQ(card_name_or_default("other"), "other");
}

TEST_F(RuntimeFolder, names_that_would_leave_the_folder_are_refused) {
    EXPECT_THROW(check_card_name("../x"), Failure);
    EXPECT_THROW(check_card_name(""), Failure);
    EXPECT_THROW(check_card_name(".hidden"), Failure);
    EXPECT_THROW(check_card_name(std::string(49, 'n')), Failure);
    EXPECT_NO_THROW(check_card_name(std::string(48, 'n')));
    EXPECT_NO_THROW(check_card_name("a.b_c-9"));
}

}  // namespace
}  // namespace rdmalab::launcher

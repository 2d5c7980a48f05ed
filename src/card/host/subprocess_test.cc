#include "card/host/subprocess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>

namespace rdmalab::card::host {
namespace {

using ::testing::HasSubstr;

TEST(Subprocess, success_is_an_exit_status_of_0) { EXPECT_TRUE(run_program({"true"})); }

TEST(Subprocess, input_reaches_the_program) {
    EXPECT_TRUE(run_program({"grep", "-q", "needle"}, "hay\nneedle\n"));
    EXPECT_FALSE(run_program({"grep", "-q", "needle"}, "hay\n"));
}

TEST(Subprocess, an_error_is_what_the_program_printed) {
    const Status status = run_program({"sh", "-c", "echo one; echo two >&2; exit 3"});
    EXPECT_EQ(status.error().text, "sh -c echo one; echo two >&2; exit 3: one;two");
}

TEST(Subprocess, a_silent_error_is_the_exit_status_or_the_signal) {
    EXPECT_EQ(run_program({"sh", "-c", "exit 7"}).error().text, "sh -c exit 7: exit status 7");
    EXPECT_THAT(run_program({"sh", "-c", "kill -9 $$"}).error().text, HasSubstr("signal 9"));
}

TEST(Subprocess, a_program_that_is_not_there_is_named) {
    const Status status = run_program({"rdmalab-no-such-program"});
    EXPECT_EQ(status.code(), ENOENT);
    EXPECT_THAT(status.error().text, HasSubstr("rdmalab-no-such-program"));
}

TEST(Subprocess, signals_that_are_blocked_here_reach_the_program) {
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, &before);
    const Status status = run_program({"sh", "-c", "kill -TERM $$; exit 0"});
    sigprocmask(SIG_SETMASK, &before, nullptr);
    EXPECT_THAT(status.error().text, HasSubstr("signal 15"));
}

}  // namespace
}  // namespace rdmalab::card::host

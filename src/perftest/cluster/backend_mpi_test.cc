#include "perftest/cluster/backend_mpi.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rdmalab::perftest {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(BackendMpi, mpirun_is_called_with_everything_that_is_needed) {
    MpiOptions options;
    options.mpirun = "/opt/mpirun -x A";
    options.program = "/usr/bin/p";
    options.user = "me";
    options.seconds_max = 10;
    std::string line =
        fmt::format("{}", fmt::join(mpirun_words(options, "/tmp/h", 3, "10.0.0.0/24"), " "));
    EXPECT_THAT(line, HasSubstr("/opt/mpirun -x A --allow-run-as-root --bind-to none"));
    EXPECT_THAT(line, HasSubstr("--map-by seq --hostfile /tmp/h -np 3"));
    EXPECT_THAT(line, HasSubstr("--mca mpi_yield_when_idle 1"));
    EXPECT_THAT(line, HasSubstr("--mca btl_tcp_if_include 10.0.0.0/24"));
    EXPECT_THAT(line, HasSubstr("--mca oob_tcp_if_include 10.0.0.0/24"));
    EXPECT_THAT(line, HasSubstr("ConnectTimeout=5 -l me"));
    EXPECT_THAT(line, HasSubstr("--timeout 130 /usr/bin/p --agent"));
    options.seconds_max = 0;
    line = fmt::format("{}", fmt::join(mpirun_words(options, "/tmp/h", 3, ""), " "));
    EXPECT_THAT(line, Not(HasSubstr("if_include")));
    EXPECT_THAT(line, Not(HasSubstr("--timeout")));
}

TEST(BackendMpi, hosts_outside_of_an_allocation_are_named) {
    std::vector<std::string> outside = {"node07", "other"};
    EXPECT_EQ(
        outside_allocation({"node01", "node07", "node04.example.org", "other"}, "node[01-04]"),
        outside);
    EXPECT_TRUE(outside_allocation({"node02"}, "node[01-04]").empty());
}

TEST(BackendMpi, of_what_mpirun_says_the_lines_that_name_a_host_come_first) {
    std::string text = diagnosis(
        "--------------------------------------------------------------------------\n"
        "ORTE was unable to reliably start one or more daemons.\n"
        "plm:rsh: Warning: setpgid(1,1) failed in parent with errno=Permission denied(13)\n"
        "ssh: connect to host node03 port 22: Connection refused\n"
        "ORTE was unable to reliably start one or more daemons.\n"
        "--------------------------------------------------------------------------\n");
    EXPECT_EQ(text,
              "ssh: connect to host node03 port 22: Connection refused | ORTE was unable to "
              "reliably start one or more daemons.");
    EXPECT_EQ(diagnosis(""), "");
}

}  // namespace
}  // namespace rdmalab::perftest

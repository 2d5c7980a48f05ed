#include "rdmalab/lab_plan.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rdmalab/lab_report.h"

namespace rdmalab::launcher {
namespace {

TEST(LabPlan, numbers_hosts_from_one_and_rails_from_88) {
    const Lab lab = Lab::of(12, 2);
    EXPECT_EQ(lab.names(), "node01 to node12");
    const LabHost* const host = lab.find("node12");
    ASSERT_NE(host, nullptr);
    EXPECT_EQ(lab.address(*host, 0), "10.88.0.12");
    EXPECT_EQ(lab.address(*host, 1), "10.89.0.12");
    EXPECT_EQ(lab.find("node13"), nullptr);
}

TEST(LabPlan, the_record_says_everything) {
    Lab lab = Lab::of(2, 3);
    lab.keeper = {77, 1234567890123};
    lab.hosts[1].init = {78, 5};
    lab.mtu = 1500;
    lab.has_ssh = false;
    const auto again = Lab::from_json(lab.to_json());
    ASSERT_TRUE(again);
    EXPECT_EQ(again->to_json(), lab.to_json());
    EXPECT_FALSE(Lab::from_json(Json::array()));
    EXPECT_FALSE(Lab::from_json(Json::parse("{\"hosts\": 1}")));
}

TEST(LabPlan, every_wire_ends_in_its_host_and_at_its_switch) {
    Lab lab = Lab::of(2, 2);
    lab.hosts[0].init.pid = 1000;
    lab.hosts[1].init.pid = 2000;
    const std::string text = wire_commands(lab);
    EXPECT_NE(text.find("link add n2r1 mtu 9000 type veth peer name eth1 mtu 9000 address "
                        "02:88:00:00:01:02 netns 2000\nlink set n2r1 master switch1 up\n"),
              text.npos)
        << text;
    EXPECT_EQ(host_commands(lab, lab.hosts[1]),
              "link set lo up\naddress add 10.88.0.2/24 brd + dev eth0\nlink set eth0 up\n"
              "address add 10.89.0.2/24 brd + dev eth1\nlink set eth1 up\n");
    EXPECT_NE(hosts_file(lab).find("10.88.0.2 node02\n"), std::string::npos);
    EXPECT_NE(hosts_file(lab).find("10.89.0.2 node02-1\n"), std::string::npos);
}

TEST(Processes, are_told_from_later_ones_of_the_same_number) {
    ProcessIdentity self = identify_process(getpid());
    EXPECT_TRUE(is_alive(self));
    self.start += 1;
    EXPECT_FALSE(is_alive(self));
    const pid_t child = fork();
    if (child == 0) _exit(0);
    siginfo_t info{};
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
    EXPECT_EQ(identify_process(child).start, 0u) << "a zombie is dead";
    waitpid(child, nullptr, 0);
    EXPECT_FALSE(is_alive(identify_process(child)));
}

TEST(LabReport, tells_a_wire_that_is_down_from_one_that_is_cut) {
    Lab lab = Lab::of(4, 1);
    lab.hosts[0].init = identify_process(getpid());
    const Json links = Json::parse(R"([{"ifname": "n1r0", "flags": ["BROADCAST", "UP"]},
        {"ifname": "n2r0", "flags": ["UP"]}, {"ifname": "n3r0", "flags": []}])");
    const Json ports = Json::parse(R"([{"ifname": "n1r0", "state": "forwarding"},
        {"ifname": "n2r0", "state": "disabled"}, {"ifname": "n3r0", "state": "disabled"}])");
    const Json status = lab_status(lab, links, ports);
    const char* const kStates[] = {"up", "cut", "down", "gone"};
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(status["hosts"][i]["links"][0], kStates[i]);
    EXPECT_EQ(status["hosts"][0]["state"], "up");
    EXPECT_EQ(status["hosts"][1]["state"], "crashed");
    EXPECT_NE(print_lab_status(status).find("node02  crashed  10.88.0.2  cut"), std::string::npos)
        << print_lab_status(status);
}

}  // namespace
}  // namespace rdmalab::launcher

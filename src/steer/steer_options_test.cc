#include "steer/steer_options.h"

#include <gtest/gtest.h>

#include <sstream>

namespace rdmalab::steer {
namespace {

std::vector<std::string> split(const std::string& line) {
    std::istringstream in(line);
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    return words;
}
FlowSteerOptions flow_steer(const std::string& line) {
    return FlowSteerCommandLine().parse(split(line));
}
PccOptions pcc(const std::string& line) { return PccCommandLine().parse(split(line)); }

template <class Parse>
std::string refusal(Parse parse, const std::string& line) {
    try {
        parse(line);
    } catch (const CLI::ParseError& error) {
        return error.what();
    }
    return "accepted";
}
std::string no_flow_steer(const std::string& line) { return refusal(flow_steer, line); }
std::string no_pcc(const std::string& line) { return refusal(pcc, line); }

const std::string kIngress =
    "-r pci/0000:03:00.0,pf0sf0 -R pci/0000:03:00.0,pf0sf4 --path0-ip 10.0.0.1 --path1-ip "
    "10.0.0.11 ";
const std::string kPcc =
    "--device mlx5_1 -r pci/0000:03:00.1,pf1sf0 --path0-ip 10.0.0.1 --path1-ip 10.0.0.11 ";

TEST(FlowSteerOptions, the_tutorials_ingress_command) {
    const FlowSteerOptions options =
        flow_steer(kIngress + "--role ingress --path0-percent 0.025 --path1-percent 0.05");
    EXPECT_EQ(options.role, Role::kIngress);
    EXPECT_EQ(options.role_text, "ingress");
    EXPECT_EQ(options.pci, "0000:03:00.0");
    ASSERT_EQ(options.paths.size(), 2u);
    EXPECT_EQ(options.paths[0].representor->name, "pf0sf0");
    EXPECT_EQ(options.paths[1].representor->name, "pf0sf4");
    EXPECT_EQ(options.receiver_ips(), (std::vector<std::uint32_t>{0x0a000001, 0x0a00000b}));
    EXPECT_DOUBLE_EQ(options.paths[0].percent, 0.025);
    EXPECT_DOUBLE_EQ(options.paths[1].percent, 0.05);
    EXPECT_EQ(options.buckets, 64u);
    EXPECT_EQ(options.compat, Compat::k3_4);
}

TEST(FlowSteerOptions, roles_have_two_names_and_percentages_a_default_of_100) {
    EXPECT_EQ(flow_steer(kIngress + "--role receiver").role, Role::kIngress);
    EXPECT_EQ(flow_steer(kIngress + "--role sender").role, Role::kEgress);
    EXPECT_EQ(flow_steer(kIngress + "--role egress").role, Role::kEgress);
    EXPECT_EQ(flow_steer(kIngress + "--role both").role, Role::kBoth);
    EXPECT_DOUBLE_EQ(flow_steer(kIngress).paths[1].percent, 100);
    EXPECT_EQ(no_flow_steer(kIngress + "--role router"),
              "--role: 'router' is no role; expected ingress, receiver, egress, sender or both");
}

TEST(FlowSteerOptions, a_role_needs_its_representors) {
    const std::string ips = "--path0-ip 10.0.0.1 --path1-ip 10.0.0.11 ";
    EXPECT_EQ(no_flow_steer("-r pci/0000:03:00.0,pf0sf0 --role ingress " + ips),
              "--path1-rep is missing: role ingress needs the representor of path 1's receiver");
    EXPECT_EQ(no_flow_steer("--role egress " + ips),
              "--path0-rep is missing: role egress needs the representor of the sender");
    EXPECT_EQ(no_flow_steer("-r pci/0000:03:00.0,pf0sf0 -R pci/0000:03:00.1,pf1sf0 " + ips),
              "--path0-rep and --path1-rep are of two switches (0000:03:00.0 and 0000:03:00.1); a "
              "program owns one");
    EXPECT_EQ(no_flow_steer("-r pci/0000:03:00.0,pf0sf0 -R pci/0000:03:00.0,pf0sf0 " + ips),
              "--path0-rep and --path1-rep are both pf0sf0");
    EXPECT_EQ(no_flow_steer("-r pf0sf0 -R pci/0000:03:00.0,pf0sf4 " + ips),
              "--path0-rep: 'pf0sf0' is no representor: it does not begin with 'pci/'; expected "
              "one like pci/0000:03:00.0,pf0sf0");
    EXPECT_EQ(no_flow_steer(kIngress + "-a 03:00.1"),
              "--device is 0000:03:00.1, but the representor pf0sf0 belongs to 0000:03:00.0");
}

TEST(FlowSteerOptions, addresses_must_be_there_and_differ) {
    const std::string representors = "-r pci/0000:03:00.0,pf0sf0 -R pci/0000:03:00.0,pf0sf4 ";
    EXPECT_EQ(no_flow_steer(representors + "--path0-ip 10.0.0.1"),
              "--path1-ip is missing: the receiver of path 1");
    EXPECT_EQ(no_flow_steer(representors + "--path0-ip 10.0.0.1 --path1-ip 10.0.0.1"),
              "--path0-ip and --path1-ip are both 10.0.0.1; a path is known by the address of its "
              "own receiver");
    EXPECT_EQ(no_flow_steer(representors + "--path0-ip 10.0.0.256 --path1-ip 10.0.0.1"),
              "--path0-ip: '10.0.0.256' is no IPv4 address");
    EXPECT_EQ(no_flow_steer(representors + "--path0-ip fd00::1 --path1-ip 10.0.0.1"),
              "--path0-ip: 'fd00::1' is no IPv4 address");
}

TEST(FlowSteerOptions, percentages_are_within_0_and_100) {
    EXPECT_EQ(no_flow_steer(kIngress + "--path0-percent 101"),
              "--path0-percent: 101 is not within 0 and 100 percent");
    EXPECT_EQ(no_flow_steer(kIngress + "--path1-percent=-0.1"),
              "--path1-percent: -0.1 is not within 0 and 100 percent");
    EXPECT_EQ(no_flow_steer(kIngress + "--path1-percent nan"),
              "--path1-percent: nan is not within 0 and 100 percent");
    EXPECT_NE(no_flow_steer(kIngress + "--path1-percent 5%"), "accepted");
    EXPECT_NE(no_flow_steer(kIngress + "--path1-percent half"), "accepted");
    EXPECT_DOUBLE_EQ(flow_steer(kIngress + "--path1-percent 0").paths[1].percent, 0);
}

TEST(FlowSteerOptions, more_paths_have_options_of_the_same_form) {
    const std::string four = kIngress +
                             "--path2-rep pci/0000:03:00.0,pf0sf8 --path2-ip 10.0.0.21 "
                             "--path3-rep pci/0000:03:00.0,pf0sf9 --path3-ip 10.0.0.31 "
                             "--path3-percent 2 ";
    const FlowSteerOptions options = flow_steer(four + "--paths 4 --buckets 256");
    ASSERT_EQ(options.paths.size(), 4u);
    EXPECT_EQ(options.paths[3].ip, 0x0a00001fu);
    EXPECT_EQ(options.buckets, 256u);
    EXPECT_EQ(
        no_flow_steer(four),
        "options of path 2 were given, but there are only 2 paths; expected --paths 3 or more");
    EXPECT_EQ(no_flow_steer(kIngress + "--paths 17"), "--paths: 17 is not within 2 and 16");
    EXPECT_EQ(no_flow_steer(kIngress + "--buckets 48"),
              "--buckets: 48 is no power of two up to 1024");
    EXPECT_EQ(no_flow_steer(kIngress + "--buckets 2048"),
              "--buckets: 2048 is no power of two up to 1024");
    EXPECT_EQ(no_flow_steer(kIngress + "--paths 4 --buckets 2"),
              "--buckets: 2 buckets are fewer than the 4 paths");
}

TEST(FlowSteerOptions, next_hops_are_ports_of_every_path_or_of_none) {
    EXPECT_TRUE(flow_steer(kIngress + "--path0-port p0 --path1-port p2").has_ports());
    EXPECT_FALSE(flow_steer(kIngress).has_ports());
    EXPECT_EQ(no_flow_steer(kIngress + "--path0-port p0"),
              "--path1-port is missing: either every path has its own port, or none has and all "
              "share one cable");
    EXPECT_EQ(no_flow_steer(kIngress + "--path0-port p0 --path1-port p0"),
              "--path0-port and --path1-port are both 'p0'");
}

TEST(FlowSteerOptions, talking_to_a_running_program_needs_nothing_else) {
    const FlowSteerOptions options = flow_steer("--tell 4711 path1-percent 0.1");
    EXPECT_EQ(options.tell.pid, 4711);
    EXPECT_EQ(options.tell.words, (std::vector<std::string>{"path1-percent", "0.1"}));
    EXPECT_EQ(no_flow_steer("--tell 4711"), "--tell: the command is missing; 'help' lists them");
    EXPECT_EQ(no_flow_steer("--tell me help"), "--tell: 'me' is no process id");
    EXPECT_EQ(no_flow_steer(kIngress + "stop"),
              "unexpected argument 'stop'; commands need --tell PID");
}

TEST(PccOptions, the_tutorials_command) {
    const PccOptions options = pcc(kPcc);
    EXPECT_EQ(options.device, "mlx5_1");
    EXPECT_EQ(options.steer_representor->name, "pf1sf0");
    EXPECT_EQ(options.pci, "0000:03:00.1");
    EXPECT_EQ(options.algorithm, "pure_ecn");
    EXPECT_FALSE(options.force_path);
    EXPECT_DOUBLE_EQ(options.wait_s, -1);
}

TEST(PccOptions, without_a_representor_it_only_runs_the_algorithm) {
    EXPECT_FALSE(pcc("-d mlx5_1").steer_representor);
    EXPECT_EQ(no_pcc("-d mlx5_1 --path0-ip 10.0.0.1"),
              "--steer-rep is missing: without the sender's representor there is no steering");
    EXPECT_EQ(no_pcc("-r pci/0000:03:00.1,pf1sf0"),
              "--device is missing: the RDMA device of the PF, like mlx5_1");
}

TEST(PccOptions, threads_are_a_list_and_one_worker_each) {
    const PccOptions options = pcc("-d mlx5_1 -t 176,178-180");
    EXPECT_EQ(options.threads, (std::vector<std::uint32_t>{176, 178, 179, 180}));
    EXPECT_EQ(options.workers, 4u);
    EXPECT_EQ(no_pcc("-d mlx5_1 -t many"),
              "--threads: 'many' is no list of numbers like \"0 2-5 8\"");
    EXPECT_EQ(no_pcc("-d mlx5_1 -t 1-100"), "--threads: 100 threads are more than 64");
    EXPECT_EQ(no_pcc("-d mlx5_1 -t 5-1"), "--threads: '5-1' holds a range that cannot be");
}

TEST(PccOptions, the_path_may_be_forced_in_releases_that_can) {
    EXPECT_EQ(pcc(kPcc + "--force-path 1").force_path, 1u);
    EXPECT_EQ(no_pcc(kPcc + "--force-path 2"), "--force-path: '2' is no path; expected 0 to 1");
    EXPECT_EQ(no_pcc(kPcc + "--force-path 0 --compat 2.9"),
              "--force-path needs --compat 3.1 or 3.4");
    EXPECT_EQ(no_pcc(kPcc + "--compat 2.7"),
              "--compat: '2.7' is not supported; expected 2.9, 3.1 or 3.4");
}

TEST(PccOptions, the_remote_handler_has_a_long_name_behind_one_dash) {
    EXPECT_TRUE(pcc("-d mlx5_1 -r-handler").remote_sw_handler);
    EXPECT_FALSE(pcc(kPcc).remote_sw_handler);
}

TEST(PccOptions, resources_need_their_key) {
    EXPECT_EQ(no_pcc("-d mlx5_1 --dpa-app-key pcc"), "--dpa-app-key needs --dpa-resources");
    EXPECT_EQ(no_pcc("-d mlx5_1 --dpa-resources /nowhere --dpa-app-key pcc"),
              "--dpa-resources: cannot read '/nowhere'");
}

}  // namespace
}  // namespace rdmalab::steer

#include "card/host/admin.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <nlohmann/json.hpp>

#include "card/host/daemon_fixture.h"

namespace rdmalab::card::host {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Reply = ControlClient::Reply;

class Administration : public DaemonTest {
protected:
    Administration() : client_(connect()) {}
    json ask(std::string_view text, int fd = -1) {
        const Reply reply = admin(client_, text, fd);
        EXPECT_EQ(reply.status, 0) << reply.text;
        return json::parse(reply.text, nullptr, false);
    }
    void refuse(std::string_view text, int status, std::string_view expected, int fd = -1) {
        const Reply reply = admin(client_, text, fd);
        EXPECT_EQ(reply.status, status) << text;
        EXPECT_EQ(reply.text, expected) << text;
    }
    ControlClient client_;
};

TEST_F(Administration, status_describes_the_card) {
    const json status = ask(R"({"op":"status"})");
    EXPECT_EQ(status["name"], "test");
    EXPECT_EQ(status["pid"], ::getpid());
    EXPECT_EQ(status["version"], RDMALAB_VERSION);
    EXPECT_EQ(status["seed"], 1);
    EXPECT_EQ(status["topology"], "loopback");
    EXPECT_EQ(status["socket"], socket_);
    EXPECT_GE(status["uptime_s"], 0.0);
    ASSERT_EQ(status["functions"].size(), 5u);
    const json& third = status["functions"][2];
    EXPECT_EQ(third["device"], "mlx5_2");
    EXPECT_EQ(third["kind"], "sf");
    EXPECT_EQ(third["representor"], "pf0sf0");
    EXPECT_EQ(third["pci"], "0000:03:00.0");
    EXPECT_EQ(third["mac"], "02:00:00:00:00:03");
    EXPECT_EQ(third["ips"], json::array({"10.0.0.1"}));
    EXPECT_EQ(third["netns"], "ns0");
    EXPECT_EQ(third["guid"].get<std::string>().size(), 16u);
    EXPECT_EQ(third["qps"], 0);
    EXPECT_EQ(third["mrs"], 0);
    EXPECT_EQ(status["ports"], json::parse(R"([{"name":"p0","pf":"mlx5_0"},
                                               {"name":"p1","pf":"mlx5_1"}])"));
    EXPECT_EQ(status["cables"][0]["a"], "p0");
    EXPECT_EQ(status["cables"][0]["a_to_b"]["loss"], 0.0);
    EXPECT_EQ(status["captures"], json::array());
    EXPECT_EQ(status["cm"], json::parse(R"({"sessions":0,"ids":0,"ports":0,"connections":0})"));
}

TEST_F(Administration, counters_are_given_per_port_function_cable_and_host) {
    const json counters = ask(R"({"op":"counters"})");
    EXPECT_GT(counters["time_ns"], 0);
    EXPECT_EQ(counters["ports"]["p0"]["tx_frames"], 0);
    EXPECT_EQ(counters["functions"]["mlx5_3"]["np_cnp_sent"], 0);
    EXPECT_EQ(counters["functions"]["mlx5_3"]["vport_rx_bytes"], 0);
    EXPECT_EQ(counters["functions"]["mlx5_3"]["cm_rx_mads"], 0);
    EXPECT_EQ(counters["cables"]["cable0"]["b_to_a"]["ce_marked"], 0);
    EXPECT_GT(counters["host"]["rounds"], 0);
}

TEST_F(Administration, a_link_request_changes_what_it_names_and_nothing_else) {
    json cable = ask(R"({"op":"link","cable":"cable0","loss":"1%","delay":"5us"})");
    EXPECT_EQ(cable["a_to_b"]["loss"], 0.01);
    EXPECT_EQ(cable["b_to_a"]["loss"], 0.01);
    EXPECT_EQ(cable["a_to_b"]["delay_ns"], 5000);
    cable = ask(R"({"op":"link","cable":"cable0","direction":"b_to_a","rate_bps":1000000000,
                    "loss":0})");
    EXPECT_EQ(cable["a_to_b"]["rate_bps"], 0);
    EXPECT_EQ(cable["b_to_a"]["rate_bps"], 1'000'000'000);
    EXPECT_EQ(cable["a_to_b"]["loss"], 0.01);
    EXPECT_EQ(cable["b_to_a"]["loss"], 0.0);
    EXPECT_EQ(cable["b_to_a"]["delay_ns"], 5000);
    EXPECT_EQ(ask(R"({"op":"status"})")["cables"][0], cable);
}

TEST_F(Administration, all_errors_of_a_link_request_are_told_together) {
    refuse(R"({"op":"link","cable":"cable0","direction":"up","loss":"1x%","delay_ns":-1,"los":1})",
           EINVAL,
           "\"direction\": expected \"both\", \"a_to_b\" or \"b_to_a\", found \"up\"\n"
           "\"delay_ns\": expected nanoseconds, from 0 to one hour, found -1\n"
           "\"loss\": expected a probability from 0 to 1 such as \"1%\" or \"0.01\", found "
           "\"1x%\"\n"
           "\"los\": expected one of direction, rate, rate_bps, delay, delay_ns, jitter, "
           "jitter_ns, loss, reorder, duplicate, corrupt, ce, verify_icrc, found an unknown key");
    EXPECT_EQ(ask(R"({"op":"status"})")["cables"][0]["a_to_b"]["loss"], 0.0);
}

TEST_F(Administration, wrong_requests_say_what_was_expected) {
    refuse("hello", EINVAL, "a request: expected a JSON object, found something else");
    refuse("[]", EINVAL, "a request: expected a JSON object, found something else");
    refuse("{}", EINVAL,
           "\"op\": expected one of status, counters, link, cc, cc_set, cc_parameter, "
           "cc_answer, pcap_start, pcap_stop, flow, flow_trace, flow_trace_read, shutdown, found "
           "nothing");
    refuse(R"({"op":"stop"})", EINVAL,
           "\"op\": expected one of status, counters, link, cc, cc_set, cc_parameter, "
           "cc_answer, pcap_start, pcap_stop, flow, flow_trace, flow_trace_read, shutdown, found "
           "\"stop\"");
    refuse(R"({"op":"link","cable":"c7"})", ENOENT,
           "\"cable\": expected the name of a cable (cable0), found \"c7\"");
    refuse(R"({"op":"pcap_stop","id":4})", ENOENT,
           "expected the id of a capture that this connection started, found 4");
    refuse(R"({"op":"pcap_start","at":"p0"})", EINVAL,
           "expected a descriptor to write to (SCM_RIGHTS), found none");
    refuse(R"({"op":"pcap_start","at":"p0","snap_length":1})", EINVAL,
           "\"snap_length\": expected 64 to 262144 bytes, found 1", STDERR_FILENO);
}

TEST_F(Administration, deeply_nested_json_does_no_harm) {
    refuse(R"({"op":)" + std::string(30'000, '[') + std::string(30'000, ']') + "}", EINVAL,
           "\"op\": expected one of status, counters, link, cc, cc_set, cc_parameter, "
           "cc_answer, pcap_start, pcap_stop, flow, flow_trace, flow_trace_read, shutdown, found "
           "an array");
}

TEST_F(Administration, a_capture_writes_a_file_header_and_is_listed_until_it_is_stopped) {
    const UniqueFd file(::memfd_create("capture", MFD_CLOEXEC));
    const json id = ask(R"({"op":"pcap_start","at":"p0"})", file.value())["id"];
    const json listed = ask(R"({"op":"status"})")["captures"];
    ASSERT_EQ(listed.size(), 1u);
    EXPECT_EQ(listed[0]["at"], "p0");
    EXPECT_THAT(listed[0]["file"].get<std::string>(), HasSubstr("memfd:capture"));
    const json ended = ask(json{{"op", "pcap_stop"}, {"id", id}}.dump());
    EXPECT_EQ(ended["frames"], 0);
    EXPECT_EQ(ended["error"], "");
    std::uint32_t block_type = 0;
    ASSERT_EQ(::pread(file.value(), &block_type, sizeof block_type, 0), 4);
    EXPECT_EQ(block_type, 0x0a0d0d0au);
    EXPECT_EQ(ask(R"({"op":"status"})")["captures"], json::array());
}

TEST_F(Administration, a_capture_ends_with_the_connection_that_asked_for_it) {
    const UniqueFd file(::memfd_create("capture", MFD_CLOEXEC));
    ControlClient other = connect();
    ASSERT_EQ(admin(other, R"({"op":"pcap_start","at":"pf0sf0"})", file.value()).status, 0);
    EXPECT_EQ(ask(R"({"op":"status"})")["captures"].size(), 1u);
    other.close();
    for (int i = 0; i < 500 && ask(R"({"op":"status"})")["captures"].size() != 0; ++i) {
        ::usleep(10'000);
    }
    EXPECT_EQ(ask(R"({"op":"status"})")["captures"].size(), 0u);
}

TEST_F(Administration, a_capture_to_a_full_device_is_refused_with_the_reason) {
    const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
    refuse(R"({"op":"pcap_start","at":"p0"})", ENOSPC,
           "cannot write the capture /dev/full: No space left on device", full.value());
}

}  // namespace
}  // namespace rdmalab::card::host

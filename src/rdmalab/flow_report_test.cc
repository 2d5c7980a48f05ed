#include "rdmalab/flow_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rdmalab::launcher {
namespace {

using testing::HasSubstr;
using testing::Not;

const Json& domain() {
    static const Json kDomain = Json::parse(R"json({
        "pf": "mlx5_1", "owner": "process 7 (pcc)",
        "ports": [{"id":0,"name":"p1","kind":"wire"}, {"id":2,"name":"pf1sf0","kind":"vport"}],
        "drops": {"no_root":0,"dropped":3,"loops":0}, "counters_used":1, "counters_max":64,
        "pipes": [
          {"id":1,"name":"DELIVER_WIRE","type":"BASIC","root":false,"algorithms":[],"match":[],
           "miss":{"kind":"none"},"entries_max":1,"live":1,"retired":0,"hits":12,
           "misses":{"packets":0,"bytes":0},
           "entries":[{"id":1,"match":[],"actions":["outer.ipv4.dscp_ecn=0x4/0x4"],
                       "forward":{"kind":"port","name":"p1"},
                       "counter":{"packets":1234,"bytes":5678}}]},
          {"id":2,"name":"DISPATCH","type":"HASH","root":true,"algorithms":["RANDOM"],
           "match":["meta.u32[4]=*"],"miss":{"kind":"pipe","id":1,"name":"DELIVER_WIRE"},
           "entries_max":4,"live":3,"retired":1,"hits":5,"misses":{"packets":2,"bytes":9},
           "entries":[{"id":2,"index":0,"match":[],"actions":[],
                       "forward":{"kind":"pipe","id":1,"name":"DELIVER_WIRE"}},
                      {"id":3,"index":1,"match":[],"actions":[],
                       "forward":{"kind":"pipe","id":1,"name":"DELIVER_WIRE"}},
                      {"id":4,"index":2,"match":[],"actions":[],
                       "forward":{"kind":"rss","queues":[0,3]}}]}]})json");
    return kDomain;
}

TEST(FlowReport, a_dump_shows_owner_pipes_and_entries) {
    const std::string text = print_domain(domain(), 2);
    EXPECT_THAT(text, HasSubstr("mlx5_1: owned by process 7 (pcc)\n  ports p1, pf1sf0\n"));
    EXPECT_THAT(text, HasSubstr("dropped 3 by the pipes"));
    EXPECT_THAT(text, HasSubstr("entry 1: everything | outer.ipv4.dscp_ecn=0x4/0x4 -> port p1  "
                                "(1,234 packets, 5,678 bytes)\n    miss -> drop\n"));
    EXPECT_THAT(text,
                HasSubstr("DISPATCH (HASH by RANDOM, root): 3 of 4 entries, 5 hits, 2 misses"));
    EXPECT_THAT(text, HasSubstr("1 entries retired, not yet free"));
    EXPECT_THAT(text, HasSubstr("entry 3: index 1 -> DELIVER_WIRE\n    ... and 1 more (--all"));
    EXPECT_THAT(print_domain(domain(), 3),
                HasSubstr("entry 4: index 2 -> queue 0, 3\n    miss ->"));
    EXPECT_EQ(print_domain(Json::parse(R"({"pf":"mlx5_0","owner":null})"), 8),
              "mlx5_0: default forwarding, no owner\n");
}

TEST(FlowReport, counters_are_a_table) {
    const std::string text = print_flow_counters(domain());
    EXPECT_THAT(text, HasSubstr("DELIVER_WIRE  everything"));
    EXPECT_THAT(text, HasSubstr("1,234"));
    EXPECT_THAT(text, HasSubstr("(miss)"));
    EXPECT_EQ(print_flow_counters(Json::parse(R"({"pf":"mlx5_0"})")), "mlx5_0: no pipes\n");
}

TEST(FlowReport, a_drawing_joins_ports_and_pipes) {
    const std::string dot = draw_domains(Json::array({domain()}));
    EXPECT_THAT(dot, HasSubstr("digraph flow {"));
    EXPECT_THAT(dot, HasSubstr(R"("mlx5_1/port/pf1sf0" -> "mlx5_1/pipe/2";)"));
    EXPECT_THAT(dot, HasSubstr(R"("mlx5_1/pipe/2" -> "mlx5_1/pipe/1" [label="2 entries"];)"));
    EXPECT_THAT(dot, HasSubstr(R"("mlx5_1/pipe/2" -> "mlx5_1/pipe/1" [style=dashed label=miss];)"));
    EXPECT_THAT(dot, HasSubstr(R"("mlx5_1/pipe/1" -> "mlx5_1/port/p1" [label="everything"];)"));
    EXPECT_THAT(dot, HasSubstr(R"(label="queue 0, 3")"));
}

TEST(FlowReport, a_traced_packet_tells_hits_misses_and_changes) {
    const Json packet = Json::parse(R"({"number":1,"ingress":"pf1sf0","length":90,
        "summary":"10.0.0.2 > 10.0.0.1 RC SEND Only","cut":false,"steps":[
        {"pipe":"QP1_CHECK","branch":0,"outcome":"miss","reason":"no entry has these values",
         "entry":0,"matched":["outer.roce_v2.bth.dest_qp=0x102"],"changed":[],
         "forward":{"kind":"pipe","id":3,"name":"REWRITE"}},
        {"pipe":"REWRITE","branch":2,"outcome":"hit","reason":"","entry":9,"matched":[],
         "changed":["outer.ipv4.dscp_ecn 0x2 -> 0x6"],"forward":{"kind":"port","name":"p1"}}]})");
    EXPECT_EQ(print_traced_packet(packet),
              "packet 1 from pf1sf0, 90 bytes: 10.0.0.2 > 10.0.0.1 RC SEND Only\n"
              "  QP1_CHECK: miss, no entry has these values (outer.roce_v2.bth.dest_qp=0x102) -> "
              "REWRITE\n"
              "  copy 2 | REWRITE: hit entry 9 | outer.ipv4.dscp_ecn 0x2 -> 0x6 -> port p1\n");
}

}  // namespace
}  // namespace rdmalab::launcher

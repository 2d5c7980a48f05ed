// The runtime with algorithms that are functions of this file.
#include "pcc/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "pcc/algorithm_entry.h"

namespace rdmalab::pcc {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// What the algorithm under test saw, and what it is to do.
struct Script {
    std::vector<doca_pcc_dev_event_t> events;
    std::vector<std::uint32_t> slots, counts;
    std::uint32_t rate = 1000, rtt_req = 0, disabled = 0;
    doca_pcc_dev_error_t verdict = DOCA_PCC_DEV_STATUS_OK;
    bool is_registered = true;
    std::uint32_t initial = 5;
};
Script* script = nullptr;

void init(std::uint32_t* disabled) {
    *disabled |= script->disabled;
    if (!script->is_registered) return;
    static const char kName[] = "scripted", kParameter[] = "gain", kCounter[] = "seen";
    doca_pcc_dev_algo_meta_data meta{};
    meta.algo_id = 0x77;
    meta.algo_major_version = 1;
    meta.algo_minor_version = 2;
    meta.algo_desc_size = sizeof kName;
    meta.algo_desc_addr = reinterpret_cast<std::uint64_t>(kName);
    doca_pcc_dev_algo_init_metadata(0, &meta, 2, 1);
    doca_pcc_dev_algo_init_param(0, 0, script->initial, 100, 1, 1, sizeof kParameter,
                                 reinterpret_cast<std::uint64_t>(kParameter));
    doca_pcc_dev_algo_init_param(0, 1, 3, 3, 3, 0, 0, 0);
    doca_pcc_dev_algo_init_counter(0, 0, 9, 2, sizeof kCounter,
                                   reinterpret_cast<std::uint64_t>(kCounter));
    for (std::uint32_t port = 0; port < 4; ++port) doca_pcc_dev_init_algo_slot(port, 0, 0, 1);
}

void handle(doca_pcc_dev_algo_ctxt_t* context, doca_pcc_dev_event_t* event,
            const doca_pcc_dev_attr_t* attributes, doca_pcc_dev_results_t* results) {
    const std::uint32_t port = doca_pcc_dev_get_ev_attr(event).port_num;
    script->events.push_back(*event);
    script->slots.push_back(attributes->algo_slot);
    script->counts.push_back(++context->data[11]);
    if (std::uint32_t* const counters = doca_pcc_dev_get_counters(port, attributes->algo_slot))
        ++counters[0];
    doca_pcc_dev_printf("event %u", doca_pcc_dev_get_ev_attr(event).ev_type);
    doca_pcc_dev_trace_5(7, 1, 2, 3, 4, doca_pcc_dev_get_timer());
    results->rate = script->rate;
    results->rtt_req = script->rtt_req;
}

doca_pcc_dev_error_t set_parameters(std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t,
                                    const std::uint32_t*, std::uint32_t*) {
    return script->verdict;
}

doca_pcc_dev_error_t mailbox(void* request, std::uint32_t request_size, std::uint32_t response_max,
                             void* response, std::uint32_t* response_size) {
    if (request_size != 4) return DOCA_PCC_DEV_STATUS_FAIL;
    std::memcpy(response, request, 4);
    *response_size = response_max > 8 ? response_max + 1 : 4;
    return DOCA_PCC_DEV_STATUS_OK;
}

struct RuntimeTest : testing::Test {
    RuntimeTest() {
        script = &own;
        options.print = [this](const std::string& text) { printed.push_back(text); };
        entry.init = init;
        entry.handle = handle;
        entry.set_parameters = set_parameters;
        entry.mailbox = mailbox;
    }
    Runtime& make() {
        runtime = std::make_unique<Runtime>(entry, options);
        return *runtime;
    }
    Runtime& started() {
        EXPECT_TRUE(make().start().ok());
        return *runtime;
    }
    static Event event(EventType type, std::uint32_t flow = 1) {
        Event e;
        e.type = type;
        e.flow = flow;
        e.qpn = 0xabcdef;
        e.port = 1;
        e.timestamp_ns = 0x1'2345'6789;
        return e;
    }
    Script own;
    AlgorithmEntry entry;
    RuntimeOptions options;
    std::vector<std::string> printed;
    std::unique_ptr<Runtime> runtime;
};

TEST_F(RuntimeTest, events_have_the_layout_of_the_interface) {
    Runtime& r = started();
    Event tx = event(EventType::kTx);
    tx.flags = kTxProbeSent | kTxAckExpected;
    tx.sn = 0x123456;
    tx.tx = {0x1'0000'0007, 64'000, 17, 0};
    r.handle(0, tx);
    doca_pcc_dev_event_t& seen = own.events.at(0);
    EXPECT_EQ(doca_pcc_dev_get_ev_attr(&seen).ev_type, DOCA_PCC_DEV_EVNT_ROCE_TX);
    EXPECT_EQ(doca_pcc_dev_get_ev_attr(&seen).port_num, 1);
    EXPECT_EQ(doca_pcc_dev_get_ev_attr(&seen).flags,
              DOCA_PCC_DEV_TX_FLAG_RTT_REQ_SENT | DOCA_PCC_DEV_TX_FLAG_ACK_EXPECTED);
    EXPECT_EQ(doca_pcc_dev_get_flowtag(&seen), 1u);
    EXPECT_EQ(doca_pcc_dev_get_sn(&seen), 0x123456u);
    EXPECT_EQ(doca_pcc_dev_get_timestamp(&seen), 0x2345'6789u);
    EXPECT_EQ(doca_pcc_dev_get_roce_first_timestamp(&seen), 7u);
    EXPECT_EQ(doca_pcc_dev_get_roce_tx_cntrs(&seen).sent_32bytes, 2000);
    EXPECT_EQ(doca_pcc_dev_get_roce_tx_cntrs(&seen).sent_pkts, 17);
    EXPECT_EQ(doca_pcc_dev_get_flow_qpn(&seen), 0xabcdefu);
    EXPECT_EQ(doca_pcc_dev_get_ttl_hoplimit(&seen), 0u);
    // Words in network order: the QPN 8 bytes into the TX part, as one public program reads it.
    std::uint32_t word = 0;
    std::memcpy(&word, reinterpret_cast<const std::byte*>(&seen.ev_spec_attr.roce_tx) + 8, 4);
    EXPECT_EQ(__builtin_bswap32(word) & 0xff'ffff, 0xabcdefu);
}

TEST_F(RuntimeTest, feedback_and_rtt_events_have_their_facts) {
    Runtime& r = started();
    Event nack = event(EventType::kNack);
    nack.subtype = 2;
    nack.feedback = {5, 77, 3, 0};
    r.handle(0, nack);
    Event rtt = event(EventType::kRtt);
    rtt.rtt = {10, 20, 30};
    r.handle(0, rtt);
    EXPECT_EQ(doca_pcc_dev_get_ev_attr(&own.events[0]).ev_subtype, DOCA_PCC_DEV_NACK_EVNT_OOS);
    EXPECT_EQ(doca_pcc_dev_get_roce_ack_first_sn(&own.events[0]), 77u);
    EXPECT_EQ(doca_pcc_dev_get_ack_nack_cnp_extra(&own.events[0]).num_coalesced, 3u);
    EXPECT_EQ(doca_pcc_dev_get_rtt_req_send_timestamp(&own.events[1]), 10u);
    EXPECT_EQ(doca_pcc_dev_get_rtt_req_recv_timestamp(&own.events[1]), 20u);
    EXPECT_EQ(doca_pcc_dev_get_rtt_resp_send_timestamp(&own.events[1]), 30u);
    EXPECT_EQ(doca_pcc_dev_get_rtt_raw_data(&own.events[1])[3], 10);
}

TEST_F(RuntimeTest, counts_that_do_not_fit_are_the_largest_that_do) {
    Event tx = event(EventType::kTx);
    tx.tx = {0, 1u << 30, 100'000, 0};
    started().handle(0, tx);
    EXPECT_EQ(doca_pcc_dev_get_roce_tx_cntrs(&own.events[0]).sent_32bytes, 0xffff);
    EXPECT_EQ(doca_pcc_dev_get_roce_tx_cntrs(&own.events[0]).sent_pkts, 0xffff);
}

TEST_F(RuntimeTest, each_flow_has_its_own_state_until_it_is_gone) {
    Runtime& r = started();
    for (const std::uint32_t flow : {1u, 1u, 2u, 1u}) r.handle(0, event(EventType::kCnp, flow));
    EXPECT_THAT(own.counts, testing::ElementsAre(1, 2, 1, 3));
    EXPECT_EQ(r.statistics().flows, 2u);
    r.handle(0, event(EventType::kFlowGone, 1));
    EXPECT_THAT(own.events, SizeIs(4));
    r.handle(0, event(EventType::kCnp, 1));
    EXPECT_EQ(own.counts.back(), 1u);
}

TEST_F(RuntimeTest, answers_are_checked) {
    Runtime& r = started();
    own.rtt_req = 1;
    RateAnswer answer = r.handle(0, event(EventType::kCnp));
    EXPECT_EQ(answer.rate, 1000u);
    EXPECT_TRUE(answer.wants_probe && answer.is_changed && answer.is_valid());
    EXPECT_FALSE(r.handle(0, event(EventType::kCnp)).is_changed);
    for (const std::uint32_t rate : {0u, kRateMax + 1}) {
        own.rate = rate;
        EXPECT_FALSE(r.handle(0, event(EventType::kCnp)).is_valid());
    }
    EXPECT_EQ(r.statistics().bad_rates, 2u);
    EXPECT_EQ(r.statistics().probes_wanted, 4u);
}

TEST_F(RuntimeTest, disabled_types_of_events_do_not_reach_the_algorithm) {
    own.disabled = 1u << DOCA_PCC_DEV_EVNT_ROCE_ACK;
    Runtime& r = started();
    r.handle(0, event(EventType::kAck));
    r.handle(0, event(EventType::kNack));
    EXPECT_THAT(own.events, SizeIs(1));
    EXPECT_EQ(r.statistics().events_suppressed, 1u);
}

TEST_F(RuntimeTest, text_and_trace_reach_the_host) {
    Runtime& r = started();
    r.handle(0, event(EventType::kCnp));
    EXPECT_THAT(printed, testing::ElementsAre("event 2"));
    TraceRecord records[4];
    EXPECT_EQ(r.poll_trace(records), 0u) << "not flushed";
    r.flush_trace();
    ASSERT_EQ(r.poll_trace(records), 1u);
    const TraceMessage message = decode_trace(records[0], TraceLayout::k3_4);
    EXPECT_EQ(message.format, 7u);
    EXPECT_EQ(message.sequence, 0u);
    EXPECT_EQ(message.time_ns, 0x1'2345'6789u);
    EXPECT_EQ(message.arguments[1], 2u);
    EXPECT_EQ(message.arguments[4], 0x1'2345'6789u / 1000) << "timers are microseconds";
}

TEST_F(RuntimeTest, a_full_buffer_is_flushed_and_records_without_room_are_counted) {
    options.trace_capacity = 128;
    Runtime& r = started();
    for (int i = 0; i < 64; ++i) r.handle(0, event(EventType::kCnp));
    TraceRecord record[1];
    EXPECT_EQ(r.poll_trace(record), 1u);
    for (int i = 0; i < 128; ++i) r.handle(0, event(EventType::kCnp));
    EXPECT_EQ(r.statistics().trace_lost, 63u);
}

TEST_F(RuntimeTest, parameters_can_be_listed_and_set_within_their_limits) {
    Runtime& r = started();
    const auto all = r.algorithms();
    ASSERT_THAT(all, SizeIs(1));
    EXPECT_EQ(all[0].id, 0x77u);
    EXPECT_EQ(all[0].text, "scripted");
    ASSERT_THAT(all[0].parameters, SizeIs(2));
    EXPECT_EQ(all[0].parameters[0].text, "gain");
    EXPECT_EQ(all[0].parameters[0].value, 5u);
    EXPECT_TRUE(r.set_parameter(0, 0, 42).ok());
    EXPECT_EQ(r.algorithms()[0].parameters[0].value, 42u);
    EXPECT_EQ(r.set_parameter(0, 0, 101).code(), ERANGE);
    EXPECT_THAT(r.set_parameter(0, 0, 0).error().text, HasSubstr("expected 1 to 100, found 0"));
    EXPECT_EQ(r.set_parameter(0, 1, 3).code(), EACCES);
    EXPECT_EQ(r.set_parameter(0, 2, 3).code(), ENOENT);
    EXPECT_EQ(r.set_parameter(9, 0, 3).code(), ENOENT);
    own.verdict = DOCA_PCC_DEV_STATUS_FAIL;
    EXPECT_EQ(r.set_parameter(0, 0, 43).code(), EINVAL);
    EXPECT_EQ(r.algorithms()[0].parameters[0].value, 42u);
}

TEST_F(RuntimeTest, counters_can_be_listed_and_reset) {
    Runtime& r = started();
    for (int i = 0; i < 3; ++i) r.handle(0, event(EventType::kCnp));
    EXPECT_EQ(r.algorithms()[0].counters.at(0).value, 3u);
    EXPECT_EQ(r.algorithms()[0].counters.at(0).text, "seen");
    EXPECT_TRUE(r.reset_counters(0).ok());
    EXPECT_EQ(r.algorithms()[0].counters.at(0).value, 0u);
}

TEST_F(RuntimeTest, an_algorithm_that_registers_nothing_is_refused) {
    own.is_registered = false;
    const Status status = make().start();
    EXPECT_EQ(status.code(), EINVAL);
    EXPECT_THAT(status.error().text, HasSubstr("doca_pcc_dev_init_algo_slot"));
}

TEST_F(RuntimeTest, a_default_outside_of_its_range_is_refused) {
    own.initial = 1000;
    EXPECT_THAT(make().start().error().text,
                HasSubstr("expected a default of 1 to 100, found 1000"));
}

TEST_F(RuntimeTest, the_mailbox_is_passed_on) {
    Runtime& r = started();
    const std::vector<std::byte> request(4, std::byte{9});
    const auto response = r.mailbox(request, 8);
    ASSERT_TRUE(response.ok());
    EXPECT_EQ(*response, request);
    EXPECT_EQ(r.mailbox({}, 8).error().code, EPROTO);
    EXPECT_EQ(r.mailbox(request, 16).error().code, EPROTO) << "a size that is too large";
    entry.mailbox = nullptr;
    EXPECT_EQ(started().mailbox(request, 8).error().code, EOPNOTSUPP);
}

TEST_F(RuntimeTest, a_dump_names_parameters_and_flows) {
    Runtime& r = started();
    r.handle(0, event(EventType::kCnp, 0xbeef));
    EXPECT_THAT(r.debug_dump(), HasSubstr("gain"));
    EXPECT_THAT(r.debug_dump(), HasSubstr("flow 0x0000beef rate 1000"));
}

TEST(Trace, both_layouts_keep_the_message) {
    TraceMessage message;
    message.format = 6;
    message.sequence = 99;
    message.worker = 3;
    message.time_ns = 123'456'789;
    for (std::uint64_t i = 0; i < 5; ++i) message.arguments[i] = i + 100;
    for (const TraceLayout layout : {TraceLayout::k3_1, TraceLayout::k3_4}) {
        const TraceRecord record = encode_trace(message, layout);
        const TraceMessage back = decode_trace(record, layout);
        EXPECT_EQ(back.worker, 3u);
        EXPECT_EQ(back.time_ns, message.time_ns);
        EXPECT_EQ(back.arguments[4], 104u);
        // Arguments begin at byte 16 or 24.
        std::uint64_t first = 0;
        std::memcpy(
            &first,
            reinterpret_cast<const std::byte*>(&record) + (layout == TraceLayout::k3_1 ? 16 : 24),
            sizeof first);
        EXPECT_EQ(first, 100u);
        const auto report = flow_report(back);
        ASSERT_TRUE(report);
        EXPECT_EQ(report->qpn, 100u);
        EXPECT_EQ(report->rate, 101u);
    }
    message.format = 5;
    EXPECT_FALSE(flow_report(message));
}

TEST(Trace, mailbox_answers_of_a_wrong_shape_are_refused) {
    std::vector<std::byte> response(kMailboxResponseSize);
    store_bytes(response.data(), kMailboxVersion);
    store_bytes(response.data() + 4, std::uint32_t{1});
    store_bytes(response.data() + 8, std::uint32_t{2});
    store_bytes(response.data() + 12, std::uint32_t{0x123});
    store_bytes(response.data() + 16, std::uint32_t{456});
    const auto reports = parse_flow_reports(response);
    ASSERT_TRUE(reports);
    ASSERT_THAT(reports->flows, SizeIs(1));
    EXPECT_EQ(reports->flows[0].qpn, 0x123u);
    EXPECT_EQ(reports->dropped, 2u);
    store_bytes(response.data() + 4, std::uint32_t{65});
    EXPECT_FALSE(parse_flow_reports(response));
    store_bytes(response.data() + 4, std::uint32_t{1});
    store_bytes(response.data(), kMailboxVersion + 1);
    EXPECT_FALSE(parse_flow_reports(response));
    response.pop_back();
    EXPECT_FALSE(parse_flow_reports(response));
}

// The fixed-point helpers against real numbers.
TEST(FixedPoint, helpers_are_near_the_real_functions) {
    for (const double x : {0.01, 0.5, 1.0, 1.5, 2.0, 3.7, 9.99}) {
        const auto fixed = static_cast<std::uint32_t>(x * 65536);
        const double real = fixed / 65536.0;
        EXPECT_NEAR(doca_pcc_dev_fxp_recip(fixed) / 65536.0, 1 / real, 1 / real * 1e-4 + 1e-4);
        EXPECT_NEAR(doca_pcc_dev_fxp_power2(fixed) / 65536.0, std::exp2(real),
                    std::exp2(real) * 2e-4);
        if (x < 1) continue;
        EXPECT_NEAR(doca_pcc_dev_fxp_log2(fixed) / 65536.0, std::log2(real), 1e-4);
    }
    EXPECT_EQ(doca_pcc_dev_fxp_mult(58982, 1u << 20), 943712u);
    EXPECT_EQ(doca_pcc_dev_fls(0), 0u);
    EXPECT_EQ(doca_pcc_dev_fls(1), 1u);
    EXPECT_EQ(doca_pcc_dev_fls(0x8000'0000), 32u);
    EXPECT_EQ(doca_pcc_dev_mult(0xffff'ffff, 0xffff'ffff), 0xffff'fffe'0000'0001ull);
}

}  // namespace
}  // namespace rdmalab::pcc

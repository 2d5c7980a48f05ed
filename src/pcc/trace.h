// What an algorithm reports to its host. Two channels, as the programming interface has them:
//
// * trace records (DOCA 3.x): fixed 64-byte binary records; `format` says which message it is. The
//   layouts of 3.1 and 3.4 differ; a process is started for one of them.
// * the mailbox (DOCA 2.9): a request and an answer of bytes, polled by the host program.
//
// The shipped ECN algorithm offers both: a trace record of format kFlowReportFormat per report, and
// the last report of each flow by mailbox.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"

namespace rdmalab::pcc {

enum class TraceLayout : std::uint8_t { k3_1, k3_4 };

// 64 bytes, as they cross from the algorithm to the host program.
//   3.1: words[0] worker and time (worker in bits 63:56, ns below), words[1..6] arguments
//   3.4: words[0] metadata (the worker), words[1] time in ns, words[2..6] arguments
struct TraceRecord {
    std::uint32_t format = 0;
    std::uint32_t sequence = 0;  // per process, from 0; a gap is lost records
    std::uint64_t words[7] = {};
};
static_assert(sizeof(TraceRecord) == 64);

// A record, whichever its layout.
struct TraceMessage {
    std::uint32_t format = 0;
    std::uint32_t sequence = 0;
    std::uint32_t worker = 0;
    std::uint64_t time_ns = 0;  // low 56 bits in the 3.1 layout
    std::uint64_t arguments[5] = {};
};
TraceRecord encode_trace(const TraceMessage& message, TraceLayout layout);
TraceMessage decode_trace(const TraceRecord& record, TraceLayout layout);

// The rate that an algorithm has computed for a flow. kRateMax is line rate.
struct FlowReport {
    std::uint32_t qpn = 0;
    std::uint32_t rate = 0;
    std::uint64_t time_ns = 0;  // 0 by mailbox
};

inline constexpr std::uint32_t kFlowReportFormat = 6;  // arguments: qpn, rate
std::optional<FlowReport> flow_report(const TraceMessage& message);

// The mailbox of the 2.9 program. Request: one little-endian u32, the version. Answer: version,
// count, dropped, then 64 pairs of QPN and rate, of which `count` are used.
inline constexpr std::uint32_t kMailboxVersion = 1;
inline constexpr std::size_t kMailboxFlows = 64;
inline constexpr std::size_t kMailboxRequestSize = 4;
inline constexpr std::size_t kMailboxResponseSize = 12 + 8 * kMailboxFlows;
std::vector<std::byte> flow_report_request();
struct MailboxReports {
    std::vector<FlowReport> flows;
    std::uint32_t dropped = 0;  // reports for which the algorithm had no place
};
// Nothing when size, version or count are wrong.
std::optional<MailboxReports> parse_flow_reports(ByteView response);

}  // namespace rdmalab::pcc

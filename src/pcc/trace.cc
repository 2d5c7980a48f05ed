#include "pcc/trace.h"

#include <algorithm>
#include <bit>

namespace rdmalab::pcc {
namespace {

constexpr int kWorkerShift = 56;
constexpr std::uint64_t kTimeMask = (std::uint64_t{1} << kWorkerShift) - 1;
constexpr std::size_t kHeadWords = 3;  // of a mailbox answer

static_assert(std::endian::native == std::endian::little, "the mailbox is read as it lies");

std::uint32_t word_at(ByteView bytes, std::size_t index) {
    return load_bytes<std::uint32_t>(bytes.data() + 4 * index);
}

}  // namespace

TraceRecord encode_trace(const TraceMessage& message, TraceLayout layout) {
    TraceRecord record;
    record.format = message.format;
    record.sequence = message.sequence;
    const auto arguments = std::begin(message.arguments), end = std::end(message.arguments);
    if (layout == TraceLayout::k3_1) {
        record.words[0] =
            std::uint64_t{message.worker} << kWorkerShift | (message.time_ns & kTimeMask);
        std::copy(arguments, end, record.words + 1);
    } else {
        record.words[0] = message.worker;
        record.words[1] = message.time_ns;
        std::copy(arguments, end, record.words + 2);
    }
    return record;
}

TraceMessage decode_trace(const TraceRecord& record, TraceLayout layout) {
    TraceMessage message;
    message.format = record.format;
    message.sequence = record.sequence;
    const bool is_old = layout == TraceLayout::k3_1;
    message.worker =
        static_cast<std::uint32_t>(is_old ? record.words[0] >> kWorkerShift : record.words[0]);
    message.time_ns = is_old ? record.words[0] & kTimeMask : record.words[1];
    const std::uint64_t* const first = record.words + (is_old ? 1 : 2);
    std::copy(first, first + std::size(message.arguments), message.arguments);
    return message;
}

std::optional<FlowReport> flow_report(const TraceMessage& message) {
    if (message.format != kFlowReportFormat) return std::nullopt;
    return FlowReport{static_cast<std::uint32_t>(message.arguments[0]),
                      static_cast<std::uint32_t>(message.arguments[1]), message.time_ns};
}

std::vector<std::byte> flow_report_request() {
    std::vector<std::byte> request(kMailboxRequestSize);
    store_bytes(request.data(), kMailboxVersion);
    return request;
}

std::optional<MailboxReports> parse_flow_reports(ByteView response) {
    if (response.size() != kMailboxResponseSize) return std::nullopt;
    const std::uint32_t count = word_at(response, 1);
    if (word_at(response, 0) != kMailboxVersion || count > kMailboxFlows) return std::nullopt;
    MailboxReports reports;
    reports.dropped = word_at(response, 2);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = kHeadWords + 2 * i;
        reports.flows.push_back({word_at(response, at), word_at(response, at + 1), 0});
    }
    return reports;
}

}  // namespace rdmalab::pcc

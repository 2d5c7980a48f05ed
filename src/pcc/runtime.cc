#include "pcc/runtime.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "pcc/runtime_impl.h"

namespace rdmalab::pcc {

thread_local Worker* current_worker = nullptr;

namespace {

constexpr std::uint32_t kPermissionWrite = 1;

std::uint32_t to_big_endian(std::uint32_t value) { return __builtin_bswap32(value); }

template <class Word>
void store_word(Word& to, std::uint32_t value) {
    static_assert(sizeof(Word) == sizeof value);
    const std::uint32_t word = to_big_endian(value);
    std::memcpy(&to, &word, sizeof word);
}

std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }

std::uint32_t tx_counters(const TxFacts& tx) {
    constexpr std::uint32_t kMax = 0xffff;
    return std::min((tx.sent_bytes + 31) / 32, kMax) | std::min(tx.sent_packets, kMax) << 16;
}

void store_facts(const Event& event, doca_pcc_dev_event_t& out) {
    switch (event.type) {
        case EventType::kTx:
        case EventType::kTxForAckNack: {
            auto& tx = out.ev_spec_attr.roce_tx;
            store_word(tx.first_timestamp, low(event.tx.first_timestamp_ns));
            store_word(tx.cntrs, tx_counters(event.tx));
            store_word(tx.extra, event.qpn & 0xff'ffff);
            break;
        }
        case EventType::kRtt: {
            auto& rtt = out.ev_spec_attr.rtt_tstamp;
            store_word(rtt.req_send_timestamp, low(event.rtt.request_sent_ns));
            store_word(rtt.req_recv_timestamp, low(event.rtt.request_received_ns));
            store_word(rtt.resp_send_timestamp, low(event.rtt.response_sent_ns));
            break;
        }
        default: {
            auto& feedback = out.ev_spec_attr.ack_nack_cnp;
            store_word(feedback.first_timestamp, low(event.feedback.first_timestamp_ns));
            store_word(feedback.first_sn, event.feedback.first_sn);
            store_word(feedback.extra, std::min(event.feedback.coalesced, 0xffffu));
            break;
        }
    }
}

doca_pcc_dev_event_t device_event(const Event& event) {
    doca_pcc_dev_event_t out{};
    store_word(out.ev_attr, static_cast<std::uint32_t>(event.type) | event.subtype << 8 |
                                event.port << 16 | std::uint32_t{event.flags} << 24);
    store_word(out.flow_tag, event.flow);
    store_word(out.sn, event.sn);
    store_word(out.timestamp, low(event.timestamp_ns));
    store_facts(event, out);
    return out;
}

}  // namespace

// --- Trace

void TraceRing::reserve(std::size_t capacity) { records_.resize(std::bit_ceil(capacity)); }

bool TraceRing::push(const TraceRecord& record) {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    if (head - tail_.load(std::memory_order_acquire) == records_.size()) return false;
    records_[head & (records_.size() - 1)] = record;
    head_.store(head + 1, std::memory_order_release);
    return true;
}

bool TraceRing::pop(TraceRecord& record) {
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (tail == head_.load(std::memory_order_acquire)) return false;
    record = records_[tail & (records_.size() - 1)];
    tail_.store(tail + 1, std::memory_order_release);
    return true;
}

void Runtime::Impl::trace(Worker& worker, std::uint32_t format,
                          const std::uint64_t (&arguments)[5]) {
    TraceMessage message;
    message.format = format;
    message.sequence = trace_sequence.fetch_add(1, std::memory_order_relaxed);
    message.worker = worker.rank;
    message.time_ns = now_ns(worker);
    std::copy(std::begin(arguments), std::end(arguments), message.arguments);
    worker.unflushed.push_back(encode_trace(message, options.trace_layout));
    if (worker.unflushed.size() >= Worker::kUnflushedMax) flush(worker);
}

void Runtime::Impl::flush(Worker& worker) {
    for (const TraceRecord& record : worker.unflushed) {
        ++worker.statistics.trace_records;
        if (!worker.trace.push(record)) ++worker.statistics.trace_lost;
    }
    worker.unflushed.clear();
}

std::size_t Runtime::poll_trace(std::span<TraceRecord> records) {
    std::size_t count = 0;
    for (std::size_t idle = 0; count < records.size() && idle < impl_->workers.size();) {
        Worker& worker = impl_->workers[impl_->trace_turn];
        if (worker.trace.pop(records[count])) {
            ++count;
            idle = 0;
            continue;
        }
        ++idle;
        impl_->trace_turn = (impl_->trace_turn + 1) % impl_->workers.size();
    }
    return count;
}

void Runtime::flush_trace() {
    for (Worker& worker : impl_->workers) impl_->flush(worker);
}

// --- Events

Runtime::Impl::Impl(const AlgorithmEntry& algorithm, RuntimeOptions given)
    : entry(algorithm),
      options(std::move(given)),
      workers(std::max<std::uint32_t>(options.workers, 1)) {
    for (std::uint32_t i = 0; i < workers.size(); ++i) {
        workers[i].runtime = this;
        workers[i].rank = i;
        workers[i].trace.reserve(std::max<std::size_t>(options.trace_capacity, 2));
    }
    port_speed.fill(options.port_speed_gbps);
    link_services();
}

Runtime::Runtime(const AlgorithmEntry& algorithm, RuntimeOptions options)
    : impl_(std::make_unique<Impl>(algorithm, std::move(options))) {}
Runtime::~Runtime() = default;

Status Runtime::start() {
    const Entered entered(impl_->workers.front());
    std::uint32_t mask = 0;
    impl_->entry.init(&mask);
    impl_->disabled = mask;
    impl_->flush(impl_->workers.front());
    if (!impl_->registration_error.empty()) return Error{EINVAL, impl_->registration_error};
    const auto& slots = impl_->slots;
    const bool is_any = std::any_of(slots.begin(), slots.end(), [](const auto& port) {
        return std::any_of(port.begin(), port.end(), [](const Slot& s) { return s.is_enabled; });
    });
    if (!is_any) {
        return Error{EINVAL,
                     "the algorithm: expected doca_pcc_dev_user_init to enable it in a slot of a "
                     "port (doca_pcc_dev_init_algo_slot), found none"};
    }
    return {};
}

RateAnswer Runtime::handle(std::uint32_t index, const Event& event) {
    Worker& worker = impl_->workers[index];
    if (event.type == EventType::kFlowGone) {
        worker.flows.erase(event.flow);
        return {};
    }
    const auto type = static_cast<std::uint32_t>(event.type) % kEventTypeCount;
    FlowState& flow = worker.flows[event.flow];
    if ((impl_->disabled >> type & 1) != 0) {
        ++worker.statistics.events_suppressed;
        return {flow.rate, false, false};
    }
    worker.now_ns = event.timestamp_ns;
    ++worker.statistics.events;
    ++worker.statistics.events_by_type[type];
    if (event.type == EventType::kTx && event.port < kPorts) {
        impl_->tx_bytes[event.port].fetch_add(event.tx.sent_bytes, std::memory_order_relaxed);
    }
    doca_pcc_dev_event_t out = device_event(event);
    doca_pcc_dev_attr_t attributes{};
    attributes.algo_slot = event.slot & 0xf;
    attributes.overload = (event.flags & kTxOverloaded) != 0 && event.type == EventType::kTx;
    doca_pcc_dev_results_t results{};
    results.rate = flow.rate;
    const Entered entered(worker);
    impl_->entry.handle(&flow.context, &out, &attributes, &results);
    const RateAnswer answer{results.rate, results.rtt_req != 0, results.rate != flow.rate};
    if (answer.wants_probe) ++worker.statistics.probes_wanted;
    if (answer.is_valid())
        flow.rate = answer.rate;
    else
        ++worker.statistics.bad_rates;
    return answer;
}

Result<std::vector<std::byte>> Runtime::mailbox(ByteView request, std::size_t response_max) {
    if (impl_->entry.mailbox == nullptr) {
        return Error{EOPNOTSUPP, "the algorithm has no mailbox (doca_pcc_dev_user_mailbox_handle)"};
    }
    std::vector<std::byte> in(request.begin(), request.end()), out(response_max);
    std::uint32_t size = 0;
    const Entered entered(impl_->workers.front());
    const doca_pcc_dev_error_t status =
        impl_->entry.mailbox(in.data(), static_cast<std::uint32_t>(in.size()),
                             static_cast<std::uint32_t>(response_max), out.data(), &size);
    if (status != DOCA_PCC_DEV_STATUS_OK) {
        return Error{EPROTO, "the algorithm has refused a mailbox request of " +
                                 std::to_string(request.size()) + " bytes"};
    }
    if (size > response_max) {
        return Error{EPROTO, "the answer of the algorithm's mailbox: expected at most " +
                                 std::to_string(response_max) + " bytes, found " +
                                 std::to_string(size)};
    }
    out.resize(size);
    return out;
}

// --- Parameters and counters

Slot* Runtime::Impl::first_slot_of(std::uint32_t algorithm) {
    for (auto& port : slots)
        for (Slot& candidate : port)
            if (candidate.is_enabled && candidate.algorithm == algorithm) return &candidate;
    return nullptr;
}

std::vector<AlgorithmInfo> Runtime::algorithms() const {
    std::vector<AlgorithmInfo> all;
    for (std::uint32_t index = 0; index < kAlgorithms; ++index) {
        const RegisteredAlgorithm& algorithm = impl_->algorithms[index];
        if (!algorithm.is_set) continue;
        AlgorithmInfo& info = all.emplace_back();
        info.index = index;
        info.id = algorithm.id;
        info.version_major = algorithm.version_major;
        info.version_minor = algorithm.version_minor;
        info.text = algorithm.text;
        const Slot* const slot = impl_->first_slot_of(index);
        for (std::uint32_t id = 0; id < algorithm.parameters.size(); ++id) {
            const Parameter& p = algorithm.parameters[id];
            info.parameters.push_back({id, p.text, slot ? slot->parameters[id] : p.initial,
                                       p.initial, p.min, p.max, p.permissions});
        }
        for (std::uint32_t id = 0; id < algorithm.counters.size(); ++id) {
            std::uint32_t sum = 0;
            for (const auto& port : impl_->slots)
                for (const Slot& s : port)
                    if (s.is_enabled && s.algorithm == index) sum += s.counters[id];
            info.counters.push_back(
                {id, algorithm.counters[id].text, sum, algorithm.counters[id].max});
        }
    }
    return all;
}

Status Runtime::set_parameter(std::uint32_t index, std::uint32_t id, std::uint32_t value) {
    if (index >= kAlgorithms || id >= impl_->algorithms[index].parameters.size()) {
        return Error{ENOENT, "no parameter " + std::to_string(id) + " of algorithm " +
                                 std::to_string(index)};
    }
    const Parameter& parameter = impl_->algorithms[index].parameters[id];
    const std::string name = "parameter " + std::to_string(id) + " (" + parameter.text + ")";
    if ((parameter.permissions & kPermissionWrite) == 0) {
        return Error{EACCES, name + " may not be set"};
    }
    if (value < parameter.min || value > parameter.max) {
        return Error{ERANGE, name + ": expected " + std::to_string(parameter.min) + " to " +
                                 std::to_string(parameter.max) + ", found " +
                                 std::to_string(value)};
    }
    const Entered entered(impl_->workers.front());
    for (std::uint32_t port = 0; port < kPorts; ++port) {
        for (std::uint32_t place = 0; place < kSlots; ++place) {
            Slot& slot = impl_->slots[port][place];
            if (!slot.is_enabled || slot.algorithm != index) continue;
            if (impl_->entry.set_parameters(port, place, id, 1, &value, slot.parameters.data()) !=
                DOCA_PCC_DEV_STATUS_OK) {
                return Error{EINVAL, name + ": the algorithm has refused " + std::to_string(value)};
            }
            slot.parameters[id] = value;
        }
    }
    return {};
}

Status Runtime::reset_counters(std::uint32_t index) {
    if (index >= kAlgorithms || !impl_->algorithms[index].is_set) {
        return Error{ENOENT, "no algorithm " + std::to_string(index)};
    }
    for (auto& port : impl_->slots)
        for (Slot& slot : port)
            if (slot.algorithm == index) std::fill(slot.counters.begin(), slot.counters.end(), 0u);
    return {};
}

void Runtime::port_changed(std::uint32_t port, std::uint32_t speed_gbps) {
    if (port >= kPorts) return;
    impl_->port_speed[port] = speed_gbps;
    if (impl_->entry.port_changed == nullptr) return;
    const Entered entered(impl_->workers.front());
    impl_->entry.port_changed(port);
}

// --- Facts

RuntimeStatistics Runtime::statistics() const {
    RuntimeStatistics sum;
    for (const Worker& worker : impl_->workers) {
        const RuntimeStatistics& s = worker.statistics;
        sum.events += s.events;
        for (std::size_t i = 0; i < kEventTypeCount; ++i)
            sum.events_by_type[i] += s.events_by_type[i];
        sum.events_suppressed += s.events_suppressed;
        sum.internal_events += s.internal_events;
        sum.bad_rates += s.bad_rates;
        sum.probes_wanted += s.probes_wanted;
        sum.trace_records += s.trace_records;
        sum.trace_lost += s.trace_lost;
        sum.flows += static_cast<std::uint32_t>(worker.flows.size());
    }
    return sum;
}

namespace {

template <class... Args>
std::string line(const char* format, Args... args) {
    char text[256];
    std::snprintf(text, sizeof text, format, args...);
    return text;
}

std::string describe(const AlgorithmInfo& algorithm) {
    std::string text = line("algorithm %u: id 0x%x version %u.%u ", algorithm.index, algorithm.id,
                            algorithm.version_major, algorithm.version_minor) +
                       algorithm.text + "\n";
    for (const ParameterInfo& p : algorithm.parameters) {
        text += line("  parameter %u = %u (default %u, %u to %u) ", p.id, p.value, p.initial, p.min,
                     p.max) +
                p.text + "\n";
    }
    for (const CounterInfo& c : algorithm.counters)
        text += line("  counter %u = %u ", c.id, c.value) + c.text + "\n";
    return text;
}

}  // namespace

std::string Runtime::debug_dump() const {
    std::string text;
    for (const AlgorithmInfo& algorithm : algorithms()) text += describe(algorithm);
    for (const Worker& worker : impl_->workers) {
        text += line("worker %u: %" PRIu64 " events, %zu flows, %zu trace records not flushed\n",
                     worker.rank, worker.statistics.events, worker.flows.size(),
                     worker.unflushed.size());
        for (const auto& [id, flow] : worker.flows) {
            text += line("  flow 0x%08x rate %u context", id, flow.rate);
            for (const std::uint32_t word : flow.context.data) text += line(" %08x", word);
            text += "\n";
        }
    }
    return text;
}

}  // namespace rdmalab::pcc

#include "pcc/host/process.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "pcc/host/process_impl.h"

namespace rdmalab::pcc::host {
namespace {

// Looks at the ring before a worker sleeps, and how long it sleeps at most.
constexpr int kLooks = 200, kLooksPerYield = 20;
constexpr Duration kSleepMax = milliseconds(100);
constexpr Duration kControlInterval = milliseconds(10);
constexpr std::uint32_t kBatchMax = 256;
constexpr std::uint32_t kPortCount = 4;
constexpr std::uint32_t kIntervalsPerPublication = 10;

Instant monotonic_now() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return {time.tv_sec * 1'000'000'000 + time.tv_nsec};
}

void wait_on(std::atomic<std::uint32_t>& word, std::uint32_t value, Duration timeout) {
    const timespec time{timeout.ns / 1'000'000'000, timeout.ns % 1'000'000'000};
    ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

void wake_all(std::atomic<std::uint32_t>& word) {
    ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

template <std::size_t Size>
void copy_text(char (&to)[Size], const std::string& from) {
    std::memset(to, 0, Size);
    std::memcpy(to, from.data(), std::min(from.size(), Size - 1));
}

std::uint32_t speed_gbps(std::uint64_t bps) {
    return static_cast<std::uint32_t>(std::max<std::uint64_t>(bps / 1'000'000'000, 1));
}

std::string explain(ErrorReason reason) {
    switch (reason) {
        case ErrorReason::kNoProgress:
            return "events waited for longer than the card's patience";
        case ErrorReason::kBadRate:
            return "an answer with a rate of 0 or above line rate";
        case ErrorReason::kBrokenRing:
            return "its rings are broken";
        case ErrorReason::kNone:
            break;
    }
    return "unknown reason";
}

}  // namespace

const char* state_name(ProcessState state) {
    switch (state) {
        case ProcessState::kActive:
            return "Active";
        case ProcessState::kStandby:
            return "Standby";
        case ProcessState::kDeactivated:
            return "Deactivated";
        case ProcessState::kError:
            break;
    }
    return "Error";
}

// --- Start and end

Result<std::unique_ptr<Process>> Process::start(ProcessOptions options) {
    if (options.algorithm == nullptr) return Error{EINVAL, "no algorithm was given"};
    if (options.workers < kWorkersMin || options.workers > kWorkersMax) {
        return Error{EINVAL, "workers: expected " + std::to_string(kWorkersMin) + " to " +
                                 std::to_string(kWorkersMax) + ", found " +
                                 std::to_string(options.workers)};
    }
    std::unique_ptr<Process> process(new Process());
    process->impl_ = std::make_unique<Impl>(std::move(options));
    if (const Status status = process->impl_->start(); !status) return status.error();
    return process;
}

Process::~Process() = default;
void Process::stop() { impl_->stop(); }

Status Process::Impl::start() {
    RuntimeOptions own;
    own.workers = options.workers;
    own.trace_layout = options.trace_layout;
    own.trace_capacity = options.trace_capacity;
    own.clock_ns = [] { return static_cast<std::uint64_t>(monotonic_now().ns); };
    own.print = options.print;
    line_rate_bps = std::uint64_t{own.port_speed_gbps} * 1'000'000'000;
    runtime = std::make_unique<Runtime>(options.algorithm->entry(), std::move(own));
    for (std::uint32_t i = 0; i < options.workers; ++i) {
        workers.push_back(std::make_unique<Worker>());
        workers.back()->index = i;
    }
    control = std::thread([this] { run_control(); });
    Status started;
    if (Status called = call_algorithm([&] { started = runtime->start(); }); !called) return called;
    if (!started) return started;
    return attach();
}

Status Process::Impl::attach() {
    AttachRequest request;
    request.workers = options.workers;
    if (options.report_only) request.flags |= kAttachReportOnly;
    copy_text(request.device, options.device);
    if (Status status = connection.attach(options.socket, request); !status) return status;
    for (const auto& worker : workers) {
        worker->rings = &connection.rings(worker->index);
        worker->thread = std::thread([this, w = worker.get()] { run_worker(*w); });
    }
    is_attached = true;
    return {};
}

void Process::Impl::stop() {
    if (is_stopped.exchange(true)) return;
    is_stopping = true;
    connection.close();
    if (is_attached)
        for (const auto& worker : workers) wake_all(worker->rings->event_producer);
    // The control thread stays until all workers are done: it ends the one that does not return.
    for (const auto& worker : workers)
        if (worker->thread.joinable()) worker->thread.join();
    is_failed = true;
    if (control.joinable()) control.join();
}

ProcessState Process::Impl::state() const {
    const std::lock_guard lock(error_lock);
    if (error.code != 0) return ProcessState::kError;
    if (is_stopped) return ProcessState::kDeactivated;
    return static_cast<ProcessState>(connection.page().state.load(std::memory_order_acquire));
}

// The first reason stays. The card goes on without this process.
void Process::Impl::fail(Error reason) {
    {
        const std::lock_guard lock(error_lock);
        if (error.code != 0) return;
        error = std::move(reason);
    }
    is_stopping = true;
    connection.close();
    if (is_attached) wake_all(connection.page().state);
}

template <class Call>
Status Process::Impl::call_algorithm(Call&& call) {
    const std::lock_guard one_at_a_time(host_call);
    const std::lock_guard between_events(workers.front()->busy);
    if (host_guard.run(call)) return {};
    report_fault(host_guard, nullptr);
    const std::lock_guard lock(error_lock);
    return error;
}

// --- Workers

void Process::Impl::run_worker(Worker& worker) {
    if (!options.cpus.empty()) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(options.cpus[worker.index % options.cpus.size()], &set);
        ::sched_setaffinity(0, sizeof set, &set);
    }
    int looks = 0;
    while (!is_stopping) {
        if (worker.index == 0) attend(worker);
        if (handle_events(worker)) {
            looks = 0;
        } else if (++looks < kLooks) {
            looks % kLooksPerYield == 0 ? static_cast<void>(::sched_yield())
                                        : __builtin_ia32_pause();
        } else {
            looks = 0;
            sleep(worker);
        }
    }
}

void Process::Impl::sleep(Worker& worker) {
    WorkerRings& rings = *worker.rings;
    rings.sleeping.store(1, std::memory_order_seq_cst);
    const std::uint32_t producer = rings.event_producer.load(std::memory_order_seq_cst);
    if (producer == rings.event_consumer.load(std::memory_order_relaxed) && !is_stopping)
        wait_on(rings.event_producer, producer, kSleepMax);
    rings.sleeping.store(0, std::memory_order_seq_cst);
}

bool Process::Impl::handle_events(Worker& worker) {
    WorkerRings& rings = *worker.rings;
    const std::uint32_t first = rings.event_consumer.load(std::memory_order_relaxed);
    const std::uint32_t producer = rings.event_producer.load(std::memory_order_acquire);
    if (first == producer) return false;
    const std::uint32_t end = first + std::min(producer - first, kBatchMax);
    const std::uint64_t answers = worker.answers.load(std::memory_order_relaxed);
    const std::lock_guard lock(worker.busy);
    if (!worker.guard.run([&] { handle_batch(worker, first, end); }))
        report_fault(worker.guard, &worker.event);
    if (worker.answers.load(std::memory_order_relaxed) != answers) connection.ring_bell();
    return true;
}

void Process::Impl::handle_batch(Worker& worker, std::uint32_t first, std::uint32_t end) {
    WorkerRings& rings = *worker.rings;
    for (std::uint32_t i = first; i != end && !is_stopping; ++i) {
        worker.event = rings.events[i & (kEventRingCapacity - 1)];
        rings.event_consumer.store(i + 1, std::memory_order_release);
        const RateAnswer answer = runtime->handle(worker.index, worker.event);
        worker.guard.note_progress();
        if (worker.event.type == EventType::kFlowGone) continue;
        if (!answer.is_valid()) {
            return fail({EDOM, "the algorithm " + options.algorithm->path() +
                                   " has answered a rate of " + std::to_string(answer.rate) +
                                   ": expected 1 to " + std::to_string(kRateMax)});
        }
        if (!answer.is_changed && !answer.wants_probe) continue;
        send_answer(worker, {worker.event.flow, answer.rate,
                             answer.wants_probe ? std::uint32_t{kAnswerProbe} : 0u, 0});
    }
}

// A ring that is full is one that the card does not empty: it is busy, or gone.
bool Process::Impl::send_answer(Worker& worker, const Answer& answer) {
    WorkerRings& rings = *worker.rings;
    const std::uint32_t producer = rings.answer_producer.load(std::memory_order_relaxed);
    while (producer - rings.answer_consumer.load(std::memory_order_acquire) >=
           kAnswerRingCapacity) {
        if (is_stopping) return false;
        connection.ring_bell();
        worker.guard.note_progress();
        ::sched_yield();
    }
    rings.answers[producer & (kAnswerRingCapacity - 1)] = answer;
    rings.answer_producer.store(producer + 1, std::memory_order_release);
    worker.answers.fetch_add(1, std::memory_order_relaxed);
    return true;
}

// Requests of the card's administrator and news of the port enter the algorithm: they are for the
// first worker, which is watched.
void Process::Impl::attend(Worker& worker) {
    AlgorithmPage& page = connection.algorithm();
    const std::uint32_t request = page.requested.load(std::memory_order_acquire);
    if (request != page.answered.load(std::memory_order_relaxed)) {
        const std::lock_guard lock(worker.busy);
        Status status;
        if (!worker.guard.run(
                [&] { status = runtime->set_parameter(page.algorithm, page.id, page.value); }))
            return report_fault(worker.guard, nullptr);
        page.status = status.code();
        copy_text(page.error, status.error().text);
        publish_algorithm();
        page.answered.store(request, std::memory_order_release);
    }
    const std::uint64_t rate = connection.page().line_rate_bps.load(std::memory_order_relaxed);
    if (rate == line_rate_bps || rate == 0) return;
    line_rate_bps = rate;
    const std::lock_guard lock(worker.busy);
    const auto change = [&] {
        for (std::uint32_t port = 0; port < kPortCount; ++port)
            runtime->port_changed(port, speed_gbps(rate));
    };
    if (!worker.guard.run(change)) report_fault(worker.guard, nullptr);
}

// --- What goes wrong

void Process::Impl::report_fault(const Guard& guard, const Event* event) {
    const Guard::Fault& fault = guard.fault();
    const bool is_loop = fault.signal == 0;
    std::string text = "the algorithm " + options.algorithm->path() +
                       (is_loop ? " did not return within the watchdog's time"
                                : " has crashed: " + fault.describe());
    std::string dump = text + "\n\nbacktrace\n" + fault.backtrace();
    if (event != nullptr) {
        char line[256];
        std::snprintf(line, sizeof line,
                      "\nevent\n  type %u subtype %u port %u flags 0x%x flow 0x%08x qpn 0x%06x sn "
                      "%u time %llu\n",
                      static_cast<unsigned>(event->type), event->subtype, event->port, event->flags,
                      event->flow, event->qpn, event->sn,
                      static_cast<unsigned long long>(event->timestamp_ns));
        dump += line;
    }
    dump += "\nstate\n" + runtime->debug_dump();
    if (!options.coredump_file.empty()) {
        write_coredump(dump);
        text += "; see " + options.coredump_file;
    }
    fail({is_loop ? ETIMEDOUT : EFAULT, text});
}

void Process::Impl::write_coredump(const std::string& text) const {
    const int file = ::open(options.coredump_file.c_str(),
                            O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return;
    for (std::size_t done = 0; done < text.size();) {
        const ssize_t written = ::write(file, text.data() + done, text.size() - done);
        if (written <= 0) break;
        done += static_cast<std::size_t>(written);
    }
    ::close(file);
}

// --- Control

void Process::Impl::run_control() {
    for (std::uint32_t interval = 0; !is_failed; ++interval) {
        const Instant now = monotonic_now();
        for (const auto& worker : workers)
            watch(worker->guard, worker->seen_progress, worker->seen_since, now);
        watch(host_guard, host_progress, host_since, now);
        if (is_attached && !is_stopping) {
            watch_card();
            if (interval % kIntervalsPerPublication == 0) publish_algorithm();
        }
        const timespec pause{0, kControlInterval.ns};
        ::nanosleep(&pause, nullptr);
    }
}

void Process::Impl::watch(Guard& guard, std::uint64_t& seen, Instant& since, Instant now) {
    const std::uint64_t progress = guard.progress();
    if (!guard.is_inside() || progress != seen || since.ns == 0) {
        seen = progress;
        since = now;
    } else if (now - since > options.watchdog) {
        since = now;
        guard.interrupt();
    }
}

// Set once the card has given up this process.
std::optional<Error> Process::Impl::verdict_of_card() {
    PccPage& page = connection.page();
    const auto state = static_cast<ProcessState>(page.state.load(std::memory_order_acquire));
    if (state != ProcessState::kError) return std::nullopt;
    const auto reason = static_cast<ErrorReason>(page.error.load(std::memory_order_acquire));
    return Error{EIO, "the card has given up the process: " + explain(reason)};
}

void Process::Impl::watch_card() {
    if (const auto verdict = verdict_of_card()) return fail(*verdict);
    if (connection.is_gone()) return fail({ECONNRESET, "the card has ended"});
}

void Process::Impl::publish_algorithm() {
    const std::lock_guard lock(publication);
    AlgorithmPage& page = connection.algorithm();
    copy_text(page.path, options.algorithm->path());
    std::uint32_t count = 0;
    for (const AlgorithmInfo& algorithm : runtime->algorithms()) {
        if (count == 0) copy_text(page.text, algorithm.text);
        const auto add = [&](AlgorithmRow row, const std::string& text) {
            if (count == kAlgorithmRowsMax) return;
            row.algorithm = algorithm.index;
            copy_text(row.text, text);
            page.rows[count++] = row;
        };
        for (const ParameterInfo& p : algorithm.parameters)
            add({0, 0, p.id, p.value, p.initial, p.min, p.max, p.permissions, {}}, p.text);
        for (const CounterInfo& c : algorithm.counters)
            add({1, 0, c.id, c.value, 0, 0, c.max, 0, {}}, c.text);
    }
    page.row_count.store(count, std::memory_order_release);
}

// --- The program's calls

ProcessState Process::state() const { return impl_->state(); }

Error Process::error() const {
    const std::lock_guard lock(impl_->error_lock);
    if (impl_->error.code != 0) return impl_->error;
    // Who has just read the state in the shared page need not wait for the thread that watches it.
    return impl_->is_attached ? impl_->verdict_of_card().value_or(Error{}) : Error{};
}

ProcessState Process::wait(ProcessState known, Duration timeout) {
    constexpr Duration kSlice = milliseconds(50);
    const Instant end = monotonic_now() + timeout;
    while (true) {
        const ProcessState now = state();
        const Duration left = end - monotonic_now();
        if (now != known || left.ns <= 0) return now;
        std::atomic<std::uint32_t>& word = impl_->connection.page().state;
        wait_on(word, word.load(std::memory_order_acquire), std::min(left, kSlice));
    }
}

std::size_t Process::poll_trace(std::span<TraceRecord> records) {
    return impl_->runtime->poll_trace(records);
}

Result<std::vector<std::byte>> Process::mailbox(ByteView request, std::size_t response_max) {
    Result<std::vector<std::byte>> response = Error{EIO, ""};
    const Status called =
        impl_->call_algorithm([&] { response = impl_->runtime->mailbox(request, response_max); });
    if (!called) return called.error();
    return response;
}

void Process::set_mailbox_reports(bool by_mailbox) { impl_->by_mailbox = by_mailbox; }

std::vector<FlowReport> Process::poll_reports() {
    if (impl_->by_mailbox) {
        const auto response = mailbox(flow_report_request(), kMailboxResponseSize);
        if (!response.ok()) return {};
        auto reports = parse_flow_reports(*response);
        return reports ? std::move(reports->flows) : std::vector<FlowReport>{};
    }
    std::vector<FlowReport> reports;
    TraceRecord records[64];
    while (const std::size_t count = poll_trace(records)) {
        for (std::size_t i = 0; i < count; ++i) {
            const auto message = decode_trace(records[i], impl_->options.trace_layout);
            if (const auto report = flow_report(message)) reports.push_back(*report);
        }
    }
    return reports;
}

std::vector<std::unique_lock<std::mutex>> Process::Impl::lock_workers() const {
    std::vector<std::unique_lock<std::mutex>> locks;
    for (const auto& worker : workers) locks.emplace_back(worker->busy);
    return locks;
}

std::vector<AlgorithmInfo> Process::algorithms() const { return impl_->runtime->algorithms(); }

Status Process::set_parameter(std::uint32_t algorithm, std::uint32_t id, std::uint32_t value) {
    Status status;
    const Status called = impl_->call_algorithm(
        [&] { status = impl_->runtime->set_parameter(algorithm, id, value); });
    return called ? status : called;
}

Process::Statistics Process::statistics() const {
    const auto locks = impl_->lock_workers();
    Statistics statistics;
    statistics.runtime = impl_->runtime->statistics();
    for (const auto& worker : impl_->workers)
        statistics.answers += worker->answers.load(std::memory_order_relaxed);
    statistics.events_lost = impl_->connection.page().events_lost.load(std::memory_order_relaxed);
    return statistics;
}

std::string Process::debug_dump() const {
    const auto locks = impl_->lock_workers();
    return impl_->runtime->debug_dump();
}

std::uint32_t Process::workers() const { return static_cast<std::uint32_t>(impl_->workers.size()); }

}  // namespace rdmalab::pcc::host

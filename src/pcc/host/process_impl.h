// The inside of Process: worker threads that carry events to the algorithm and answers back, and a
// control thread that watches them, the card, and requests of its administrator.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "pcc/host/card_connection.h"
#include "pcc/host/guard.h"
#include "pcc/host/process.h"

namespace rdmalab::pcc::host {

struct Process::Impl {
    struct Worker {
        std::uint32_t index = 0;
        WorkerRings* rings = nullptr;
        Guard guard;
        std::mutex busy;  // held while the algorithm runs
        std::thread thread;
        std::atomic<std::uint64_t> answers{0};
        Event event;  // that is being handled
        // The watchdog's view.
        std::uint64_t seen_progress = 0;
        Instant seen_since;
    };

    explicit Impl(ProcessOptions given) : options(std::move(given)) {}
    ~Impl() { stop(); }

    Status start();
    Status attach();
    void stop();
    ProcessState state() const;
    void fail(Error error);

    // Runs `call`, which enters the algorithm, between two events of worker 0. EFAULT, ETIMEDOUT:
    // the algorithm is done for.
    template <class Call>
    Status call_algorithm(Call&& call);

    // Between two events of each worker.
    std::vector<std::unique_lock<std::mutex>> lock_workers() const;

    // Worker threads.
    void run_worker(Worker& worker);
    bool handle_events(Worker& worker);
    void handle_batch(Worker& worker, std::uint32_t first, std::uint32_t end);
    bool send_answer(Worker& worker, const Answer& answer);
    void attend(Worker& worker);
    void sleep(Worker& worker);
    void report_fault(const Guard& guard, const Event* event);
    void write_coredump(const std::string& text) const;

    // Control thread.
    void run_control();
    void watch(Guard& guard, std::uint64_t& seen, Instant& since, Instant now);
    std::optional<Error> verdict_of_card();
    void watch_card();
    void publish_algorithm();

    ProcessOptions options;
    CardConnection connection;
    std::unique_ptr<Runtime> runtime;
    std::vector<std::unique_ptr<Worker>> workers;
    Guard host_guard;  // calls of the program's own thread
    std::mutex host_call;
    std::uint64_t host_progress = 0;
    Instant host_since;
    std::thread control;
    std::atomic<bool> is_attached{false}, is_stopping{false}, is_stopped{false}, is_failed{false};
    std::mutex publication;  // of the AlgorithmPage
    mutable std::mutex error_lock;
    Error error;
    bool by_mailbox = false;
    std::uint64_t line_rate_bps = 0;
};

}  // namespace rdmalab::pcc::host

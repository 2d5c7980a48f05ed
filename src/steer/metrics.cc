#include "steer/metrics.h"

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <cerrno>
#include <exception>

namespace rdmalab::steer {

struct Metrics::Impl {
    std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
    std::unique_ptr<prometheus::Exposer> exposer;

    void gauge(const char* name, const char* help, double value,
               const prometheus::Labels& labels = {}) {
        prometheus::BuildGauge().Name(name).Help(help).Register(*registry).Add(labels).Set(value);
    }
    // Totals of the card, which only grow: the counter follows.
    void counter(const char* name, const char* help, std::uint64_t total,
                 const prometheus::Labels& labels = {}) {
        auto& one =
            prometheus::BuildCounter().Name(name).Help(help).Register(*registry).Add(labels);
        const double behind = static_cast<double>(total) - one.Value();
        if (behind > 0) one.Increment(behind);
    }
    void update(const IngressSnapshot& snapshot);
    void update(const EgressSnapshot& snapshot);
};

namespace {

prometheus::Labels path_label(std::size_t path) { return {{"path", std::to_string(path)}}; }

}  // namespace

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

Result<std::unique_ptr<Metrics>> Metrics::serve(const std::string& address) {
    std::unique_ptr<Metrics> metrics(new Metrics);
    try {
        metrics->impl_->exposer = std::make_unique<prometheus::Exposer>(address, 1);
    } catch (const std::exception& error) {
        return Error{EADDRINUSE,
                     fmt::format("--metrics: cannot listen at '{}': {}", address, error.what())};
    }
    metrics->impl_->exposer->RegisterCollectable(metrics->impl_->registry);
    return metrics;
}

void Metrics::Impl::update(const IngressSnapshot& snapshot) {
    for (std::size_t path = 0; path < snapshot.counters.size(); ++path) {
        const prometheus::Labels label = path_label(path);
        counter("rdmalab_ingress_packets_total", "RoCE packets that came by the path",
                snapshot.counters[path].packets, label);
        counter("rdmalab_ingress_bytes_total", "Bytes that came by the path",
                snapshot.counters[path].bytes, label);
        counter("rdmalab_ingress_ce_marked_total", "Packets that were marked CE on the path",
                snapshot.counters[path].marked, label);
        gauge("rdmalab_ingress_gbps", "Throughput of the path in the last interval, Gb/s",
              snapshot.gigabits_per_second[path], label);
        gauge("rdmalab_ingress_mark_percent", "How much of all traffic the path is to mark",
              snapshot.percents[path], label);
    }
}

void Metrics::Impl::update(const EgressSnapshot& snapshot) {
    for (std::uint32_t path = 0; path < snapshot.counters.packets.size(); ++path) {
        const prometheus::Labels label = path_label(path);
        counter("rdmalab_egress_packets_total", "Packets that were assigned to the path",
                snapshot.counters.packets[path], label);
        counter("rdmalab_egress_bytes_total", "Bytes that were assigned to the path",
                snapshot.counters.bytes[path], label);
        gauge("rdmalab_egress_share_buckets", "Buckets of the dispatch table that the path has",
              snapshot.applied.share(path), label);
        gauge("rdmalab_egress_rate_sum", "Sum of the reduced rates of the path's flows",
              static_cast<double>(snapshot.signals.paths[path].sum), label);
        if (path < snapshot.counters.cnps.size()) {
            counter("rdmalab_egress_cnps_total", "CNPs that came for the path's flows",
                    snapshot.counters.cnps[path], label);
        }
    }
    gauge("rdmalab_egress_buckets", "Buckets of the dispatch table", snapshot.applied.buckets());
    gauge("rdmalab_egress_pending_map", "Flows whose path is not known yet",
          snapshot.signals.pending_map);
    counter("rdmalab_egress_bucket_updates_total", "Entries of the dispatch table updated",
            snapshot.updates_total);
    counter("rdmalab_egress_update_failures_total", "Updates of shares that failed",
            snapshot.failures_total);
    counter("rdmalab_egress_reports_total", "Rate reports received", snapshot.reports_total);
}

void Metrics::update(const SwitchProgram& program) {
    if (program.ingress() != nullptr) impl_->update(program.ingress()->snapshot());
    if (program.egress() != nullptr) impl_->update(program.egress()->snapshot());
    impl_->counter("rdmalab_frames_missed_total", "Copied frames that were not fetched in time",
                   program.frames_missed());
}

void Metrics::update_process(bool is_active, std::uint64_t events, std::uint64_t events_lost,
                             std::uint64_t reports_lost) {
    impl_->gauge("rdmalab_pcc_active", "1: the algorithm of this program is in charge",
                 is_active ? 1 : 0);
    impl_->counter("rdmalab_pcc_events_total", "Events the algorithm has seen", events);
    impl_->counter("rdmalab_pcc_events_lost_total", "Events that found no room", events_lost);
    impl_->counter("rdmalab_pcc_reports_lost_total", "Reports that found no room", reports_lost);
}

}  // namespace rdmalab::steer

// The programs of the path steering experiment: flow_steer, pcc, and pairs of ib_write_bw that run
// unmodified on a card of their own.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rdmalab/card_client.h"
#include "rdmalab/card_process.h"
#include "rdmalab/demo_run.h"
#include "rdmalab/experiment_facts.h"

namespace rdmalab::launcher {

// A file of JSON records that grows, read as far as there are whole lines.
class RecordFile {
public:
    explicit RecordFile(std::string path) : path_(std::move(path)) {}
    const std::string& path() const { return path_; }
    std::vector<Json> read_new();

private:
    std::string path_;
    std::size_t offset_ = 0;
};

// A folder that goes with the object.
class TemporaryFolder {
public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    std::string file(const std::string& name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

struct Receiver {
    std::string device, ip, representor;
};

// What is started how.
struct ExperimentPlan {
    std::vector<Receiver> receivers;  // per path
    std::string sender_device = "mlx5_3", sender_representor = "pf1sf0", pcc_device = "mlx5_1";
    std::string ingress_pci = "0000:03:00.0", egress_pci = "0000:03:00.1";
    std::vector<double> percents;  // per path
    std::string compat = "3.4";
};

class ExperimentPrograms {
public:
    ExperimentPrograms(const ExperimentPlan& plan, const std::string& card);

    void start_ingress();
    void start_pcc();
    void start_receivers();
    void start_senders();
    // kill -9, then once more from the start.
    void restart_ingress();
    void restart_pcc();
    // As a user would: flow_steer --tell PID ...
    void change_percents(const std::vector<double>& percents);
    // In order: senders and receivers first. True when both programs ended with status 0.
    bool stop();

    CollectedProcess& ingress() { return *ingress_; }
    CollectedProcess& pcc() { return *pcc_; }
    bool ingress_says(const std::string& text) const;
    bool pcc_says(const std::string& text) const;
    // Programs that have ended or complained, with what they said last.
    std::vector<std::string> troubles();
    std::vector<CollectedProcess*> senders();
    RecordFile& ingress_records() { return ingress_records_; }
    RecordFile& pcc_records() { return pcc_records_; }

private:
    std::unique_ptr<CollectedProcess> start(std::vector<std::string> command,
                                            const std::string& device = "");
    std::vector<std::string> path_words() const;

    const ExperimentPlan& plan_;
    std::map<std::string, std::string> environment_;
    TemporaryFolder folder_;
    RecordFile ingress_records_, pcc_records_;
    std::unique_ptr<CollectedProcess> ingress_, pcc_;
    std::vector<std::unique_ptr<CollectedProcess>> receivers_, senders_;
};

std::vector<std::string> split_lines(const std::string& text);

}  // namespace rdmalab::launcher

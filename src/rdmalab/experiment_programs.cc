#include "rdmalab/experiment_programs.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "rdmalab/failure.h"
#include "rdmalab/runtime_folder.h"

namespace rdmalab::launcher {

namespace {

// What perftest and libraries say when a transport fails.
constexpr const char* kComplaints[] = {
    "Failed status", "Completion with error", "failed", "Unable to", "Couldn't", "error"};

std::string own_program(const char* name) { return own_folder() / name; }

std::string complaint_of(const CollectedProcess& process) {
    for (const std::string& line : split_lines(process.output())) {
        for (const char* complaint : kComplaints) {
            if (line.find(complaint) != std::string::npos) return line;
        }
    }
    return "";
}

}  // namespace

std::vector<Json> RecordFile::read_new() {
    std::ifstream file(path_);
    file.seekg(static_cast<std::streamoff>(offset_));
    std::vector<Json> records;
    std::string line;
    // A line without its end is still being written.
    while (std::getline(file, line) && !file.eof()) {
        offset_ += line.size() + 1;
        Json record = Json::parse(line, nullptr, false);
        if (!record.is_discarded()) records.push_back(std::move(record));
    }
    return records;
}

TemporaryFolder::TemporaryFolder() {
    std::error_code ignored;
    path_ = std::filesystem::temp_directory_path(ignored) / "rdmalab-demo-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) {
        throw Failure(kExitFailed, fmt::format("no temporary folder: {}", std::strerror(errno)));
    }
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

ExperimentPrograms::ExperimentPrograms(const ExperimentPlan& plan, const std::string& card)
    : plan_(plan),
      environment_{{"LD_LIBRARY_PATH", library_folder()},
                   {"RDMALAB_SOCKET", card_files(card).socket},
                   {"RDMALAB_CARD", card}},
      ingress_records_(folder_.file("ingress.json")),
      pcc_records_(folder_.file("pcc.json")) {}

std::unique_ptr<CollectedProcess> ExperimentPrograms::start(std::vector<std::string> command,
                                                            const std::string& device) {
    std::map<std::string, std::string> environment = environment_;
    if (!device.empty()) {
        environment["RDMALAB_DEVICES"] = device;
    } else {
        // Our own programs are not meant for the drop-in.
        environment.erase("LD_LIBRARY_PATH");
    }
    auto process = std::make_unique<CollectedProcess>(std::move(command), environment);
    fmt::print("  {}{}\n", device.empty() ? "" : fmt::format("RDMALAB_DEVICES={} ", device),
               process->command_line());
    std::fflush(stdout);
    return process;
}

std::vector<std::string> ExperimentPrograms::path_words() const {
    std::vector<std::string> words;
    for (std::size_t path = 0; path < plan_.receivers.size(); ++path) {
        words.push_back(fmt::format("--path{}-ip", path));
        words.push_back(plan_.receivers[path].ip);
    }
    if (plan_.receivers.size() != 2) {
        words.insert(words.end(), {"--paths", std::to_string(plan_.receivers.size())});
    }
    if (plan_.compat != "3.4") words.insert(words.end(), {"--compat", plan_.compat});
    return words;
}

void ExperimentPrograms::start_ingress() {
    std::vector<std::string> command = {own_program("flow_steer")};
    for (std::size_t path = 0; path < plan_.receivers.size(); ++path) {
        command.push_back(path == 0 ? "-r" : path == 1 ? "-R" : fmt::format("--path{}-rep", path));
        command.push_back(
            fmt::format("pci/{},{}", plan_.ingress_pci, plan_.receivers[path].representor));
    }
    for (std::string& word : path_words()) command.push_back(std::move(word));
    command.insert(command.end(), {"--role", "ingress"});
    for (std::size_t path = 0; path < plan_.percents.size(); ++path) {
        command.push_back(fmt::format("--path{}-percent", path));
        command.push_back(fmt::format("{}", plan_.percents[path]));
    }
    command.insert(command.end(), {"--json", ingress_records_.path()});
    ingress_ = start(std::move(command));
}

void ExperimentPrograms::start_pcc() {
    std::vector<std::string> command = {
        own_program("pcc"), "--device", plan_.pcc_device, "-r",
        fmt::format("pci/{},{}", plan_.egress_pci, plan_.sender_representor)};
    for (std::string& word : path_words()) command.push_back(std::move(word));
    command.insert(command.end(), {"--json", pcc_records_.path()});
    pcc_ = start(std::move(command));
}

void ExperimentPrograms::start_receivers() {
    for (const Receiver& receiver : plan_.receivers) {
        receivers_.push_back(start(
            {"ib_write_bw", "-d", receiver.device, "-R", "--report_gbits", "--run_infinitely"},
            receiver.device));
    }
}

void ExperimentPrograms::start_senders() {
    for (const Receiver& receiver : plan_.receivers) {
        senders_.push_back(start({"ib_write_bw", "-d", plan_.sender_device, "-R", "-F", receiver.ip,
                                  "--report_gbits", "--run_infinitely"},
                                 plan_.sender_device));
    }
}

void ExperimentPrograms::restart_ingress() {
    ingress_->kill();
    ingress_records_ = RecordFile(folder_.file("ingress-again.json"));
    start_ingress();
}

void ExperimentPrograms::restart_pcc() {
    pcc_->kill();
    pcc_records_ = RecordFile(folder_.file("pcc-again.json"));
    start_pcc();
}

void ExperimentPrograms::change_percents(const std::vector<double>& percents) {
    std::vector<std::string> command = {own_program("flow_steer"), "--tell",
                                        std::to_string(ingress_->pid())};
    for (std::size_t path = 0; path < percents.size(); ++path) {
        command.push_back(fmt::format("path{}-percent", path));
        command.push_back(fmt::format("{}", percents[path]));
    }
    const auto tell = start(std::move(command));
    if (tell->wait() != 0) throw Failure(kExitFailed, tell->output());
}

bool ExperimentPrograms::stop() {
    senders_.clear();
    receivers_.clear();
    constexpr double kGraceSeconds = 10;
    const int pcc = pcc_->stop(kGraceSeconds), ingress = ingress_->stop(kGraceSeconds);
    return pcc == 0 && ingress == 0;
}

bool ExperimentPrograms::ingress_says(const std::string& text) const {
    return ingress_->output().find(text) != std::string::npos;
}
bool ExperimentPrograms::pcc_says(const std::string& text) const {
    return pcc_->output().find(text) != std::string::npos;
}

std::vector<std::string> ExperimentPrograms::troubles() {
    std::vector<std::string> found;
    const auto look = [&](CollectedProcess& process) {
        const std::string complaint = complaint_of(process);
        const std::optional<int> status = process.exit_status();
        if (!status && complaint.empty()) return;
        std::string last = complaint;
        for (const std::string& line : split_lines(process.output())) {
            if (complaint.empty() && !line.empty()) last = line;
        }
        found.push_back(fmt::format(
            "'{}' {}: {}", process.command_line(),
            status ? fmt::format("ended with {}", *status) : std::string("complains"), last));
    };
    for (auto& process : receivers_) look(*process);
    for (auto& process : senders_) look(*process);
    for (auto* process : {ingress_.get(), pcc_.get()}) {
        if (process == nullptr || !process->exit_status()) continue;
        found.push_back(fmt::format("'{}' ended with {}:\n{}", process->command_line(),
                                    *process->exit_status(), process->output()));
    }
    return found;
}

std::vector<CollectedProcess*> ExperimentPrograms::senders() {
    std::vector<CollectedProcess*> processes;
    for (auto& process : senders_) processes.push_back(process.get());
    return processes;
}

std::vector<std::string> split_lines(const std::string& text) {
    std::vector<std::string> lines;
    std::size_t at = 0;
    while (at < text.size()) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        lines.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return lines;
}

}  // namespace rdmalab::launcher

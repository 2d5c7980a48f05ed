#include "rdmalab/lab_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>

#include "base/edit_distance.h"
#include "rdmalab/failure.h"
#include "rdmalab/runtime_folder.h"
#include "rdmalab/signals.h"

namespace rdmalab::launcher {

namespace fs = std::filesystem;

namespace {

fs::path lock_file() { return runtime_folder() / "lab.lock"; }
fs::path record_file() { return lab_folder() / "lab.json"; }

[[noreturn]] void fail(const std::string& what) {
    throw Failure(kExitFailed, fmt::format("cannot {}: {}", what, std::strerror(errno)));
}

void make_folder(const fs::path& path) {
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) fail("make " + path.string());
}

Fd open_lock(int flags) { return Fd(open(lock_file().c_str(), flags | O_CLOEXEC, 0600)); }

// An anonymous file with `content`, at its beginning.
Fd memory_file(const std::string& content) {
    Fd file(memfd_create("rdmalab-lab", MFD_CLOEXEC));
    if (!file.is_open() || pwrite(file.value(), content.data(), content.size(), 0) !=
                               static_cast<ssize_t>(content.size()))
        fail("make a file in memory");
    return file;
}

std::string read_all(const Fd& file) {
    std::string text;
    char buffer[4096];
    ssize_t got = 0;
    while ((got = pread(file.value(), buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0)
        text.append(buffer, static_cast<std::size_t>(got));
    return text;
}

}  // namespace

fs::path lab_folder() { return runtime_folder() / "lab"; }
fs::path lab_log() { return lab_folder() / "log"; }

Fd claim_lab_folder() {
    make_folder(runtime_folder());
    Fd lock = open_lock(O_RDWR | O_CREAT);
    if (!lock.is_open()) fail("open " + lock_file().string());
    if (flock(lock.value(), LOCK_EX | LOCK_NB) != 0) {
        const auto lab = find_lab();
        throw Failure(kExitBadInput,
                      lab ? fmt::format("a lab is up already ({}); take it down first: rdmalab lab "
                                        "down",
                                        lab->names())
                          : std::string("another lab is coming up or going down"));
    }
    fs::remove_all(lab_folder());
    make_folder(lab_folder());
    return lock;
}

bool is_lab_folder_idle() {
    const Fd lock = open_lock(O_RDWR);
    return !lock.is_open() || flock(lock.value(), LOCK_EX | LOCK_NB) == 0;
}

void remove_lab_folder() {
    std::error_code ignored;
    fs::remove_all(lab_folder(), ignored);
    fs::remove(lock_file(), ignored);
}

void write_lab_file(const std::string& name, const std::string& content, unsigned mode) {
    const fs::path path = lab_folder() / name;
    std::ofstream file(path, std::ios::binary);
    file << content;
    file.close();
    if (!file || chmod(path.c_str(), mode) != 0) fail("write " + path.string());
}

// Readers see the old record or the new one.
void record_lab(const Lab& lab) {
    write_lab_file("lab.json.new", lab.to_json().dump(1) + "\n");
    fs::rename(lab_folder() / "lab.json.new", record_file());
}

std::optional<Lab> find_lab() {
    std::ifstream file(record_file());
    const Json json = Json::parse(file, nullptr, false);
    auto lab = Lab::from_json(json);
    if (!lab || !is_alive(lab->keeper)) return std::nullopt;
    return lab;
}

Lab find_lab_or_fail() {
    auto lab = find_lab();
    if (!lab) throw Failure(kExitFailed, "no lab is up; start one with: rdmalab lab up 4");
    return *lab;
}

const LabHost& find_host_or_fail(const Lab& lab, const std::string& name) {
    if (const LabHost* host = lab.find(name)) return *host;
    std::string text = fmt::format("no host '{}'; expected one of {}", name, lab.names());
    for (const LabHost& host : lab.hosts) {
        if (edit_distance(name, host.name) > 1) continue;
        text += fmt::format("; did you mean '{}'?", host.name);
        break;
    }
    throw Failure(kExitBadInput, text);
}

void pause_ms(int milliseconds) {
    const timespec time{milliseconds / 1'000, milliseconds % 1'000 * 1'000'000L};
    nanosleep(&time, nullptr);
}

std::string run_tool(const std::vector<std::string>& words, const std::string& input,
                     const std::string& hint) {
    const Fd in = memory_file(input), out = memory_file({});
    std::vector<std::string> copies = words;
    std::vector<char*> pointers;
    for (std::string& word : copies) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        StopSignals::restore();
        dup2(in.value(), STDIN_FILENO);
        dup2(out.value(), STDOUT_FILENO);
        dup2(out.value(), STDERR_FILENO);
        execvp(pointers[0], pointers.data());
        _exit(kExitNotFound);
    }
    if (child < 0) fail("start " + words[0]);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return read_all(out);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kExitNotFound)
        throw Failure(kExitFailed,
                      fmt::format("cannot run {}{}", words[0], hint.empty() ? "" : "; " + hint));
    std::string text = read_all(out);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    throw Failure(kExitFailed, fmt::format("{} failed: {}", words[0], text));
}

}  // namespace rdmalab::launcher

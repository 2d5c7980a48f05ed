#include "card/host/namespaces.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sched.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "card/host/subprocess.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71  // Linux 5.14
#endif

namespace rdmalab::card::host {
namespace {

using Json = nlohmann::json;

constexpr char kFolder[] = "/run/netns";      // of iproute2, as the next one
constexpr char kFileFolder[] = "/etc/netns";  // a folder per namespace

std::string path_of(const std::string& name) { return fmt::format("{}/{}", kFolder, name); }

std::string boot_id() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    std::getline(file, id);
    return id;
}

UniqueFd open_namespace(const std::string& path) {
    return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

NamespaceId id_of(int handle) {
    struct stat facts {};
    if (::fstat(handle, &facts) != 0) return {};
    return {facts.st_dev, facts.st_ino};
}

// Of the calling thread's namespace. Kernels before 5.14 have no cookies: the inode must do.
std::uint64_t cookie_here() {
    const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    std::uint64_t cookie = 0;
    socklen_t length = sizeof cookie;
    if (::getsockopt(socket.value(), SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &length) == 0) {
        return cookie;
    }
    return id_of(open_namespace("/proc/thread-self/ns/net").value()).inode;
}

// The namespace that has the name now; 0: none, or it cannot be looked at.
std::uint64_t cookie_of(const std::string& name) {
    const UniqueFd home = open_namespace("/proc/thread-self/ns/net");
    const UniqueFd there = open_namespace(path_of(name));
    if (!home || !there || ::setns(there.value(), CLONE_NEWNET) != 0) return 0;
    const std::uint64_t cookie = cookie_here();
    if (::setns(home.value(), CLONE_NEWNET) != 0) {
        spdlog::critical("cannot return from namespace {}", name);
        std::abort();
    }
    return cookie;
}

Status ip(std::vector<std::string> words) {
    words.insert(words.begin(), "ip");
    Status done = run_program(words);
    if (done.code() != ENOENT) return done;
    return Error{ENOENT, done.error().text + "; network namespaces need iproute2"};
}

// A name is a file on which the namespace is mounted. One that was made where its mount does not
// reach this process (a mount namespace of its own) shows as the bare file.
bool is_namespace(const std::string& name) {
    struct statfs facts {};
    return ::statfs(path_of(name).c_str(), &facts) == 0 && facts.f_type == NSFS_MAGIC;
}

bool exists(const std::string& name) {
    struct stat facts {};
    return ::lstat(path_of(name).c_str(), &facts) == 0;
}

// In reverse order: a folder goes when it is empty then.
void remove_paths(const std::vector<std::string>& paths) {
    std::error_code ignored;
    for (auto path = paths.rbegin(); path != paths.rend(); ++path) {
        std::filesystem::remove(*path, ignored);
    }
}

// A namespace of that name which is not the one of the cookie stays.
Status remove_if_ours(const std::string& name, std::uint64_t cookie) {
    if (!exists(name)) return {};
    if (is_namespace(name) && cookie_of(name) != cookie) {
        spdlog::warn("namespace {} is not the one that this card made: it stays", name);
        return {};
    }
    Status removed = ip({"netns", "del", name});
    if (!removed) spdlog::warn("cannot remove namespace {}: {}", name, removed.error().text);
    return removed;
}

// Throws Json::exception when it is no record. Files outlive the machine's next start, namespaces
// do not.
Status remove_all_of(const Json& record) {
    const bool is_of_now = record.at("boot") == boot_id();
    for (const Json& made : record.at("namespaces")) {
        remove_paths(made.at("paths").get<std::vector<std::string>>());
        if (!is_of_now) continue;
        Status removed = remove_if_ours(made.at("name").get<std::string>(),
                                        made.at("cookie").get<std::uint64_t>());
        if (!removed) return removed;
    }
    return {};
}

}  // namespace

NamespaceId network_namespace_of(pid_t pid) {
    struct stat facts {};
    if (::stat(fmt::format("/proc/{}/ns/net", pid).c_str(), &facts) != 0) return {};
    return {facts.st_dev, facts.st_ino};
}

std::string Namespaces::record_of(const std::string& folder, const std::string& card) {
    return fmt::format("{}/{}.netns", folder, card);
}

Status Namespaces::remove_recorded(const std::string& record) {
    std::ifstream file(record);
    if (!file) return {};
    try {
        if (Status removed = remove_all_of(Json::parse(file)); !removed) return removed;
    } catch (const Json::exception& error) {
        return Error{EBADMSG, fmt::format("{}: expected a record of network namespaces, found "
                                          "something else ({}); it can be removed by hand",
                                          record, error.what())};
    }
    if (::unlink(record.c_str()) != 0) return system_error(fmt::format("cannot remove {}", record));
    return {};
}

Result<std::unique_ptr<Namespaces>> Namespaces::open(const std::string& record) {
    if (Status removed = remove_recorded(record); !removed) return removed.error();
    UniqueFd home = open_namespace("/proc/thread-self/ns/net");
    if (!home) return system_error("cannot open the card's own network namespace");
    return std::unique_ptr<Namespaces>(new Namespaces(record, std::move(home)));
}

Namespaces::~Namespaces() {
    bool all = true;
    for (const Made& made : made_) {
        remove_paths(made.paths);
        all &= remove_if_ours(made.name, made.cookie).ok();
    }
    if (all) ::unlink(record_.c_str());
}

Status Namespaces::make(const std::string& name, const std::function<Status()>& furnish) {
    if (exists(name)) {
        return Error{EADDRINUSE,
                     fmt::format("network namespace {} exists already, and this card did not make "
                                 "it: remove it (ip netns del {}), take down the card that has it, "
                                 "or name another in the topology",
                                 name, name)};
    }
    if (Status entered = enter_new(); !entered) return entered;
    made_.push_back({name, cookie_here(), {}, open_namespace("/proc/thread-self/ns/net"), {}});
    made_.back().id = id_of(made_.back().handle.value());
    Status done = write_record();
    const bool is_recorded = done.ok();
    if (done) done = ip({"netns", "attach", name, std::to_string(::gettid())});
    if (done) done = furnish();
    if (Status left = leave(); !left) return left;
    if (!done) {
        if (is_recorded) (void)remove_if_ours(name, made_.back().cookie);
        forget_last();
    }
    return done;
}

Status Namespaces::place_file(const std::string& name, const std::string& file,
                              std::string_view content) {
    const auto made =
        std::find_if(made_.begin(), made_.end(), [&](const Made& one) { return one.name == name; });
    if (made == made_.end()) return Error{ENOENT, "no namespace of this card is named " + name};
    const std::string folder = fmt::format("{}/{}", kFileFolder, name);
    const std::string path = fmt::format("{}/{}", folder, file);
    for (const std::string& one : {std::string(kFileFolder), folder}) {
        if (Status ready = make_folder(*made, one); !ready) return ready;
    }
    if (std::filesystem::exists(path)) return Error{EEXIST, path + " exists already"};
    made->paths.push_back(path);
    if (Status written = write_record(); !written) return written;
    std::ofstream out(path, std::ios::binary);
    out << content;
    out.close();
    return out ? Status() : system_error(fmt::format("cannot write {}", path));
}

Status Namespaces::make_folder(Made& made, const std::string& folder) {
    if (std::filesystem::is_directory(folder)) return {};
    made.paths.push_back(folder);
    if (Status written = write_record(); !written) return written;
    if (::mkdir(folder.c_str(), 0755) == 0) return {};
    return system_error(fmt::format("cannot make {}", folder));
}

Status Namespaces::enter_new() {
    if (::unshare(CLONE_NEWNET) == 0) return {};
    const Error error = system_error("cannot make a network namespace");
    return error.code == EPERM ? Error{EPERM, error.text + "; network namespaces need root"}
                               : error;
}

Status Namespaces::leave() {
    if (::setns(home_.value(), CLONE_NEWNET) == 0) return {};
    return system_error("cannot return to the card's own network namespace");
}

void Namespaces::forget_last() {
    made_.pop_back();
    if (!made_.empty()) {
        (void)write_record();
    } else {
        ::unlink(record_.c_str());
    }
}

Status Namespaces::write_record() const {
    Json json = {{"boot", boot_id()}, {"namespaces", Json::array()}};
    for (const Made& made : made_) {
        json["namespaces"].push_back(
            {{"name", made.name}, {"cookie", made.cookie}, {"paths", made.paths}});
    }
    const std::string fresh = record_ + ".new";
    std::ofstream file(fresh);
    file << json.dump() << '\n';
    file.close();
    std::error_code error;
    if (file) std::filesystem::rename(fresh, record_, error);
    if (!file || error) return system_error(fmt::format("cannot write {}", record_));
    return {};
}

std::string Namespaces::name_of(const NamespaceId& id) const {
    for (const Made& made : made_) {
        if (made.id == id) return made.name;
    }
    return {};
}

}  // namespace rdmalab::card::host

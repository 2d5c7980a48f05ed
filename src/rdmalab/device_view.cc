#include "rdmalab/device_view.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>

#include "rdmalab/fd.h"

namespace rdmalab::launcher {

namespace {

Error failed(const std::string& action) {
    return {errno, fmt::format("{}: {}", action, std::strerror(errno))};
}

// ------------------------------------------------------------------------------------------------
// facts

// The interface that carries one of the addresses; else the loopback interface, which is there on
// every machine and where programs on one machine find each other.
std::string netdev_for(const std::vector<Gid>& gids) {
    std::string found = "lo";
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) return found;
    for (ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
        auto* address = reinterpret_cast<sockaddr_in*>(entry->ifa_addr);
        Gid gid = Gid::from_ipv4(ntohl(address->sin_addr.s_addr));
        if (std::find(gids.begin(), gids.end(), gid) != gids.end()) found = entry->ifa_name;
    }
    freeifaddrs(list);
    return found;
}

std::vector<Gid> gids_of(const Json& function) {
    std::vector<Gid> gids;
    if (auto mac = MacAddress::parse(function.value("mac", ""))) {
        gids.push_back(Gid::link_local(*mac));
    }
    for (const Json& ip : function.value("ips", Json::array())) {
        if (auto gid = Gid::parse(ip.get<std::string>())) gids.push_back(*gid);
    }
    return gids;
}

DeviceFacts facts_of(const abi::DeviceInfo& info, const Json& function, const Json& counters) {
    DeviceFacts facts;
    facts.name = info.name;
    facts.uverbs_index = info.uverbs_index;
    facts.pci = info.pci[0] != 0 ? info.pci : "0000:00:00.0";
    facts.owns_pci = function.value("kind", "") != "sf";
    facts.guid = info.node_guid;
    facts.gids = gids_of(function);
    facts.rate_bps = function.value("rate_bps", std::uint64_t{0});
    facts.cpu_count = static_cast<std::uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_CONF)));
    facts.netdev = netdev_for(facts.gids);
    for (const auto& [key, value] : counters.items()) {
        if (value.is_number_unsigned()) facts.counters[key] = value.get<std::uint64_t>();
    }
    return facts;
}

// ------------------------------------------------------------------------------------------------
// namespaces

Status write_file(const std::string& path, const std::string& text) {
    Fd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!file.is_open() ||
        write(file.value(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
        return failed("write " + path);
    }
    return {};
}

// Same uid and gid inside as outside: the card's check of the peer and of its memory still hold.
Status enter_user_namespace() {
    uid_t uid = geteuid();
    gid_t gid = getegid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return failed("make a user namespace");
    // Required before an unprivileged process may write its gid map.
    if (Status status = write_file("/proc/self/setgroups", "deny"); !status) return status;
    if (Status status = write_file("/proc/self/uid_map", fmt::format("{0} {0} 1", uid)); !status) {
        return status;
    }
    return write_file("/proc/self/gid_map", fmt::format("{0} {0} 1", gid));
}

// What the machine mounts later still arrives here; what is mounted here stays here. In a chroot
// "/" is no mount of its own; then it is enough to detach those that will be covered.
Status detach_mounts() {
    constexpr unsigned long kFlags = MS_REC | MS_SLAVE;
    if (mount(nullptr, "/", nullptr, kFlags, nullptr) == 0) return {};
    for (const char* path : {"/sys", "/dev"}) {
        if (mount(nullptr, path, nullptr, kFlags, nullptr) != 0) {
            return failed(fmt::format("detach the mounts of {}", path));
        }
    }
    return {};
}

Status enter_namespaces() {
    if (unshare(CLONE_NEWNS) != 0) {
        if (errno != EPERM) return failed("make a mount namespace");
        if (Status status = enter_user_namespace(); !status) return status;
    }
    return detach_mounts();
}

// ------------------------------------------------------------------------------------------------
// mounts

Status mount_memory(const std::string& path) {
    if (mount("rdmalab", path.c_str(), "tmpfs", MS_NOSUID, "mode=755") != 0) {
        return failed("mount a memory file system on " + path);
    }
    return {};
}

Status touch(const std::string& path) {
    Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    return file.is_open() ? Status{} : Status(failed("create " + path));
}

Status bind_file(const std::string& source, const std::string& target) {
    if (Status status = touch(target); !status) return status;
    if (mount(source.c_str(), target.c_str(), nullptr, MS_BIND, nullptr) != 0) {
        return failed("bind " + target);
    }
    return {};
}

// Makes `target` show what `source`, an entry of the covered folder, was.
Status carry_over(int covered, const std::string& name, const std::string& target) {
    std::string source = fmt::format("/proc/self/fd/{}/{}", covered, name);
    struct stat facts {};
    if (fstatat(covered, name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0) {
        return failed("look at " + target);
    }
    if (S_ISLNK(facts.st_mode)) {
        char link[4096] = {};
        if (readlinkat(covered, name.c_str(), link, sizeof link - 1) < 0 ||
            symlink(link, target.c_str()) != 0) {
            return failed("link " + target);
        }
        return {};
    }
    if (!S_ISDIR(facts.st_mode)) return bind_file(source, target);
    if (mkdir(target.c_str(), 0755) != 0 ||
        mount(source.c_str(), target.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) {
        return failed("bind " + target);
    }
    return {};
}

// Covers a folder with a memory file system that shows the same entries, except `left_out`.
Status make_extendable(const std::string& folder, const std::set<std::string>& left_out) {
    Fd covered(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!covered.is_open()) return failed("open " + folder);
    if (Status status = mount_memory(folder); !status) return status;
    std::unique_ptr<DIR, int (*)(DIR*)> entries(fdopendir(dup(covered.value())), closedir);
    if (!entries) return failed("read " + folder);
    while (const dirent* entry = readdir(entries.get())) {
        std::string name = entry->d_name;
        if (name == "." || name == ".." || left_out.contains(name)) continue;
        if (Status status = carry_over(covered.value(), name, folder + "/" + name); !status) {
            return status;
        }
    }
    return {};
}

Status create(const TreeEntry& entry) {
    std::string path = "/sys/class/" + entry.path;
    switch (entry.kind) {
        case TreeEntry::Kind::kFolder:
            if (mkdir(path.c_str(), 0755) != 0) return failed("create " + path);
            return {};
        case TreeEntry::Kind::kLink:
            if (symlink(entry.content.c_str(), path.c_str()) != 0) return failed("link " + path);
            return {};
        case TreeEntry::Kind::kFile:
            break;
    }
    Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444));
    std::size_t size = entry.content.size();
    if (!file.is_open() ||
        write(file.value(), entry.content.data(), size) != static_cast<ssize_t>(size)) {
        return failed("create " + path);
    }
    return {};
}

Status show_classes(const std::vector<DeviceFacts>& devices) {
    Status status = make_extendable(
        "/sys/class", {"infiniband", "infiniband_verbs", "infiniband_mad", "rdmalab"});
    if (!status) return status;
    for (const TreeEntry& entry : sysfs_tree(devices)) {
        if (status = create(entry); !status) return status;
    }
    if (mount(nullptr, "/sys/class", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID,
              nullptr) != 0) {
        return failed("make /sys/class read-only");
    }
    return {};
}

Status show_character_devices(std::uint32_t count) {
    constexpr char kFolder[] = "/dev/infiniband";
    struct stat facts {};
    if (stat(kFolder, &facts) == 0) {
        if (Status status = mount_memory(kFolder); !status) return status;
    } else {
        if (Status status = make_extendable("/dev", {}); !status) return status;
        if (mkdir(kFolder, 0755) != 0) return failed("create /dev/infiniband");
    }
    for (std::uint32_t i = 0; i < count; ++i) {
        Status status = bind_file("/dev/null", fmt::format("{}/uverbs{}", kFolder, i));
        if (!status) return status;
    }
    return {};
}

}  // namespace

DeviceView device_view_of(CardClient& client) {
    Json status = client.admin({{"op", "status"}});
    Json counters = client.admin({{"op", "counters"}}).value("functions", Json::object());
    DeviceView view;
    view.character_devices =
        static_cast<std::uint32_t>(status.value("functions", Json::array()).size());
    for (const abi::DeviceInfo& info : client.list_devices()) {
        Json function = Json::object();
        for (const Json& candidate : status.value("functions", Json::array())) {
            if (candidate.value("device", "") == info.name) function = candidate;
        }
        view.devices.push_back(facts_of(info, function, counters.value(info.name, Json::object())));
    }
    return view;
}

Status enter_device_view(const DeviceView& view) {
    if (Status status = enter_namespaces(); !status) return status;
    if (Status status = show_classes(view.devices); !status) return status;
    return show_character_devices(view.character_devices);
}

}  // namespace rdmalab::launcher

#include "card/host/card_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace rdmalab::card::host {
namespace {

constexpr std::size_t kNameMax = 48;
constexpr int kBacklog = 256;

bool is_card_name(const std::string& name) {
    return !name.empty() && name.size() <= kNameMax && name.front() != '.' &&
           name.find_first_not_of(
               "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
               "0123456789_-.") == name.npos;
}

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

// The folder must be ours, and nobody else may be able to put a socket of his own there.
Status check_folder(const std::string& folder) {
    struct stat facts {};
    if (::stat(folder.c_str(), &facts) != 0) {
        return system_error(fmt::format("cannot use the runtime folder {}", folder));
    }
    if (!S_ISDIR(facts.st_mode)) {
        return Error{ENOTDIR, fmt::format("the runtime folder {}: expected a folder, found "
                                          "something else",
                                          folder)};
    }
    if (facts.st_uid != ::geteuid()) {
        return Error{EPERM, fmt::format("the runtime folder {}: expected one that belongs to user "
                                        "{}, found one of user {}",
                                        folder, ::geteuid(), facts.st_uid)};
    }
    if ((facts.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        return Error{EPERM, fmt::format("the runtime folder {}: expected one that only its owner "
                                        "can write to, found mode {:04o}",
                                        folder, facts.st_mode & 07777)};
    }
    return {};
}

Status make_folder(const std::string& folder) {
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
        return system_error(fmt::format("cannot make the runtime folder {}", folder));
    }
    return check_folder(folder);
}

std::string read_pid(int fd) {
    char text[32];
    const ssize_t length = ::pread(fd, text, sizeof text, 0);
    if (length <= 0) return "unknown";
    const std::string_view all(text, static_cast<std::size_t>(length));
    return std::string(all.substr(0, all.find('\n')));
}

}  // namespace

std::string runtime_folder() {
    if (const std::string folder = environment("RDMALAB_RUNTIME_DIR"); !folder.empty()) {
        return folder;
    }
    if (const std::string base = environment("XDG_RUNTIME_DIR"); !base.empty()) {
        return base + "/rdmalab";
    }
    if (::geteuid() == 0) return "/run/rdmalab";
    return fmt::format("/tmp/rdmalab-{}", ::geteuid());
}

Result<std::unique_ptr<CardSocket>> CardSocket::claim(const std::string& folder,
                                                      const std::string& name) {
    if (!is_card_name(name)) {
        return Error{EINVAL, fmt::format("the name of the card: expected up to {} letters, digits, "
                                         "'_', '-' and '.', found \"{}\"",
                                         kNameMax, name)};
    }
    std::unique_ptr<CardSocket> socket(new CardSocket());
    socket->name_ = name;
    socket->socket_path_ = fmt::format("{}/{}.sock", folder, name);
    socket->lock_path_ = fmt::format("{}/{}.lock", folder, name);
    if (socket->socket_path_.size() >= sizeof(sockaddr_un::sun_path)) {
        return Error{EINVAL, fmt::format("the path of the card's socket: expected at most {} "
                                         "bytes, found {} ({})",
                                         sizeof(sockaddr_un::sun_path) - 1,
                                         socket->socket_path_.size(), socket->socket_path_)};
    }
    if (Status made = make_folder(folder); !made) return made.error();
    if (Status locked = socket->lock(); !locked) return locked.error();
    if (Status written = socket->write_pid(); !written) return written.error();
    if (Status removed = socket->remove_stale_socket(); !removed) return removed.error();
    if (Status listening = socket->listen(); !listening) return listening.error();
    return socket;
}

CardSocket::~CardSocket() {
    if (owns_socket_) ::unlink(socket_path_.c_str());
    if (owns_lock_) ::unlink(lock_path_.c_str());
}

Status CardSocket::lock() {
    bool lost_race = true;
    while (lost_race) {
        if (Status status = try_lock(lost_race); !status) return status;
    }
    owns_lock_ = true;
    return {};
}

// A card that ends removes its lock file: then what was locked here is no longer the file of that
// name, and the lock is worth nothing.
Status CardSocket::try_lock(bool& lost_race) {
    lock_.reset(::open(lock_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock_) return system_error(fmt::format("cannot open the lock file {}", lock_path_));
    if (::flock(lock_.value(), LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) return system_error(fmt::format("cannot lock {}", lock_path_));
        return Error{EADDRINUSE,
                     fmt::format("a card named \"{}\" is already running (process {}, socket {}); "
                                 "give this one another name with --name",
                                 name_, read_pid(lock_.value()), socket_path_)};
    }
    struct stat ours {
    }, current{};
    lost_race = ::fstat(lock_.value(), &ours) != 0 || ::stat(lock_path_.c_str(), &current) != 0 ||
                ours.st_ino != current.st_ino || ours.st_dev != current.st_dev;
    return {};
}

Status CardSocket::write_pid() {
    const std::string text = fmt::format("{}\n", ::getpid());
    if (::ftruncate(lock_.value(), 0) != 0 ||
        ::pwrite(lock_.value(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
        return system_error(fmt::format("cannot write the lock file {}", lock_path_));
    }
    return {};
}

Status CardSocket::remove_stale_socket() {
    struct stat facts {};
    if (::lstat(socket_path_.c_str(), &facts) != 0) return {};
    if (!S_ISSOCK(facts.st_mode)) {
        return Error{EEXIST, fmt::format("{}: expected nothing or the socket of a dead card, found "
                                         "another file",
                                         socket_path_)};
    }
    if (::unlink(socket_path_.c_str()) != 0) {
        return system_error(fmt::format("cannot remove the stale socket {}", socket_path_));
    }
    return {};
}

Status CardSocket::listen() {
    listener_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener_) return system_error("cannot make a socket");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, socket_path_.data(), socket_path_.size());
    if (::bind(listener_.value(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
        0) {
        return system_error(fmt::format("cannot make the socket {}", socket_path_));
    }
    owns_socket_ = true;
    if (::chmod(socket_path_.c_str(), 0600) != 0 || ::listen(listener_.value(), kBacklog) != 0) {
        return system_error(fmt::format("cannot listen on {}", socket_path_));
    }
    return {};
}

}  // namespace rdmalab::card::host

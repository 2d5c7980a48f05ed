// Network namespaces with a name (ip-netns(8): /run/netns/NAME) that a card makes and removes.
//
// A namespace outlives a card that is killed. Each card therefore keeps a record of what it made,
// <runtime folder>/<card>.netns, and the next holder of the card's lock removes what it lists. The
// record is written before a name appears, and tells a namespace by its cookie, which the kernel
// gives to one namespace only: a namespace that somebody else made under the same name, before or
// later, is never touched.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "card/host/descriptor.h"

namespace rdmalab::card::host {

// Which namespace a process is in. Not reused while somebody holds the namespace.
struct NamespaceId {
    dev_t device = 0;
    ino_t inode = 0;  // 0: unknown
    bool operator==(const NamespaceId&) const = default;
};
NamespaceId network_namespace_of(pid_t pid);

class Namespaces {
public:
    // `record`: the path of the card's record. What it lists is removed first.
    static Result<std::unique_ptr<Namespaces>> open(const std::string& record);
    // Removes them all.
    ~Namespaces();
    Namespaces(const Namespaces&) = delete;
    Namespaces& operator=(const Namespaces&) = delete;

    // Makes a namespace, with its loopback interface down, and calls `furnish` inside. EADDRINUSE
    // when the name is taken. After an error nothing of the namespace is left.
    Status make(const std::string& name, const std::function<Status()>& furnish);

    // Gives programs that ip-netns(8) starts in a namespace of these another /etc/FILE. EEXIST when
    // it is given already: /etc/netns/NAME may be the user's.
    Status place_file(const std::string& name, const std::string& file, std::string_view content);

    // Empty when it is none of these.
    std::string name_of(const NamespaceId& id) const;

    // What a dead card left. The caller holds its lock.
    static Status remove_recorded(const std::string& record);
    static std::string record_of(const std::string& folder, const std::string& card);

private:
    struct Made {
        std::string name;
        std::uint64_t cookie;
        NamespaceId id;
        UniqueFd handle;                 // keeps the namespace, and so its id
        std::vector<std::string> paths;  // files and folders, in the order of their making
    };
    Namespaces(std::string record, UniqueFd home)
        : record_(std::move(record)), home_(std::move(home)) {}
    Status enter_new();
    Status leave();
    Status write_record() const;
    Status make_folder(Made& made, const std::string& folder);
    void forget_last();

    std::string record_;
    UniqueFd home_;  // the namespace of the card
    std::vector<Made> made_;
};

}  // namespace rdmalab::card::host

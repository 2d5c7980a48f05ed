#include "rdmalab/runtime_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "rdmalab/failure.h"

namespace rdmalab::launcher {

namespace fs = std::filesystem;

namespace {

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::string() : std::string(value);
}

bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

fs::path first_existing(std::initializer_list<fs::path> candidates) {
    std::error_code ignored;
    for (const fs::path& candidate : candidates) {
        if (fs::exists(candidate, ignored)) return candidate.lexically_normal();
    }
    return {};
}

}  // namespace

fs::path runtime_folder() {
    if (std::string folder = environment("RDMALAB_RUNTIME_DIR"); !folder.empty()) return folder;
    if (std::string folder = environment("XDG_RUNTIME_DIR"); !folder.empty()) {
        return fs::path(folder) / "rdmalab";
    }
    if (geteuid() == 0) return "/run/rdmalab";
    return fmt::format("/tmp/rdmalab-{}", geteuid());
}

void check_card_name(const std::string& name) {
    const std::string expected = fmt::format(
        "expected 1 to {} letters, digits, '.', '_' or '-', not beginning with '.'", kCardNameMax);
    auto bad = std::find_if_not(name.begin(), name.end(), is_name_character);
    if (name.empty() || name.size() > kCardNameMax || name.front() == '.') {
        throw Failure(kExitBadInput, fmt::format("card name '{}': {}", name, expected));
    }
    if (bad != name.end()) {
        throw Failure(kExitBadInput,
                      fmt::format("card name '{}': {}, found '{}'", name, expected, *bad));
    }
}

std::string card_name_or_default(const std::string& name) {
    if (!is_card_named(name)) return kDefaultCard;
    std::string wanted = name.empty() ? environment("RDMALAB_CARD") : name;
    check_card_name(wanted);
    return wanted;
}

bool is_card_named(const std::string& name) {
    return !name.empty() || !environment("RDMALAB_CARD").empty();
}

CardFiles card_files(const std::string& name) {
    fs::path folder = runtime_folder();
    return {folder / (name + ".sock"), folder / (name + ".lock"), folder / (name + ".log"),
            folder / (name + ".netns")};
}

std::vector<std::string> names_in_use() {
    std::vector<std::string> names;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(runtime_folder(), error)) {
        const fs::path extension = entry.path().extension();
        if (extension == ".sock" || extension == ".netns") names.push_back(entry.path().stem());
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
}

fs::path own_folder() {
    std::error_code error;
    fs::path program = fs::read_symlink("/proc/self/exe", error);
    if (error) throw Failure(kExitFailed, "cannot read /proc/self/exe: " + error.message());
    return program.parent_path();
}

fs::path card_program() {
    fs::path bin = own_folder();
    fs::path found = first_existing({bin / "rdmalab-card", bin / "../libexec/rdmalab-card"});
    if (found.empty()) {
        throw Failure(kExitFailed,
                      fmt::format("the card program 'rdmalab-card' is not in {}; 'make build' "
                                  "builds it",
                                  bin.string()));
    }
    return found;
}

fs::path library_folder() {
    fs::path built = own_folder() / "../lib/rdma";
    fs::path installed = own_folder() / ".." / RDMALAB_INSTALLED_LIBRARIES;
    fs::path found = first_existing({built / "libibverbs.so.1", installed / "libibverbs.so.1"});
    if (found.empty()) {
        throw Failure(
            kExitFailed,
            fmt::format("the drop-in libraries are neither in {} nor in {}; 'make build' "
                        "builds them",
                        built.lexically_normal().string(), installed.lexically_normal().string()));
    }
    return found.parent_path();
}

}  // namespace rdmalab::launcher

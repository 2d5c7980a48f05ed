#include "pcc/host/algorithm.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "pcc/algorithm_entry.h"

#ifndef RDMALAB_LIBDIR
#error "the build defines RDMALAB_LIBDIR"
#endif

namespace rdmalab::pcc::host {
namespace {

namespace fs = std::filesystem;

bool is_path(const std::string& file) {
    return file.find('/') != std::string::npos || file.ends_with(".so");
}

std::vector<fs::path> folders() {
    std::vector<fs::path> all;
    const char* const given = std::getenv("RDMALAB_PCC_PATH");
    std::string list = given == nullptr ? "" : given;
    while (!list.empty()) {
        const std::size_t end = list.find(':');
        if (end != 0) all.emplace_back(list.substr(0, end));
        list = end == std::string::npos ? "" : list.substr(end + 1);
    }
    std::error_code error;
    const fs::path program = fs::read_symlink("/proc/self/exe", error);
    for (fs::path up = program.parent_path(); !up.empty() && up != up.root_path();
         up = up.parent_path()) {
        if (up.filename() != "bin") continue;
        all.push_back(up.parent_path() / "lib/pcc");
        all.push_back(up.parent_path() / RDMALAB_LIBDIR "/rdmalab/pcc");
    }
    return all;
}

std::string find_by_name(const std::string& name) {
    std::error_code error;
    for (const fs::path& folder : folders()) {
        const fs::path path = folder / (name + ".so");
        if (fs::exists(path, error)) return path;
    }
    return {};
}

Error system_error(const std::string& what) {
    const int code = errno;
    return {code, what + ": " + std::strerror(code)};
}

// A copy of the file that nobody else has: the linker takes it for another library each time.
Result<int> private_copy(const std::string& path) {
    const int from = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (from < 0) return system_error("cannot open the algorithm " + path);
    struct stat facts {};
    const int copy = ::memfd_create(fs::path(path).filename().c_str(), MFD_CLOEXEC);
    bool is_done = copy >= 0 && ::fstat(from, &facts) == 0 && S_ISREG(facts.st_mode);
    for (off_t left = facts.st_size; is_done && left > 0;) {
        const ssize_t sent = ::sendfile(copy, from, nullptr, static_cast<std::size_t>(left));
        is_done = sent > 0;
        left -= sent;
    }
    ::close(from);
    if (is_done) return copy;
    if (copy >= 0) ::close(copy);
    return Error{ENOEXEC, "cannot read the algorithm " + path + ": expected a file"};
}

Error check_layout(const std::string& path, const rdmalab_pcc_layout_t* layout) {
    if (layout == nullptr || layout->magic != RDMALAB_PCC_LAYOUT_MAGIC) {
        return {ENOEXEC, path +
                             " is no congestion control algorithm: expected a shared object "
                             "compiled with rdmalab's doca_pcc_dev.h, found none of its marks"};
    }
    if (layout->layout_version != RDMALAB_PCC_LAYOUT_VERSION ||
        layout->event_size != sizeof(doca_pcc_dev_event_t) ||
        layout->context_size != sizeof(doca_pcc_dev_algo_ctxt_t) ||
        layout->results_size != sizeof(doca_pcc_dev_results_t)) {
        return {EPROTO, path + " was built for another layout: expected version " +
                            std::to_string(RDMALAB_PCC_LAYOUT_VERSION) + " (events of " +
                            std::to_string(sizeof(doca_pcc_dev_event_t)) +
                            " bytes), found version " + std::to_string(layout->layout_version) +
                            " (" + std::to_string(layout->event_size) +
                            " bytes); compile it again"};
    }
    return {};
}

template <class Function>
void find_function(void* handle, const char* name, Function& out) {
    out = reinterpret_cast<Function>(::dlsym(handle, name));
}

}  // namespace

struct Algorithm::Impl {
    std::string path;
    AlgorithmEntry entry;
    void* handle = nullptr;
    int copy = -1;
    ~Impl() {
        if (handle != nullptr) ::dlclose(handle);
        // The linker knows the module by the name of this descriptor: it stays until the end.
        if (copy >= 0) ::close(copy);
    }
};

Algorithm::~Algorithm() = default;
const AlgorithmEntry& Algorithm::entry() const { return impl_->entry; }
const std::string& Algorithm::path() const { return impl_->path; }

Result<std::unique_ptr<Algorithm>> Algorithm::load(const std::string& file) {
    const std::string path = is_path(file) ? file : find_by_name(file);
    if (path.empty()) {
        std::string text = "no algorithm \"" + file + "\": expected a path, or one of";
        for (const std::string& known : installed()) text += " " + known;
        return Error{ENOENT, text};
    }
    auto copy = private_copy(path);
    if (!copy.ok()) return copy.error();
    std::unique_ptr<Algorithm> algorithm(new Algorithm());
    algorithm->impl_ = std::make_unique<Impl>();
    Impl& impl = *algorithm->impl_;
    impl.path = path;
    impl.copy = *copy;
    // Lazily at first, so that a module of another layout is told so and not what it misses.
    const std::string name = "/proc/self/fd/" + std::to_string(*copy);
    impl.handle = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (impl.handle == nullptr)
        return Error{ENOEXEC, "cannot load the algorithm " + path + ": " + ::dlerror()};
    const auto* const layout =
        static_cast<const rdmalab_pcc_layout_t*>(::dlsym(impl.handle, "rdmalab_pcc_layout"));
    if (const Error error = check_layout(path, layout); error.code != 0) return error;
    ::dlclose(impl.handle);
    impl.handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (impl.handle == nullptr)
        return Error{ENOEXEC, "cannot load the algorithm " + path + ": " + ::dlerror()};
    find_function(impl.handle, "doca_pcc_dev_user_init", impl.entry.init);
    find_function(impl.handle, "doca_pcc_dev_user_algo", impl.entry.handle);
    find_function(impl.handle, "doca_pcc_dev_user_set_algo_params", impl.entry.set_parameters);
    find_function(impl.handle, "doca_pcc_dev_user_mailbox_handle", impl.entry.mailbox);
    find_function(impl.handle, "doca_pcc_dev_user_port_info_changed", impl.entry.port_changed);
    if (impl.entry.init == nullptr || impl.entry.handle == nullptr ||
        impl.entry.set_parameters == nullptr) {
        return Error{ENOEXEC, "the algorithm " + path +
                                  ": expected doca_pcc_dev_user_init, doca_pcc_dev_user_algo and "
                                  "doca_pcc_dev_user_set_algo_params, found not all of them"};
    }
    return algorithm;
}

std::vector<std::string> Algorithm::installed() {
    std::vector<std::string> names;
    std::error_code error;
    for (const fs::path& folder : folders()) {
        for (const auto& entry : fs::directory_iterator(folder, error)) {
            if (entry.path().extension() == ".so") names.push_back(entry.path().stem());
        }
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
}

}  // namespace rdmalab::pcc::host

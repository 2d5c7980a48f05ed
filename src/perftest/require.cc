#include "perftest/require.h"

#include <dlfcn.h>
#include <errno.h>
#include <fmt/format.h>
#include <string.h>

#include <fstream>

#include "perftest/buffers.h"
#include "perftest/failure.h"
#include "perftest/quantity.h"

namespace rdmalab::perftest {

namespace {

bool asks_for(const Request& request, const char* name, const char* word) {
    auto found = request.find(name);
    return found != request.end() && found->second == word;
}

// Whether one of the libraries is installed; why not, if not.
std::string missing(std::initializer_list<const char*> libraries) {
    std::string why;
    for (const char* library : libraries) {
        if (dlopen(library, RTLD_NOW | RTLD_LOCAL) != nullptr) return "";
        why = dlerror();
    }
    return why;
}

void check_hints_file(const std::string& text) {
    std::size_t comma = text.find(',');
    std::string path = text.substr(0, comma);
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) {
        throw Failure(fmt::format("--cc_group_hints: cannot read {}: {}", path, strerror(errno)));
    }
    std::string rest = text.substr(comma + 1);
    auto wanted = std::stoull(rest.substr(0, rest.find(',')));
    auto found = static_cast<unsigned long long>(file.tellg());
    if (found < wanted) {
        throw Failure(fmt::format("--cc_group_hints: expected {} bytes in {}, found {}", wanted,
                                  path, found));
    }
}

}  // namespace

void require_parts(const Request& request, const Planned& planned) {
    if (request.contains("cc_group_hints")) check_hints_file(request.at("cc_group_hints"));
    if (asks_for(request, "rdma_driver", "dv")) {
        std::string why =
            missing({"libdoca_verbs.so.2", "libdoca_verbs.so", "libdoca_rdma_verbs.so"});
        throw Failure(
            fmt::format("--rdma_driver dv needs the DOCA verbs library: {}",
                        why.empty() ? "it is installed, but this build has no use of it" : why));
    }
    require_memory(planned.side);
}

}  // namespace rdmalab::perftest

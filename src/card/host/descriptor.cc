#include "card/host/descriptor.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace rdmalab::card::host {

Error system_error(std::string_view what) { return system_error(what, errno); }

Error system_error(std::string_view what, int code) {
    return {code, fmt::format("{}: {}", what, std::generic_category().message(code))};
}

Result<Pipe> make_pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make a pipe");
    Pipe pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
    if (::fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0) return system_error("cannot set up a pipe");
    return pipe;
}

}  // namespace rdmalab::card::host

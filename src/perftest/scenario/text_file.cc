#include "perftest/scenario/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include "perftest/fd.h"

namespace rdmalab::perftest {

Result<std::string> read_text_file(const std::string& path, std::size_t bytes_max) {
    auto failed = [&] {
        return Error{errno, fmt::format("cannot read {}: {}", path, strerror(errno))};
    };
    Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.is_open()) return failed();
    std::string out;
    char chunk[65536];
    for (;;) {
        ssize_t count = read(fd.value(), chunk, sizeof chunk);
        if (count < 0) return failed();
        if (count == 0) return out;
        out.append(chunk, static_cast<std::size_t>(count));
        if (out.size() > bytes_max) {
            return Error{EFBIG, fmt::format("{} has more than {} bytes", path, bytes_max)};
        }
    }
}

}  // namespace rdmalab::perftest

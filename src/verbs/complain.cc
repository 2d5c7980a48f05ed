#include "verbs/complain.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

namespace rdmalab::verbs {

void complain_once(const char* format, ...) {
    static std::atomic<bool> said{false};
    if (said.exchange(true)) return;
    char line[768];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(stderr, "rdmalab: %s\n", line);
}

void explain(abi::Op op, int status, const char* text) {
    static const bool verbose = getenv("RDMALAB_VERBOSE") != nullptr;
    if (!verbose) return;
    fprintf(stderr, "rdmalab: the card answered request %u with %s%s%s\n",
            static_cast<unsigned>(op), strerrorname_np(status), *text != '\0' ? ": " : "", text);
}

}  // namespace rdmalab::verbs

#include "steer/program.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "steer/control_socket.h"

namespace rdmalab::steer {

ProgramFailure::ProgramFailure(const Error& error)
    : ProgramFailure(error.code == EINVAL ? kExitBadInput : kExitFailed,
                     error.text.empty() ? std::strerror(error.code) : error.text) {}

void check(const Status& status) {
    if (!status.ok()) throw ProgramFailure(status.error());
}

int tell_program(const TellOptions& request) {
    const std::string answer = take(tell(*request.pid, request.words));
    if (!answer.empty()) fmt::print("{}\n", answer);
    return 0;
}

void select_card(const CommonOptions& options) {
    if (!options.card.empty()) {
        setenv("RDMALAB_CARD", options.card.c_str(), 1);
        unsetenv("RDMALAB_SOCKET");
    }
    if (!options.socket.empty()) setenv("RDMALAB_SOCKET", options.socket.c_str(), 1);
}

void open_console(const CommonOptions& options, ProcessConsole& console) {
    console.set_level(options.log_level);
    check(console.open_records(options.json_file));
}

std::unique_ptr<flow::client::Domain> attach(const CommonOptions& options) {
    flow::client::DomainOptions domain;
    domain.pf = options.pci;
    domain.queue_depth = 2 * kBucketMax;  // the classifier's entries go in as one batch
    return take(flow::client::Domain::attach(domain));
}

}  // namespace rdmalab::steer

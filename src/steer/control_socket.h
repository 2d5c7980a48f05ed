// Talking to a running program: `flow_steer --tell PID path1-percent 0.1`.
//
// Each program listens on a Unix socket in the abstract namespace, named by its process id, so
// nothing stays behind in any folder, however it ends. One packet is a command (words separated by
// zero bytes), one packet the answer: "ok", or "error", a zero byte, and the text. Only the same
// user and root are answered.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace rdmalab::steer {

// The text of the answer, or why not.
using CommandHandler = std::function<Result<std::string>(const std::vector<std::string>& words)>;

class ControlSocket {
public:
    static Result<std::unique_ptr<ControlSocket>> open();
    ~ControlSocket();
    ControlSocket(const ControlSocket&) = delete;
    ControlSocket& operator=(const ControlSocket&) = delete;

    int descriptor() const { return descriptor_; }  // readable: serve() has something to do
    // Answers those who wait.
    void serve(const CommandHandler& handler);

private:
    explicit ControlSocket(int descriptor) : descriptor_(descriptor) {}
    int descriptor_;
};

// The client's side. ESRCH: no such program, or it does not listen; EPERM; EINVAL with the
// program's own text.
Result<std::string> tell(int pid, const std::vector<std::string>& words);

}  // namespace rdmalab::steer

// An algorithm in a file: C sources against pcc/device/include, built with -shared -fPIC. Each load
// is an instance of its own: two loads of one file share no static variables, and the file may be
// replaced meanwhile.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "pcc/runtime.h"

namespace rdmalab::pcc::host {

// Names of the algorithms that come with rdmalab. Algorithm::load takes them as well as paths.
inline constexpr char kAlgorithmDcqcn[] = "dcqcn";
inline constexpr char kAlgorithmPureEcn[] = "pure_ecn";     // that of path steering
inline constexpr char kAlgorithmRtt[] = "rtt";              // relative to the smallest RTT seen
inline constexpr char kAlgorithmRttAbsolute[] = "rtt_2_9";  // the older generation

class Algorithm {
public:
    // `file`: a path (it holds a '/' or ends in .so), or a name of the above, looked for in
    // $RDMALAB_PCC_PATH, ../lib/pcc and ../lib/rdmalab/pcc beside the program. Errors: ENOENT no
    // such file; ENOEXEC not a module, or an algorithm function is missing; EPROTO built for
    // another layout version or another target (the text names both).
    static Result<std::unique_ptr<Algorithm>> load(const std::string& file);
    // Names and paths of what can be loaded by name.
    static std::vector<std::string> installed();

    ~Algorithm();
    Algorithm(const Algorithm&) = delete;
    Algorithm& operator=(const Algorithm&) = delete;

    const AlgorithmEntry& entry() const;
    const std::string& path() const;

private:
    Algorithm() = default;
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace rdmalab::pcc::host

// What `--tell` can say to a running program.
#pragma once

#include <string>
#include <vector>

#include "steer/console.h"
#include "steer/switch_program.h"

namespace rdmalab::steer {

// Handles one command about steering:
//   pathK-percent P [pathK-percent P ...]   new marking, one after the other
//   share N [N ...]                         fixed shares, path 0 first; the last path's is optional
//   share auto                              shares follow the reports again
//   log-level N
//   status                                  the last record, JSON
// `program` may be null (pcc without steering). ENOSYS: no such command.
Result<std::string> handle_command(const std::vector<std::string>& words, SwitchProgram* program,
                                   ProcessConsole& console);
inline constexpr char kCommandHelp[] =
    "pathK-percent P [pathK-percent P ...]  mark this much of all traffic on path K, in percent\n"
    "share N [N ...]                        fix the shares, in buckets, path 0 first\n"
    "share auto                             let the shares follow the reports again\n"
    "log-level N                            10 nothing ... 50 information, 60 debug\n"
    "status                                 the last interval as JSON\n"
    "stop                                   end in order\n"
    "help                                   this list";

}  // namespace rdmalab::steer

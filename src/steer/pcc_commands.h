// What `pcc --tell` can say beyond steering: parameters and counters of the algorithm.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pcc/host/process.h"

namespace rdmalab::steer {

inline constexpr char kPccCommandHelp[] =
    "params                                 parameters and counters of the algorithm\n"
    "param ID VALUE                         set a parameter\n"
    "dump                                   state of flows, parameters, counters\n"
    "statistics                             events, answers and losses, JSON";

// Nothing when the command is none of these.
std::optional<Result<std::string>> handle_pcc_command(const std::vector<std::string>& words,
                                                      pcc::host::Process& process);
// "ID=VALUE", as --param has it.
Status set_parameter(pcc::host::Process& process, const std::string& setting);

}  // namespace rdmalab::steer

// Going into a lab from outside.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rdmalab/lab_plan.h"

namespace rdmalab::launcher {

// Runs a program in a host and returns its exit status (as of `rdmalab run`). The environment is
// the caller's, without what it says about cards and with the folder of this program in PATH; so is
// the working directory, where the host has it. When the caller dies, the program is killed.
int run_in_host(const LabHost& host, const std::vector<std::string>& command);

// What `work` returns, called in the network namespace of the switches by a process of its own.
std::string ask_in_switch(const Lab& lab, const std::function<std::string()>& work);

// PATH with the folder of this program at its end, unless it is there.
std::string path_with_own_folder(const char* inherited);

}  // namespace rdmalab::launcher

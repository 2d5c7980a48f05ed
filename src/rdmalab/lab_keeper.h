// The keeper of a lab: the process in whose network namespace the switches are, and whose children
// the hosts are. When it ends, however it ends, the kernel ends the hosts, and with their last
// process the namespaces, wires and mounts: nothing has a name that could be left behind.
#pragma once

#include "rdmalab/fd.h"
#include "rdmalab/lab_plan.h"

namespace rdmalab::launcher {

// Makes the lab and keeps it until SIGTERM. `lock` is that of the lab's folder; "ready" or what is
// wrong is written to `report`. For a process of its own; does not return.
[[noreturn]] void keep_lab(Lab lab, Fd lock, Fd report);

}  // namespace rdmalab::launcher

// A host of a lab, from the inside: its pid 1.
//
// It has network, host name, mounts, processes and System V objects of its own; /tmp, /run and
// /dev/shm are its own and empty, the rest of the file system is the machine's. It starts sshd and
// a card, shows the card's devices in /sys/class/infiniband and /dev/infiniband, and then does what
// a pid 1 does: it waits for the dead. When it is killed, the kernel ends all processes of the
// host, as a power cut does.
#pragma once

#include <filesystem>
#include <string>

#include "rdmalab/fd.h"
#include "rdmalab/lab_plan.h"

namespace rdmalab::launcher {

struct HostSetting {
    Lab lab;
    LabHost host;
    Fd go;      // a byte comes when the network is there
    Fd report;  // "ready", or what is wrong
};

// Of a process that was just made in new namespaces. Does not return.
[[noreturn]] void be_host(HostSetting setting);

}  // namespace rdmalab::launcher

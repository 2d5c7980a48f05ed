// The devices of a card as files, for one program and its children: /sys/class/infiniband,
// /sys/class/infiniband_verbs and the character devices in /dev/infiniband.
//
// The process gets a mount namespace of its own (and, without privileges, a user namespace in which
// its uid and gid stay what they are, so that the card may still reach its memory). There,
// /sys/class becomes a memory file system into which every class of the kernel is bound, and ours
// are added; /sys/class/net and the others work as before. /dev is treated the same way where
// /dev/infiniband does not exist. The character devices are /dev/null, bound under their names:
// programs only look at what kind of file they are.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "rdmalab/card_client.h"
#include "rdmalab/sysfs_tree.h"

namespace rdmalab::launcher {

struct DeviceView {
    std::vector<DeviceFacts> devices;  // in /sys/class: those that this process may use
    // In /dev/infiniband: uverbs0 and so on for all devices of the card. A child that goes to
    // another network namespace uses others, and still looks here (ip-netns(8) gives it a fresh
    // /sys, but the same /dev).
    std::uint32_t character_devices = 0;
};

// Asks a card for what the view shows.
DeviceView device_view_of(CardClient& client);

// Changes the calling process, for good. An error leaves it usable, but perhaps with half a view.
Status enter_device_view(const DeviceView& view);

}  // namespace rdmalab::launcher

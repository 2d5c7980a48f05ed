// Programs ask this library to read files of sysfs, mostly below the folder of a device. The files
// of our devices need not exist: what is known about them is answered from memory.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "verbs/device.h"

namespace rdmalab::verbs {

namespace {

// The device whose folder in /sys/class/infiniband this is, or null.
const Device* device_of(const char* folder) {
    constexpr char kClass[] = "/sys/class/infiniband/";
    constexpr std::size_t kLength = sizeof kClass - 1;
    if (strncmp(folder, kClass, kLength) != 0) return nullptr;
    return find_device(folder + kLength);
}

void print_guid(std::uint64_t guid, char* out, std::size_t size) {
    snprintf(out, size, "%04x:%04x:%04x:%04x", unsigned(guid >> 48) & 0xffff,
             unsigned(guid >> 32) & 0xffff, unsigned(guid >> 16) & 0xffff, unsigned(guid) & 0xffff);
}

// False: not a file that is known without a kernel device.
bool answer(const Device& device, const char* file, char* out, std::size_t size) {
    static constexpr struct {
        const char* file;
        const char* text;
    } kFixed[] = {
        {"fw_ver", RDMALAB_VERSION},   {"board_id", "rdmalab"},
        {"hca_type", "rdmalab"},       {"hw_rev", "1"},
        {"node_type", "1: CA"},        {"ports/1/link_layer", "Ethernet"},
        {"ports/1/pkeys/0", "0xffff"}, {"ports/1/lid", "0x0"},
        {"ports/1/sm_lid", "0x0"},
    };
    for (const auto& known : kFixed) {
        if (strcmp(file, known.file) == 0) {
            snprintf(out, size, "%s", known.text);
            return true;
        }
    }
    if (strcmp(file, "node_guid") != 0 && strcmp(file, "sys_image_guid") != 0) return false;
    print_guid(device.info.node_guid, out, size);
    return true;
}

// The length of what was read, without the final newline, or -1.
int read_file(int folder_fd, const char* path, char* out, std::size_t size) {
    int fd = openat(folder_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t length = read(fd, out, size);
    close(fd);
    if (length < 0) return -1;
    if (length > 0 && out[length - 1] == '\n') --length;
    if (static_cast<std::size_t>(length) < size) out[length] = '\0';
    return static_cast<int>(length);
}

}  // namespace

}  // namespace rdmalab::verbs

using namespace rdmalab;
using namespace rdmalab::verbs;

RDMALAB_EXPORT const char* ibv_get_sysfs_path() {
    const char* path = getenv("SYSFS_PATH");
    return path != nullptr && *path != '\0' ? path : "/sys";
}

RDMALAB_EXPORT int ibv_read_sysfs_file(const char* folder, const char* file, char* out,
                                       size_t size) {
    const Device* device = device_of(folder);
    if (device != nullptr && size > 0 && answer(*device, file, out, size)) {
        return static_cast<int>(strlen(out));
    }
    char path[1024];
    int length = snprintf(path, sizeof path, "%s/%s", folder, file);
    if (length < 0 || static_cast<std::size_t>(length) >= sizeof path) return -1;
    return read_file(AT_FDCWD, path, out, size);
}

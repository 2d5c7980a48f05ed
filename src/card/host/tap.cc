#include "card/host/tap.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

namespace rdmalab::card::host {
namespace {

constexpr char kDevice[] = "/dev/net/tun";

Error cannot_open() {
    const Error error = system_error(fmt::format("cannot open {}", kDevice));
    if (error.code != ENOENT && error.code != ENODEV && error.code != ENXIO) return error;
    return {error.code, error.text +
                            "; network interfaces need the kernel's tun module (modprobe tun; a "
                            "container must be given the device)"};
}

}  // namespace

Result<Tap> Tap::create(const std::string& name) {
    UniqueFd fd(::open(kDevice, O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (!fd) return cannot_open();
    ifreq request{};
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    name.copy(request.ifr_name, IFNAMSIZ - 1);
    if (::ioctl(fd.value(), TUNSETIFF, &request) != 0) {
        return system_error(fmt::format("cannot make the network interface {}", name));
    }
    return Tap(std::move(fd));
}

std::size_t Tap::read(ByteSpan out) {
    const ssize_t length = ::read(fd_.value(), out.data(), out.size());
    if (length > 0) return static_cast<std::size_t>(length);
    is_gone_ = length < 0 && errno == EBADFD;
    return 0;
}

bool Tap::write(const wire::Frame& frame, transport::MemoryPort& memory) {
    std::array<iovec, 1 + wire::Frame::kSegmentMax> pieces;
    std::vector<std::vector<std::byte>> copies;
    std::size_t count = 0;
    pieces[count++] = {const_cast<std::byte*>(frame.header.data()), frame.header_length};
    for (unsigned i = 0; i < frame.segment_count; ++i) {
        const wire::PayloadSegment& segment = frame.segments[i];
        auto* start = reinterpret_cast<std::byte*>(segment.address);
        if (segment.space != kCardSpace) {
            std::vector<std::byte>& copy = copies.emplace_back(segment.length);
            if (!memory.read(segment.space, segment.address, copy)) return false;
            start = copy.data();
        }
        pieces[count++] = {start, segment.length};
    }
    return ::writev(fd_.value(), pieces.data(), static_cast<int>(count)) >= 0;
}

}  // namespace rdmalab::card::host

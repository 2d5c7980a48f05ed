#include "card/host/capture.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "card/host/clock.h"
#include "wire/icrc.h"
#include "wire/pcap.h"

namespace rdmalab::card::host {
namespace {

constexpr std::size_t kPipeAtom = 4096;       // what a pipe that polls writable takes at once
constexpr std::size_t kFrameTailMax = 3 + 4;  // pad and ICRC

std::string path_of(int fd) {
    char path[4096];
    const std::string link = fmt::format("/proc/self/fd/{}", fd);
    const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
    return length < 0 ? "?" : std::string(path, static_cast<std::size_t>(length));
}

bool takes_bytes(int fd) {
    pollfd one{fd, POLLOUT, 0};
    return ::poll(&one, 1, 0) > 0;
}

// An enhanced packet block holds the captured length at byte 20 and the original one at byte 24.
void set_original_length(std::vector<std::byte>& blocks, std::size_t block, std::size_t length) {
    constexpr std::size_t kOriginalLengthAt = 24;
    store_bytes(blocks.data() + block + kOriginalLengthAt, static_cast<std::uint32_t>(length));
}

}  // namespace

Captures::~Captures() {
    for (auto& [id, capture] : captures_) {
        if (!capture.out) continue;
        write_out(capture);
        close(capture);
    }
}

Result<std::uint32_t> Captures::start(std::uint64_t connection, TapPoint point,
                                      const std::string& at, std::uint32_t snap_length,
                                      UniqueFd out) {
    struct stat facts {};
    if (::fstat(out.value(), &facts) != 0) return system_error("cannot use the descriptor");
    const std::uint32_t id = next_id_++;
    Capture& capture = captures_[id];
    capture.facts = {id, at, path_of(out.value()), 0, 0, {}};
    capture.connection = connection;
    capture.point = point;
    capture.snap_length = snap_length;
    capture.is_file = S_ISREG(facts.st_mode);
    capture.out = std::move(out);
    capture.buffer = wire::pcapng_header(at, snap_length);
    write_out(capture);
    if (!capture.out) {
        const Error error = capture.facts.error;
        captures_.erase(id);
        return error;
    }
    set_tap_(point, true);
    return id;
}

Result<Captures::Facts> Captures::stop(std::uint64_t connection, std::uint32_t id) {
    const auto found = captures_.find(id);
    if (found == captures_.end() || found->second.connection != connection) {
        return Error{ENOENT, fmt::format("expected the id of a capture that this connection "
                                         "started, found {}",
                                         id)};
    }
    if (found->second.out) write_out(found->second);
    close(found->second);
    const Facts facts = found->second.facts;
    captures_.erase(found);
    return facts;
}

void Captures::stop_all(std::uint64_t connection) {
    std::vector<std::uint32_t> ids;
    for (const auto& [id, capture] : captures_) {
        if (capture.connection == connection) ids.push_back(id);
    }
    for (const std::uint32_t id : ids) (void)stop(connection, id);
}

void Captures::record(TapPoint point, const wire::Frame& frame, bool inbound) {
    ByteView bytes;
    for (auto& [id, capture] : captures_) {
        if (capture.point != point || !capture.out) continue;
        if (bytes.empty()) bytes = whole_frame(frame);
        append(capture, bytes, inbound);
    }
}

// Headers, payload, pad and ICRC in one piece. Payload that is no longer there is shown as zeros;
// the ICRC is then made over these.
ByteView Captures::whole_frame(const wire::Frame& frame) {
    payload_.assign(frame.payload_length, std::byte{0});
    std::size_t filled = 0;
    for (std::size_t i = 0; i < frame.segment_count; ++i) {
        const wire::PayloadSegment& segment = frame.segments[i];
        memory_.read(segment.space, segment.address,
                     ByteSpan(payload_).subspan(filled, segment.length));
        filled += segment.length;
    }
    frame_.resize(frame.header_length + payload_.size() + kFrameTailMax);
    return {frame_.data(), wire::write_frame(frame, payload_, frame_)};
}

void Captures::append(Capture& capture, ByteView frame, bool inbound) {
    if (capture.buffer.size() - capture.written >= kBufferMax) write_out(capture);
    if (!capture.out || capture.buffer.size() - capture.written >= kBufferMax) {
        ++capture.facts.dropped;
        return;
    }
    const std::size_t block = capture.buffer.size();
    const std::size_t shown = std::min<std::size_t>(frame.size(), capture.snap_length);
    wire::append_pcapng_packet(capture.buffer, epoch_ns_now(), frame.first(shown), inbound);
    set_original_length(capture.buffer, block, frame.size());
    ++capture.facts.frames;
    if (capture.buffer.size() - capture.written >= kFlushAt) write_out(capture);
}

void Captures::flush() {
    for (auto& [id, capture] : captures_) {
        if (capture.out && capture.written < capture.buffer.size()) write_out(capture);
    }
}

void Captures::write_out(Capture& capture) {
    while (capture.out && capture.written < capture.buffer.size()) {
        const std::size_t written = write_some(capture);
        if (written == 0) break;
        capture.written += written;
    }
    if (!capture.out) return;
    if (capture.written == capture.buffer.size()) {
        capture.buffer.clear();
        capture.written = 0;
        poller_.remove(capture.watch);
        capture.watch = Poller::kNone;
    } else if (capture.watch == Poller::kNone) {
        const std::uint32_t id = capture.facts.id;
        capture.watch = poller_.add(capture.out.value(), EPOLLOUT, [this, id](std::uint32_t) {
            const auto found = captures_.find(id);
            if (found != captures_.end() && found->second.out) write_out(found->second);
        });
    }
    if (capture.written >= kBufferMax) {  // what is left moves to the front now and then
        capture.buffer.erase(capture.buffer.begin(),
                             capture.buffer.begin() + static_cast<std::ptrdiff_t>(capture.written));
        capture.written = 0;
    }
}

// Bytes taken; 0 when the reader is not ready or the capture has failed. The descriptor may be
// shared with its owner, so it is not made non-blocking; instead only as much is written as a
// writable pipe is sure to take.
std::size_t Captures::write_some(Capture& capture) {
    const int fd = capture.out.value();
    std::size_t length = capture.buffer.size() - capture.written;
    if (!capture.is_file) {
        if (!takes_bytes(fd)) return 0;
        length = std::min(length, kPipeAtom);
    }
    const ssize_t written = ::write(fd, capture.buffer.data() + capture.written, length);
    if (written > 0) return static_cast<std::size_t>(written);
    if (written < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    fail(capture, written == 0 ? EIO : errno);
    return 0;
}

void Captures::fail(Capture& capture, int code) {
    capture.facts.error =
        system_error(fmt::format("cannot write the capture {}", capture.facts.file), code);
    spdlog::warn("capture {} at {} has ended: {}", capture.facts.id, capture.facts.at,
                 capture.facts.error.text);
    close(capture);
}

void Captures::close(Capture& capture) {
    poller_.remove(capture.watch);
    capture.watch = Poller::kNone;
    capture.out.reset();
    capture.buffer = {};
    capture.written = 0;
    update_tap(capture.point);
}

void Captures::update_tap(TapPoint point) {
    const bool wanted = std::any_of(captures_.begin(), captures_.end(), [&](const auto& entry) {
        return entry.second.out && entry.second.point == point;
    });
    if (!wanted) set_tap_(point, false);
}

std::vector<Captures::Facts> Captures::list() const {
    std::vector<Facts> all;
    for (const auto& [id, capture] : captures_) {
        if (capture.out) all.push_back(capture.facts);
    }
    return all;
}

}  // namespace rdmalab::card::host

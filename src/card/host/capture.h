// Captures: frames that pass a tap of the card are written as pcapng to a descriptor that the
// requesting client passed. The card is never blocked: a reader that is too slow loses frames (they
// are counted), and an error of writing ends the capture.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "card/card.h"
#include "card/host/descriptor.h"
#include "card/host/poller.h"
#include "transport/ports.h"

namespace rdmalab::card::host {

class Captures {
public:
    using SetTap = std::function<void(TapPoint, bool on)>;
    struct Facts {
        std::uint32_t id = 0;
        std::string at, file;
        std::uint64_t frames = 0, dropped = 0;
        Error error;  // why it ended; code 0 while it runs
    };

    Captures(Poller& poller, transport::MemoryPort& memory, SetTap set_tap)
        : poller_(poller), memory_(memory), set_tap_(std::move(set_tap)) {}
    ~Captures();
    Captures(const Captures&) = delete;
    Captures& operator=(const Captures&) = delete;

    // `connection` is who asked for it. Returns its id.
    Result<std::uint32_t> start(std::uint64_t connection, TapPoint point, const std::string& at,
                                std::uint32_t snap_length, UniqueFd out);
    // ENOENT when the connection has no such capture.
    Result<Facts> stop(std::uint64_t connection, std::uint32_t id);
    void stop_all(std::uint64_t connection);

    void record(TapPoint point, const wire::Frame& frame, bool inbound);
    // Writes out what has been buffered, as far as the readers take it.
    void flush();
    std::vector<Facts> list() const;

private:
    static constexpr std::size_t kBufferMax = 4 * 1024 * 1024;
    static constexpr std::size_t kFlushAt = 256 * 1024;
    struct Capture {
        Facts facts;
        std::uint64_t connection = 0;
        TapPoint point;
        std::uint32_t snap_length = 0;
        UniqueFd out;
        bool is_file = false;
        std::vector<std::byte> buffer;
        std::size_t written = 0;  // of `buffer`
        Poller::Token watch = Poller::kNone;
    };

    void append(Capture& capture, ByteView frame, bool inbound);
    ByteView whole_frame(const wire::Frame& frame);
    void write_out(Capture& capture);
    std::size_t write_some(Capture& capture);
    void fail(Capture& capture, int code);
    void close(Capture& capture);
    void update_tap(TapPoint point);

    Poller& poller_;
    transport::MemoryPort& memory_;
    SetTap set_tap_;
    std::uint32_t next_id_ = 1;
    std::map<std::uint32_t, Capture> captures_;
    std::vector<std::byte> payload_, frame_;
};

}  // namespace rdmalab::card::host

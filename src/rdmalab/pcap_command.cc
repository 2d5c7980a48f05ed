// `rdmalab pcap`: the card writes the capture itself, to a descriptor that it is handed. That is
// always a regular file, so that a slow reader never makes the card wait: for a pipe or a terminal
// it is a memory file from which this process copies, freeing what it has copied.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>

#include "rdmalab/card_client.h"
#include "rdmalab/commands.h"
#include "rdmalab/failure.h"
#include "rdmalab/pcapng_count.h"
#include "rdmalab/quantity.h"
#include "rdmalab/runtime_folder.h"
#include "rdmalab/signals.h"

namespace rdmalab::launcher {

namespace {

constexpr double kLookSeconds = 0.05;
constexpr int kLooksPerSecond = 20;
constexpr int kSnapLength = 262'144;

struct PcapOptions {
    std::string name, at, file, count, seconds;
};

class CaptureFile {
public:
    explicit CaptureFile(const std::string& name) {
        bool is_standard_output = name == "-";
        if (!is_standard_output) {
            target_ = Fd(open(name.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
        }
        if (!is_standard_output && !target_.is_open()) {
            throw Failure(kExitBadInput,
                          fmt::format("cannot write to '{}': {}", name, std::strerror(errno)));
        }
        struct stat facts {};
        bool is_regular =
            !is_standard_output && fstat(target_.value(), &facts) == 0 && S_ISREG(facts.st_mode);
        stream_ = is_standard_output ? STDOUT_FILENO : target_.value();
        if (is_regular) {
            stream_ = -1;
            written_ = std::move(target_);
        } else {
            written_ = Fd(memfd_create("rdmalab-capture", MFD_CLOEXEC));
        }
    }

    int descriptor() const { return written_.value(); }

    void look(std::uint64_t packets_max) {
        counter_.advance(written_.value(), packets_max);
        if (stream_ >= 0) copy_to_stream();
    }
    // Removes what the card wrote beyond the packets that were asked for.
    void finish(std::uint64_t packets_max) {
        look(packets_max);
        if (stream_ < 0 && counter_.packets() == packets_max) {
            if (ftruncate(written_.value(), static_cast<off_t>(counter_.end())) != 0) {
                throw Failure(kExitFailed,
                              fmt::format("cannot shorten the file: {}", std::strerror(errno)));
            }
        }
    }
    std::uint64_t packets() const { return counter_.packets(); }

private:
    void copy_to_stream() {
        char buffer[65'536];
        while (copied_ < counter_.end()) {
            std::size_t wanted = std::min<std::uint64_t>(sizeof buffer, counter_.end() - copied_);
            ssize_t got = pread(written_.value(), buffer, wanted, static_cast<off_t>(copied_));
            if (got <= 0) return;
            write_all(buffer, static_cast<std::size_t>(got));
            copied_ += static_cast<std::size_t>(got);
        }
        constexpr std::uint64_t kPage = 4'096;
        off_t whole_pages = static_cast<off_t>(copied_ / kPage * kPage);
        if (whole_pages > 0) {
            fallocate(written_.value(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, whole_pages);
        }
    }
    void write_all(const char* bytes, std::size_t length) const {
        while (length > 0) {
            ssize_t done = write(stream_, bytes, length);
            if (done < 0 && errno == EINTR) continue;
            if (done < 0) {
                throw Failure(kExitFailed,
                              fmt::format("cannot write the capture: {}", std::strerror(errno)));
            }
            bytes += done;
            length -= static_cast<std::size_t>(done);
        }
    }

    Fd target_, written_;
    int stream_ = -1;  // where a memory file is copied to
    PcapngCounter counter_;
    std::uint64_t copied_ = 0;
};

bool card_is_gone(const CardClient& client) {
    char byte = 0;
    return recv(client.socket(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

// The card drops a capture from its list when it can no longer write to it.
bool capture_lives(CardClient& client, std::uint64_t id) {
    Json status = client.admin({{"op", "status"}});
    for (const Json& capture : status.value("captures", Json::array())) {
        if (number(capture, "id") == id) return true;
    }
    return false;
}

void capture(const PcapOptions& options) {
    std::uint64_t packets_max = std::numeric_limits<std::uint64_t>::max();
    if (!options.count.empty()) packets_max = parse_count("--count", options.count, 1);
    double seconds = std::numeric_limits<double>::infinity();
    if (!options.seconds.empty()) seconds = parse_seconds("--seconds", options.seconds);

    CardClient client = CardClient::connect_or_fail(card_name_or_default(options.name));
    CaptureFile file(options.file);
    StopSignals signals;
    auto begin = std::chrono::steady_clock::now();
    Json started =
        client.admin({{"op", "pcap_start"}, {"at", options.at}, {"snap_length", kSnapLength}},
                     file.descriptor());
    std::uint64_t id = number(started, "id");
    fmt::print(stderr, "capturing at {} (Ctrl-C ends it)\n", options.at);
    for (int looks = 1;; ++looks) {
        bool stopped = signals.wait(kLookSeconds).has_value();
        file.look(packets_max);
        std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
        if (stopped || file.packets() >= packets_max || elapsed.count() >= seconds) break;
        if (card_is_gone(client)) throw Failure(kExitFailed, "the card went away");
        if (looks % kLooksPerSecond == 0 && !capture_lives(client, id)) break;
    }
    Json ended = client.admin({{"op", "pcap_stop"}, {"id", id}});
    file.finish(packets_max);
    fmt::print(stderr, "{} packets captured at {}", file.packets(), options.at);
    if (std::uint64_t missed = number(ended, "dropped"); missed > 0) {
        fmt::print(stderr, ", {} more did not fit the buffer", missed);
    }
    fmt::print(stderr, "\n");
    if (std::string error = ended.value("error", ""); !error.empty()) {
        throw Failure(kExitFailed, error);
    }
}

}  // namespace

void add_pcap_command(CLI::App& app, Session&) {
    CLI::App* command =
        app.add_subcommand("pcap", "Capture frames at a port or a representor to a pcapng file");
    auto options = std::make_shared<PcapOptions>();
    add_name_option(*command, options->name);
    command->add_option("--at", options->at, "A port (p0), a representor (pf0sf0) or a device")
        ->type_name("PLACE")
        ->required();
    command->add_option("--count", options->count, "End after this many packets")
        ->type_name("NUMBER");
    command->add_option("--seconds", options->seconds, "End after this time")->type_name("SECONDS");
    command->add_option("FILE", options->file, "The file to write; '-' is standard output")
        ->required();
    command->footer(
        "Examples:\n"
        "  rdmalab pcap --at p0 --seconds 5 frames.pcapng\n"
        "  rdmalab pcap --at pf0sf0 - | tshark -r - -d udp.port==4791,infiniband");
    command->callback([options] { capture(*options); });
}

}  // namespace rdmalab::launcher

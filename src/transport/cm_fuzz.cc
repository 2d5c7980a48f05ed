// Two managers do what the input says, while datagrams of the input's making arrive: copies of real
// ones with bytes changed, real ones that say something else (out of state), any bytes behind a
// valid header, and frames that are no datagrams of QP 1. Whatever happens, when both owners
// have left and time has passed nothing may be left.
#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "transport/cm_testing.h"

namespace rdmalab::transport {
namespace {

using testing::CmPair;

void require(bool holds) {
    if (!holds) std::abort();
}

class Input {
public:
    Input(const std::uint8_t* data, std::size_t size) : data_(data, size) {}
    bool empty() const { return at_ >= data_.size(); }
    std::uint8_t byte() { return empty() ? std::uint8_t{0} : data_[at_++]; }

private:
    std::span<const std::uint8_t> data_;
    std::size_t at_ = 0;
};

class Fuzz {
public:
    Fuzz() {
        pair_.listen();
        pair_.drop = [this](bool, const wire::CmMessage& message) {
            wire::MadBytes& mad = seen_[seen_count_++ % seen_.size()];
            wire::emit_cm(message, mad);
            return false;
        };
    }

    void step(Input& input) {
        switch (input.byte() % 15) {
            case 0:
                return connect(input);
            case 1:
                return accept(input);
            case 2:
                cm(input).establish(id(input), pair_.now());
                return;
            case 3:
                cm(input).disconnect(id(input), pair_.now());
                return;
            case 4:
                return reject(input);
            case 5:
                cm(input).release(id(input), pair_.now());
                return;
            case 6:
                return inject_changed(input);
            case 7:
                return inject_any(input);
            case 8:
                return inject_another(input);
            case 9:
                return inject_no_mad(input);
            case 10:
                cm(input).notify_established(id(input), pair_.now());
                return;
            case 11:
                cm(input).forget(id(input), pair_.now());
                return;
            default:
                return pass_time(milliseconds(input.byte() * 8));
        }
    }

    void end() {
        for (int round = 0; round < 3; ++round) {
            pass_time(seconds(1));
            for (const CmConnId each : ids_) {
                pair_.client().release(each, pair_.now());
                pair_.server().release(each, pair_.now());
            }
            pass_time(seconds(3'600));
        }
        require(pair_.client().counts() == Cm::Counts{0, 0, 0, 0});
        require(pair_.server().counts() == Cm::Counts{0, 0, 0, 2});
    }

private:
    Cm& cm(Input& input) { return input.byte() % 2 == 0 ? pair_.client() : pair_.server(); }
    CmConnId id(Input& input) {
        const std::uint8_t choice = input.byte();
        return ids_.empty() ? CmConnId{choice} : ids_[choice % ids_.size()];
    }

    void connect(Input& input) {
        const std::uint8_t choice = input.byte();
        const Qpn qpn{std::uint32_t{choice} % 4};
        const auto made = choice < 192
                              ? pair_.client().connect(pair_.connect_request(qpn), pair_.now())
                              : pair_.client().query_service(pair_.service_query(), pair_.now());
        ids_.push_back(made.value());
    }

    // Private data of any length: too long is refused.
    std::vector<std::uint8_t> private_data(Input& input) {
        return std::vector<std::uint8_t>(input.byte(), input.byte());
    }
    void accept(Input& input) {
        Cm& manager = cm(input);
        const CmConnId choice = id(input);
        const auto data = private_data(input);
        CmAccept answer;
        answer.qp.qpn = Qpn{input.byte()};
        answer.private_data = data;
        const int status = manager.accept(choice, answer, pair_.now());
        require(status == EINVAL || data.size() <= 196);
    }
    void reject(Input& input) {
        Cm& manager = cm(input);
        const CmConnId choice = id(input);
        const auto data = private_data(input);
        const int status = manager.reject(choice, {.private_data = data}, pair_.now());
        require(status == EINVAL || data.size() <= 148);
    }

    void pass_time(Duration time) {
        pair_.run_for(time);
        for (const CmEvent& event : pair_.server_events()) ids_.push_back(event.connection);
        for (const CmEvent& event : pair_.client_events()) ids_.push_back(event.connection);
        pair_.trace.clear();
    }

    void inject(Input& input, const wire::MadBytes& mad) {
        const bool to_server = input.byte() % 4 != 0;
        const Gid source = to_server ? testing::client_gid() : testing::server_gid();
        const Gid destination = to_server ? testing::server_gid() : testing::client_gid();
        Cm& receiver = to_server ? pair_.server() : pair_.client();
        receiver.handle_frame(testing::gsi_frame(source, destination, mad), pair_.now());
    }

    // The bytes up to the private data are where the decisions are.
    void inject_changed(Input& input) {
        wire::MadBytes mad = seen_[input.byte() % seen_.size()];
        for (std::size_t changes = input.byte() % 4; changes > 0; --changes)
            mad[input.byte() % 200] = std::byte{input.byte()};
        inject(input, mad);
    }

    // The ids of a real message, which have the same places in most, in a message of another kind,
    // as it was sent or the other way round.
    void inject_another(Input& input) {
        wire::MadBytes mad = seen_[input.byte() % seen_.size()];
        mad[17] = std::byte(0x10 + input.byte() % 12);
        std::byte* const ids = mad.data() + sizeof(wire::MadHeader);
        if (input.byte() % 2 != 0) std::swap_ranges(ids, ids + 4, ids + 4);
        inject(input, mad);
    }

    void inject_no_mad(Input& input) {
        const wire::MadBytes mad = seen_[input.byte() % seen_.size()];
        wire::Frame frame = testing::gsi_frame(testing::client_gid(), testing::server_gid(), mad);
        switch (input.byte() % 4) {
            case 0:
                frame.payload_length = input.byte();
                break;
            case 1:
                frame.segments[0].length = input.byte();
                break;
            case 2:
                wire::header_at<wire::Bth>(frame, frame.bth_offset)->opcode = input.byte();
                break;
            default:
                wire::header_at<wire::Deth>(frame, frame.bth_offset + sizeof(wire::Bth))->qkey =
                    input.byte();
        }
        pair_.server().handle_frame(frame, pair_.now());
    }

    void inject_any(Input& input) {
        wire::MadBytes mad;
        wire::emit_cm(wire::DrepMessage{}, mad);
        mad[17] = std::byte(0x10 + input.byte() % 12);
        for (std::size_t i = sizeof(wire::MadHeader); i < mad.size() && !input.empty(); ++i)
            mad[i] = std::byte{input.byte()};
        inject(input, mad);
        wire::CmMessage message;
        if (wire::parse_cm(mad, message) == wire::MadError::kNone)
            require(!wire::print_cm(message).empty());
    }

    CmPair pair_;
    std::vector<CmConnId> ids_;
    std::array<wire::MadBytes, 16> seen_{};
    std::size_t seen_count_ = 0;
};

}  // namespace
}  // namespace rdmalab::transport

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    rdmalab::transport::Fuzz fuzz;
    rdmalab::transport::Input input(data, size);
    while (!input.empty()) fuzz.step(input);
    fuzz.end();
    return 0;
}

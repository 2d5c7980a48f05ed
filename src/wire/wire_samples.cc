// Writes a capture with a frame of every opcode, over IPv4 and IPv6 and with each pad, to FILE, and
// says on stdout what a dissector must find in it (tshark_test.sh compares).
#include <cstdio>
#include <fstream>

#include "wire/pcap.h"
#include "wire/testing.h"

namespace rdmalab::wire {
namespace {

using testing::Bytes;

// tshark 4.0 knows the headers of these services, without atomic writes; behind a BTH of another
// one it shows raw bytes.
bool is_dissected(const OpcodeInfo& info) {
    if (info.kind == PacketKind::kAtomicWrite) return false;
    return info.service == Service::kRc || info.service == Service::kUc ||
           info.service == Service::kUd;
}

void print_expected(const Frame& frame, const OpcodeInfo& info, const Bytes& bytes, bool ipv6) {
    const Bth& bth = *header_at<Bth>(frame, frame.bth_offset);
    std::printf("%u\t%u\t0x%06x\t%u\t", unsigned{bth.opcode}, unsigned{bth.pad_count()},
                unsigned{bth.destination_qp}, unsigned{bth.psn});
    if (is_dissected(info)) {
        const ByteView covered(bytes.data() + frame.l3_offset,
                               bytes.size() - frame.l3_offset - kIcrcLength);
        // It shows the four bytes as they stand on the wire.
        const std::uint32_t icrc = testing::slow_icrc(covered, ipv6);
        std::printf("0x%02x%02x%02x%02x", icrc & 0xff, icrc >> 8 & 0xff, icrc >> 16 & 0xff,
                    icrc >> 24);
    }
    std::printf("\n");
}

std::size_t payload_length(const OpcodeInfo& info, std::size_t wanted) {
    if (info.kind == PacketKind::kCnp) return 16;
    return info.carries_payload ? wanted : 0;
}

Bytes samples() {
    Bytes capture = pcapng_header("samples", 65'535);
    Prng prng(1);
    std::int64_t time = 1'700'000'000'000'000'000;
    for (const OpcodeInfo* info : testing::all_opcodes()) {
        for (const std::size_t length : {256u, 253u, 254u, 255u}) {
            const bool ipv6 = length % 2 != 0;
            const Bytes payload(payload_length(*info, length), std::byte{0x5a});
            Frame frame;
            testing::make_frame(frame, ipv6, *info, payload, prng);
            const Bytes bytes = testing::written(frame, payload);
            append_pcapng_packet(capture, time += 1'001, bytes, ipv6);
            print_expected(frame, *info, bytes, ipv6);
        }
    }
    return capture;
}

}  // namespace
}  // namespace rdmalab::wire

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s FILE\n", argv[0]);
        return 2;
    }
    const auto capture = rdmalab::wire::samples();
    std::ofstream file(argv[1], std::ios::binary);
    file.write(reinterpret_cast<const char*>(capture.data()),
               static_cast<std::streamsize>(capture.size()));
    return file.flush() ? 0 : 1;
}

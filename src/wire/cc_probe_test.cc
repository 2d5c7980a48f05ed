#include "wire/cc_probe.h"

#include <gtest/gtest.h>

namespace rdmalab::wire {
namespace {

constexpr CcProbe kProbe{true, 0x03ab0001, 1'000'000'007, 2'000'000'011, 2'000'000'012};

TEST(CcProbe, what_is_emitted_is_parsed) {
    MadBytes bytes;
    emit_probe(kProbe, bytes);
    EXPECT_EQ(parse_probe(bytes), kProbe);
    CcProbe request = kProbe;
    request.is_response = false;
    emit_probe(request, bytes);
    EXPECT_EQ(parse_probe(bytes), request);
}

TEST(CcProbe, fields_stand_where_the_header_says) {
    MadBytes bytes;
    emit_probe(kProbe, bytes);
    EXPECT_EQ(bytes[1], std::byte{0x21});
    EXPECT_EQ(bytes[3], std::byte{0x81});
    EXPECT_EQ(bytes[16], std::byte{0xff});
    EXPECT_EQ(bytes[20], std::byte{0x03});
    EXPECT_EQ(load_bytes<Be64>(bytes.data() + 8), kProbe.request_sent_ns);
    EXPECT_EQ(load_bytes<Be64>(bytes.data() + 64), kProbe.request_sent_ns);
    EXPECT_EQ(load_bytes<Be64>(bytes.data() + 72), kProbe.request_received_ns);
    EXPECT_EQ(load_bytes<Be64>(bytes.data() + 80), kProbe.response_sent_ns);
}

TEST(CcProbe, other_management_datagrams_are_no_probes) {
    MadBytes bytes;
    for (const std::size_t offset : {0, 1, 2, 3, 5, 17}) {
        emit_probe(kProbe, bytes);
        bytes[offset] ^= std::byte{0x40};
        EXPECT_FALSE(parse_probe(bytes)) << "byte " << offset;
    }
}

TEST(CcProbe, a_frame_gives_back_its_datagram) {
    Path path;
    path.source = Gid{};
    MadBytes sent, received;
    emit_probe(kProbe, sent);
    Frame frame;
    start_mad_frame(make_lower_template(path), sent, frame);
    ASSERT_TRUE(gather_mad(frame, received));
    EXPECT_EQ(received, sent);
    frame.segments[0].space = SpaceId{7};
    EXPECT_FALSE(gather_mad(frame, received)) << "memory of a program";
}

}  // namespace
}  // namespace rdmalab::wire

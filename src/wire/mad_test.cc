#include "wire/mad.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/prng.h"
#include "wire/pcap.h"
#include "wire/testing.h"

namespace rdmalab::wire {
namespace {

MadBytes emit(const CmMessage& message) {
    MadBytes bytes;
    emit_cm(message, bytes);
    return bytes;
}

std::uint64_t field(const MadBytes& bytes, std::size_t offset, std::size_t width) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < width; ++i)
        value = value << 8 | std::to_integer<std::uint64_t>(bytes[offset + i]);
    return value;
}

ReqMessage sample_req() {
    ReqMessage req;
    req.transaction_id = 0x1122'3344'5566'7788;
    req.local_comm_id = 0xa1b2'c3d4;
    req.service_id = ip_service_id(0x0106, 7471);
    req.ca_guid = 0x0200'00ff'fe00'0001;
    req.qkey = 0x1111'2222;
    req.qpn = Qpn{0x12'3456};
    req.starting_psn = Psn(0x65'4321);
    req.responder_resources = 4;
    req.initiator_depth = 5;
    req.remote_response_timeout = 17;
    req.local_response_timeout = 18;
    req.max_cm_retries = 15;
    req.service = CmService::kUc;
    req.flow_control = true;
    req.srq = true;
    req.retry_count = 6;
    req.rnr_retry_count = 7;
    req.path_mtu = 5;
    req.primary.local_gid = *Gid::parse("10.0.0.2");
    req.primary.remote_gid = *Gid::parse("10.0.0.1");
    req.primary.flow_label = 0xa'bcde;
    req.primary.packet_rate = 3;
    req.primary.traffic_class = 0x20;
    req.primary.hop_limit = 64;
    req.primary.service_level = 9;
    req.primary.subnet_local = true;
    req.primary.ack_timeout = 14;
    req.ece = {0x00'02c9, 0xdead'beef};
    const IpCmHeader ip{4, 49'153, *Gid::parse("10.0.0.2"), *Gid::parse("10.0.0.1")};
    emit_ip_cm_header(ip, req.private_data);
    req.private_data[kIpCmHeaderLength] = 0x5a;
    return req;
}

RepMessage sample_rep() {
    RepMessage rep;
    rep.transaction_id = 0x1122'3344'5566'7788;
    rep.local_comm_id = 0x0102'0304;
    rep.remote_comm_id = 0xa1b2'c3d4;
    rep.qkey = 0x3333'4444;
    rep.qpn = Qpn{0xab'cdef};
    rep.eecn = 0x99'8877;
    rep.starting_psn = Psn(0x10'2030);
    rep.responder_resources = 6;
    rep.initiator_depth = 7;
    rep.target_ack_delay = 13;
    rep.failover_accepted = 1;
    rep.flow_control = true;
    rep.srq = true;
    rep.rnr_retry_count = 5;
    rep.ca_guid = 0x0200'00ff'fe00'0002;
    rep.ece = {0x12'3456, 0x0bad'cafe};
    rep.private_data[0] = 0x77;
    return rep;
}

TEST(Mad, the_common_header_says_communication_management) {
    const MadBytes bytes = emit(DrepMessage{});
    EXPECT_EQ(field(bytes, 0, 4), 0x0107'0203u) << "base version, class, class version, Send";
    EXPECT_EQ(field(bytes, 16, 2), 0x16u);
}

TEST(Mad, req_fields_stand_at_the_bits_of_table_106) {
    const MadBytes bytes = emit(sample_req());
    EXPECT_EQ(field(bytes, 8, 8), 0x1122'3344'5566'7788u);
    EXPECT_EQ(field(bytes, 16, 2), 0x10u);
    EXPECT_EQ(field(bytes, 20, 4), 0xdead'beefu);
    EXPECT_EQ(field(bytes, 24, 4), 0xa1b2'c3d4u);
    EXPECT_EQ(field(bytes, 28, 4), 0x0000'02c9u);
    EXPECT_EQ(field(bytes, 32, 8), 0x0000'0000'0106'1d2fu);
    EXPECT_EQ(field(bytes, 40, 8), 0x0200'00ff'fe00'0001u);
    EXPECT_EQ(field(bytes, 52, 4), 0x1111'2222u);
    EXPECT_EQ(field(bytes, 56, 4), 0x1234'5604u) << "QPN, responder resources";
    EXPECT_EQ(field(bytes, 60, 4), 5u) << "EECN, initiator depth";
    EXPECT_EQ(field(bytes, 67, 1), 17u << 3 | 1u << 1 | 1u);
    EXPECT_EQ(field(bytes, 68, 4), 0x6543'2100u | 18u << 3 | 6u);
    EXPECT_EQ(field(bytes, 72, 2), 0xffffu);
    EXPECT_EQ(field(bytes, 74, 1), 5u << 4 | 7u);
    EXPECT_EQ(field(bytes, 75, 1), 15u << 4 | 1u << 3);
    EXPECT_EQ(field(bytes, 90, 6), 0xffff'0a00'0002u) << "local GID";
    EXPECT_EQ(field(bytes, 106, 6), 0xffff'0a00'0001u) << "remote GID";
    EXPECT_EQ(field(bytes, 112, 4), 0xabcd'e003u) << "flow label, packet rate";
    EXPECT_EQ(field(bytes, 116, 4), 0x2040'9870u) << "class, hops, level and subnet, ACK timeout";
    EXPECT_EQ(field(bytes, 164, 4), 0x0040'c001u) << "IP CM header: IPv4, source port";
    EXPECT_EQ(field(bytes, 168, 8), 0u);
    EXPECT_EQ(field(bytes, 180, 4), 0x0a00'0002u);
    EXPECT_EQ(field(bytes, 196, 4), 0x0a00'0001u);
    EXPECT_EQ(field(bytes, 200, 1), 0x5au);
}

TEST(Mad, rep_fields_stand_at_the_bits_of_table_110) {
    const MadBytes bytes = emit(sample_rep());
    EXPECT_EQ(field(bytes, 16, 2), 0x13u);
    EXPECT_EQ(field(bytes, 20, 4), 0x0bad'cafeu);
    EXPECT_EQ(field(bytes, 24, 8), 0x0102'0304'a1b2'c3d4u);
    EXPECT_EQ(field(bytes, 32, 4), 0x3333'4444u);
    EXPECT_EQ(field(bytes, 36, 4), 0xabcd'ef12u) << "QPN, vendor id";
    EXPECT_EQ(field(bytes, 40, 4), 0x9988'7734u) << "EECN, vendor id";
    EXPECT_EQ(field(bytes, 44, 4), 0x1020'3056u) << "PSN, vendor id";
    EXPECT_EQ(field(bytes, 48, 2), 0x0607u);
    EXPECT_EQ(field(bytes, 50, 1), 13u << 3 | 1u << 1 | 1u);
    EXPECT_EQ(field(bytes, 51, 1), 5u << 5 | 1u << 4);
    EXPECT_EQ(field(bytes, 52, 8), 0x0200'00ff'fe00'0002u);
    EXPECT_EQ(field(bytes, 60, 1), 0x77u);
}

TEST(Mad, short_messages_stand_at_their_offsets) {
    MraMessage mra;
    mra.subject = CmSubject::kRep;
    mra.service_timeout = 24;
    mra.private_data[0] = 1;
    EXPECT_EQ(field(emit(mra), 32, 3), 0x40c001u);

    RejMessage rej;
    rej.subject = CmSubject::kRep;
    rej.reason = 28;
    rej.set_ca_guid(0x0102'0304'0506'0708);
    rej.private_data[0] = 9;
    EXPECT_EQ(field(emit(rej), 32, 4), 0x4010'001cu);
    EXPECT_EQ(field(emit(rej), 36, 8), 0x0102'0304'0506'0708u);
    EXPECT_EQ(field(emit(rej), 108, 1), 9u);
    EXPECT_EQ(rej.ca_guid(), 0x0102'0304'0506'0708u);

    DreqMessage dreq;
    dreq.remote_qpn = Qpn{0x11'2233};
    dreq.private_data[0] = 3;
    EXPECT_EQ(field(emit(dreq), 32, 5), 0x11'2233'0003u);

    SidrReqMessage request;
    request.request_id = 5;
    request.service_id = ip_service_id(0x0111, 1);
    request.private_data[0] = 8;
    EXPECT_EQ(field(emit(request), 24, 8), 0x0000'0005'ffff'0000u);
    EXPECT_EQ(field(emit(request), 32, 8), 0x0000'0000'0111'0001u);
    EXPECT_EQ(field(emit(request), 40, 1), 8u);

    SidrRepMessage reply;
    reply.request_id = 5;
    reply.status = 2;
    reply.qpn = Qpn{0x77'8899};
    reply.qkey = 0x0123'4567;
    reply.ece.vendor_id = 0xaa'bbcc;
    reply.private_data[0] = 6;
    EXPECT_EQ(field(emit(reply), 24, 8), 0x0000'0005'0200'aabbu);
    EXPECT_EQ(field(emit(reply), 32, 4), 0x7788'99ccu);
    EXPECT_EQ(field(emit(reply), 44, 4), 0x0123'4567u);
    EXPECT_EQ(field(emit(reply), 120, 1), 6u);
}

TEST(Mad, alternate_path_messages_have_their_layout) {
    LapMessage lap;
    lap.local_comm_id = 1;
    lap.remote_comm_id = 2;
    lap.remote_qpn = Qpn{0x11'2233};
    lap.remote_response_timeout = 17;
    lap.alternate.remote_gid = *Gid::parse("10.0.0.1");
    lap.alternate.flow_label = 0xa'bcde;
    lap.alternate.traffic_class = 0x20;
    lap.alternate.hop_limit = 64;
    lap.alternate.packet_rate = 16;
    lap.alternate.service_level = 9;
    lap.alternate.ack_timeout = 14;
    lap.private_data[0] = 7;
    EXPECT_EQ(field(emit(lap), 36, 4), 0x1122'3388u);
    EXPECT_EQ(field(emit(lap), 64 + 12, 4), 0x0a00'0001u);
    EXPECT_EQ(field(emit(lap), 80, 8), 0xabcd'e020'4010'9070u);
    EXPECT_EQ(field(emit(lap), 88, 1), 7u);

    AprMessage apr;
    apr.local_comm_id = 1;
    apr.remote_comm_id = 2;
    apr.status = 2;
    apr.info[0] = 5;
    apr.private_data[0] = 3;
    EXPECT_EQ(field(emit(apr), 24, 8), 0x0000'0001'0000'0002u);
    EXPECT_EQ(field(emit(apr), 32, 5), 0x0002'0000'05u);
    EXPECT_EQ(field(emit(apr), 108, 1), 3u);
}

// Random bytes behind a valid header, parsed, emitted and parsed again: the values agree.
TEST(Mad, what_is_parsed_is_emitted_with_the_same_values) {
    Prng prng(7);
    for (std::uint16_t attribute = 0x10; attribute <= 0x1a; ++attribute) {
        for (int round = 0; round < 100; ++round) {
            MadBytes bytes;
            for (auto& b : bytes) b = static_cast<std::byte>(prng.next());
            auto header = load_bytes<MadHeader>(emit(DrepMessage{}).data());
            header.attribute_id = attribute;
            header.transaction_id = prng.next();
            header.attribute_modifier = static_cast<std::uint32_t>(prng.next());
            store_bytes(bytes.data(), header);
            if (attribute == 0x12) bytes[33] &= std::byte{0x3f};
            if (attribute == 0x18) bytes[29] &= std::byte{0x3f};
            if (attribute == 0x1a) bytes[32] &= std::byte{0x3f};
            CmMessage first, second;
            ASSERT_EQ(parse_cm(bytes, first), MadError::kNone);
            EXPECT_EQ(first.index(), attribute - 0x10u);
            const MadBytes again = emit(first);
            ASSERT_EQ(parse_cm(again, second), MadError::kNone);
            EXPECT_EQ(first, second) << print_cm(first);
        }
    }
}

TEST(Mad, every_length_but_256_is_refused) {
    const MadBytes bytes = emit(sample_req());
    std::vector<std::byte> longer(bytes.begin(), bytes.end());
    longer.push_back({});
    CmMessage out;
    for (std::size_t length = 0; length < bytes.size(); ++length)
        EXPECT_EQ(parse_cm(ByteView(bytes).first(length), out), MadError::kBadLength);
    EXPECT_EQ(parse_cm(longer, out), MadError::kBadLength);
}

TEST(Mad, a_foreign_header_is_refused_with_its_reason) {
    const auto with = [](std::size_t offset, std::uint8_t value) {
        MadBytes bytes = emit(sample_req());
        bytes[offset] = std::byte{value};
        CmMessage out;
        return parse_cm(bytes, out);
    };
    EXPECT_EQ(with(0, 2), MadError::kBadVersion);
    EXPECT_EQ(with(1, 3), MadError::kBadClass);
    EXPECT_EQ(with(2, 1), MadError::kBadClassVersion);
    EXPECT_EQ(with(3, 1), MadError::kBadMethod);
    EXPECT_EQ(with(17, 0x1b), MadError::kBadAttribute);
    EXPECT_EQ(with(16, 0x01), MadError::kBadAttribute);
}

TEST(Mad, a_length_beyond_its_field_is_refused) {
    MadBytes rej = emit(RejMessage{});
    rej[33] = std::byte{73 << 1};
    CmMessage out;
    EXPECT_EQ(parse_cm(rej, out), MadError::kBadField);
    MadBytes reply = emit(SidrRepMessage{});
    reply[29] = std::byte{73};
    EXPECT_EQ(parse_cm(reply, out), MadError::kBadField);
    MadBytes apr = emit(AprMessage{});
    apr[32] = std::byte{73};
    EXPECT_EQ(parse_cm(apr, out), MadError::kBadField);
}

TEST(IpCmHeader, both_families_survive_the_private_data) {
    for (const char* text : {"10.0.0.1", "fd00::7", "fe80::1"}) {
        const Gid gid = *Gid::parse(text);
        const IpCmHeader header{static_cast<std::uint8_t>(gid.is_ipv4() ? 4 : 6), 7471, gid, gid};
        PrivateData<92> data{};
        emit_ip_cm_header(header, data);
        EXPECT_EQ(parse_ip_cm_header(data), header) << text;
    }
}

TEST(IpCmHeader, an_unknown_version_is_refused) {
    PrivateData<92> data{};
    EXPECT_EQ(parse_ip_cm_header(data), std::nullopt) << "IP version 0";
    data[1] = 0x40;
    EXPECT_NE(parse_ip_cm_header(data), std::nullopt);
    data[0] = 1;
    EXPECT_EQ(parse_ip_cm_header(data), std::nullopt);
    EXPECT_EQ(parse_ip_cm_header(std::span(data).first(35)), std::nullopt);
}

// --- What an independent decoder reads in our bytes.

std::vector<std::byte> frame_of(const CmMessage& message) {
    const OpcodeInfo& info =
        *find_opcode(opcode_value(Service::kUd, PacketKind::kSend, Position::kOnly));
    Frame frame;
    start_roce(frame, make_lower_template(testing::path_of(false)), info);
    header_at<Bth>(frame, frame.bth_offset)->destination_qp = kGsiQpn.value;
    auto* const deth = header_at<Deth>(frame, frame.bth_offset + sizeof(Bth));
    deth->qkey = kGsiQkey;
    deth->source_qp = kGsiQpn.value;
    const MadBytes mad = emit(message);
    frame.add_segment({kCardSpace, kMadLength, reinterpret_cast<std::uint64_t>(mad.data())});
    finish_roce(frame);
    std::vector<std::byte> bytes(wire_length(frame));
    EXPECT_EQ(write_frame(frame, mad, bytes), bytes.size());
    return bytes;
}

std::string tshark(const std::vector<CmMessage>& messages) {
    // The tests of this file run at the same time.
    const std::string path = ::testing::TempDir() + "rdmalab_mad_" +
                             ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                             ".pcapng";
    std::vector<std::byte> capture = pcapng_header("p0", 65'535);
    for (const CmMessage& message : messages)
        append_pcapng_packet(capture, 1'000'000'000, frame_of(message), false);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(capture.data()),
               static_cast<std::streamsize>(capture.size()));
    const std::string command = "tshark -V -r '" + path + "' 2>/dev/null";
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    std::string text;
    char buffer[4096];
    for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, pipe.get())) > 0;)
        text.append(buffer, n);
    std::remove(path.c_str());
    return text;
}

TEST(MadTshark, reads_every_field_of_a_req) {
    const std::string text = tshark({sample_req()});
    for (const char* expected : {
             "Management Class: 0x07",
             "Transaction ID: 0x1122334455667788",
             "CM ConnectRequest",
             "Local Communication ID: 0xa1b2c3d4",
             "Prefix: 0000000001",
             "Protocol: 0x06",
             "Destination Port: 0x1d2f",
             "Local CA GUID: 0x020000fffe000001",
             "Local Q_Key: 0x11112222",
             "Local QPN: 0x123456",
             "Responder Resources: 0x04",
             "Initiator Depth: 0x05",
             "Remote CM Response Timeout: 0x11",
             "Transport Service Type: 0x1",
             "End-to-End Flow Control: 0x1",
             "Starting PSN: 0x654321",
             "Local CM Response Timeout: 0x12",
             "Retry Count: 0x6",
             "Partition Key: 0xffff",
             "Path Packet Payload MTU: 0x5",
             "RNR Retry Count: 0x7",
             "Max CM Retries: 0xf",
             "SRQ: 0x1",
             "Primary Local Port GID: 10.0.0.2",
             "Primary Remote Port GID: 10.0.0.1",
             "Primary Traffic Class: 0x20",
             "Primary Hop Limit: 0x40",
             "Primary SL: 0x9",
             "Primary Subnet Local: 0x1",
             "Primary Local ACK Timeout: 0x0e",
             "IP CM IP Version: 0x4",
             "IP CM Source Port: 0xc001",
             "IP CM Source IP: 10.0.0.2",
             "IP CM Destination IP: 10.0.0.1",
             "IP CM Consumer PrivateData: 5a00",
         })
        EXPECT_NE(text.find(expected), std::string::npos) << expected << "\n" << text;
    EXPECT_EQ(text.find("Malformed"), std::string::npos) << text;
}

TEST(MadTshark, reads_the_other_messages) {
    RejMessage rej;
    rej.reason = static_cast<std::uint16_t>(RejectReason::kInvalidServiceId);
    rej.remote_comm_id = 0xa1b2'c3d4;
    RtuMessage rtu;
    rtu.local_comm_id = 0xa1b2'c3d4;
    DreqMessage dreq;
    dreq.remote_qpn = Qpn{0xab'cdef};
    const std::string text =
        tshark({sample_rep(), rej, rtu, dreq, DrepMessage{}, MraMessage{}, SidrReqMessage{},
                SidrRepMessage{}, LapMessage{}, AprMessage{}});
    for (const char* expected : {"Local QPN: 0xabcdef", "Starting PSN: 0x102030",
                                 "Target ACK Delay: 0x0d", "Reason: 0x0008"})
        EXPECT_NE(text.find(expected), std::string::npos) << expected << "\n" << text;
    for (const char* name : {"ConnectReply", "ConnectReject", "ReadyToUse", "DisconnectRequest",
                             "DisconnectReply", "LoadAlternatePath", "AlternatePathResponse"})
        EXPECT_NE(text.find(name), std::string::npos) << name << "\n" << text;
    EXPECT_EQ(text.find("Malformed"), std::string::npos) << text;
}

}  // namespace
}  // namespace rdmalab::wire

// Raw packet QPs, frames and flow rules for our test programs.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "verbs_kit.h"

namespace rdmalab::programs {

using Bytes = std::string;

// Headers, in network order.
Bytes ethernet(const Bytes& destination, const Bytes& source, std::uint16_t type,
               int vlan_tag = -1);
Bytes ipv4(std::uint32_t source, std::uint32_t destination, std::uint8_t protocol,
           std::size_t payload);
Bytes ipv6(std::uint8_t source, std::uint8_t destination, std::uint8_t protocol,
           std::size_t payload);
Bytes udp(std::uint16_t source, std::uint16_t destination, std::size_t payload);
Bytes tcp(std::uint16_t source, std::uint16_t destination);
Bytes number(std::uint64_t value, int bytes);  // big-endian
Bytes mac_of(const Device& device);

// Ethernet, IPv4 and UDP around 64 bytes that depend on `mark`.
struct Datagram {
    Bytes destination_mac, source_mac;
    std::uint32_t source_ip = 0x0a00'0001, destination_ip = 0x0a00'0002;
    std::uint16_t source_port = 5000, destination_port = 7000;
    char mark = 'a';
    Bytes frame() const;
};

// A raw packet QP in RTS, with 64 receives of 2048 bytes posted.
class RawEnd {
public:
    explicit RawEnd(const Device& device);
    ~RawEnd();
    RawEnd(const RawEnd&) = delete;
    RawEnd& operator=(const RawEnd&) = delete;

    ibv_qp* qp() const { return qp_; }
    void send(const Bytes& frame, unsigned flags = 0);
    // The frames that arrive within `patience_ms` after the last one.
    std::vector<Bytes> receive(int patience_ms = 50);
    std::uint32_t last_tag() const { return last_tag_; }
    unsigned last_flags() const { return last_flags_; }

private:
    static constexpr std::uint32_t kSlots = 64, kSlotSize = 2048;
    void post(std::uint64_t slot);
    bool poll(ibv_wc& wc);

    const Device& device_;
    Memory memory_;
    ibv_cq_ex* cq_;
    ibv_qp* qp_;
    std::uint32_t last_tag_ = 0;
    unsigned last_flags_ = 0;
    std::vector<Bytes> received_;
};

// A rule under construction. Specs are added with all their fields zero; `size` is set.
class Rule {
public:
    explicit Rule(ibv_flow_attr_type type = IBV_FLOW_ATTR_NORMAL);
    ibv_flow_attr& attributes() { return *reinterpret_cast<ibv_flow_attr*>(bytes_.data()); }
    template <typename Spec>
    Rule& add(unsigned type, Spec spec) {
        spec.type = static_cast<ibv_flow_spec_type>(type);
        spec.size = sizeof spec;
        const auto* at = reinterpret_cast<const char*>(&spec);
        bytes_.append(at, sizeof spec);
        attributes().size = static_cast<std::uint16_t>(bytes_.size());
        ++attributes().num_of_specs;
        return *this;
    }
    Rule& port(std::uint16_t destination, std::uint16_t mask = 0xffff);
    Rule& destination(const Bytes& mac);
    Rule& priority(std::uint16_t value);
    Rule& flags(std::uint32_t value);
    Rule& tag(std::uint32_t value);
    Rule& drop();
    Rule& count(ibv_counters* counters);
    ibv_flow* create(const RawEnd& end);
    // The errno value of a creation that must fail; 0 when it does not.
    int failure(ibv_qp* qp);

private:
    Bytes bytes_;
};

}  // namespace rdmalab::programs

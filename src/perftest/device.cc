#include "perftest/device.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fmt/format.h>
#include <string.h>

#include <algorithm>

#include "perftest/failure.h"

namespace rdmalab::perftest {

namespace {

struct ListFreer {
    void operator()(ibv_device** list) const { ibv_free_device_list(list); }
};

struct DeviceList {
    int count = 0;
    std::unique_ptr<ibv_device* [], ListFreer> devices { ibv_get_device_list(&count) };

    std::string names() const {
        std::string text;
        for (int i = 0; i < count; ++i) {
            text += (i == 0 ? "" : ", ") + std::string(ibv_get_device_name(devices[i]));
        }
        return text;
    }
    ibv_device* find(const std::string& name) const {
        for (int i = 0; i < count; ++i) {
            if (name == ibv_get_device_name(devices[i])) return devices[i];
        }
        return nullptr;
    }
};

bool has_active_port(ibv_device* device) {
    std::unique_ptr<ibv_context, ContextCloser> context(ibv_open_device(device));
    ibv_device_attr attr{};
    if (!context || ibv_query_device(context.get(), &attr) != 0) return false;
    for (int port = 1; port <= attr.phys_port_cnt; ++port) {
        ibv_port_attr port_attr{};
        if (ibv_query_port(context.get(), static_cast<std::uint8_t>(port), &port_attr) == 0 &&
            port_attr.state == IBV_PORT_ACTIVE) {
            return true;
        }
    }
    return false;
}

bool is_ipv4(const ibv_gid& gid) {
    constexpr std::uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return memcmp(gid.raw, kPrefix, sizeof kPrefix) == 0;
}

std::string address_text(const ibv_gid& gid) {
    char text[INET6_ADDRSTRLEN] = "";
    bool four = is_ipv4(gid);
    inet_ntop(four ? AF_INET : AF_INET6, four ? gid.raw + 12 : gid.raw, text, sizeof text);
    return text;
}

const char* type_name(std::uint32_t type) {
    switch (type) {
        case IBV_GID_TYPE_ROCE_V2:
            return "RoCE v2";
        case IBV_GID_TYPE_ROCE_V1:
            return "RoCE v1";
        default:
            return "IB";
    }
}

GidChoice choice_of(const ibv_gid_entry& entry) {
    GidChoice choice;
    choice.index = static_cast<std::uint8_t>(entry.gid_index);
    choice.gid = entry.gid;
    choice.family = is_ipv4(entry.gid) ? 4 : 6;
    choice.link_local = entry.gid.raw[0] == 0xfe && (entry.gid.raw[1] & 0xc0) == 0x80;
    choice.type = type_name(entry.gid_type);
    choice.text = address_text(entry.gid);
    return choice;
}

// Larger is better: RoCE v2 before v1, routable before link-local, the wanted family first.
int rank_of(const GidChoice& choice, int family) {
    return (choice.type == "RoCE v2" ? 4 : 0) + (choice.link_local ? 0 : 2) +
           (choice.family == family ? 1 : 0);
}

}  // namespace

Json GidChoice::to_json() const {
    return {{"index", index},
            {"type", type},
            {"family", family == 4 ? "ipv4" : "ipv6"},
            {"linkLocal", link_local},
            {"address", text}};
}

std::string GidChoice::kind() const {
    return fmt::format("{} {}{}", type, family == 4 ? "IPv4" : "IPv6",
                       link_local ? " link-local" : "");
}

std::string no_device_text() {
    return "no RDMA device on this machine. Without an adapter, run it on a software card:\n"
           "  rdmalab run -- rdma_perftest ...";
}

std::string device_to_use(const std::string& wanted) {
    DeviceList list;
    if (list.count == 0) throw Failure(no_device_text());
    if (wanted.empty()) return ibv_get_device_name(list.devices[0]);
    if (list.find(wanted) == nullptr) {
        throw Failure(
            fmt::format("--device {}: no such RDMA device; there are: {}", wanted, list.names()));
    }
    return wanted;
}

Device::Device(const Side& side) {
    DeviceList list;
    if (list.count == 0) throw Failure(no_device_text());
    ibv_device* device = list.find(device_to_use(side.device));
    for (int i = 0; side.device.empty() && i < list.count; ++i) {
        if (!has_active_port(list.devices[i])) continue;
        device = list.devices[i];
        break;
    }
    name_ = ibv_get_device_name(device);
    context_.reset(ibv_open_device(device));
    if (!context_) {
        throw Failure(fmt::format("cannot open device {}: {}", name_, strerror(errno)));
    }
    if (int error = ibv_query_device(context_.get(), &attr_)) {
        throw Failure(fmt::format("cannot query device {}: {}", name_, strerror(error)));
    }
    find_port(side);
}

void Device::find_port(const Side& side) {
    if (side.ib_port && *side.ib_port > attr_.phys_port_cnt) {
        throw Failure(fmt::format("--ib_port {}: device {} has {} port(s)", *side.ib_port, name_,
                                  attr_.phys_port_cnt));
    }
    std::string states;
    for (int port = 1; port <= attr_.phys_port_cnt; ++port) {
        if (side.ib_port && *side.ib_port != port) continue;
        port_ = static_cast<std::uint8_t>(port);
        if (int error = ibv_query_port(context_.get(), port_, &port_attr_)) {
            throw Failure(
                fmt::format("cannot query port {} of {}: {}", port, name_, strerror(error)));
        }
        if (port_attr_.state == IBV_PORT_ACTIVE) return;
        states += fmt::format("{}port {} is {}", states.empty() ? "" : ", ", port,
                              ibv_port_state_str(port_attr_.state));
    }
    throw Failure(fmt::format("device {}: expected an active port; {}", name_, states));
}

std::vector<GidChoice> Device::gids() const {
    std::vector<ibv_gid_entry> entries(
        static_cast<std::size_t>(std::max(port_attr_.gid_tbl_len, 1)));
    ssize_t count = ibv_query_gid_table(context_.get(), entries.data(), entries.size(), 0);
    std::vector<GidChoice> out;
    for (ssize_t i = 0; i < count; ++i) {
        const ibv_gid_entry& entry = entries[static_cast<std::size_t>(i)];
        if (entry.port_num == port_ && entry.gid_index < 256) out.push_back(choice_of(entry));
    }
    return out;
}

std::optional<GidChoice> Device::choose_gid(const Side& side, std::optional<int> family,
                                            const Json& like) const {
    if (!is_ethernet() && !side.gid_index) return std::nullopt;
    std::vector<GidChoice> all = gids();
    std::optional<GidChoice> best;
    bool peer_known = like.is_object();
    int wanted = family.value_or(peer_known && like.value("family", "") == "ipv6" ? 6 : 4);
    for (const GidChoice& each : all) {
        if (side.gid_index) {
            if (each.index == *side.gid_index) best = each;
            continue;
        }
        if (peer_known && (each.type != like.value("type", "") ||
                           each.link_local != like.value("linkLocal", false))) {
            continue;
        }
        if (family && each.family != *family) continue;
        if (!best || rank_of(each, wanted) > rank_of(*best, wanted)) best = each;
    }
    if (best) return best;
    std::string known;
    for (const GidChoice& each : all) {
        known += fmt::format("{}{}: {} {}", known.empty() ? "" : "; ", each.index, each.kind(),
                             each.text);
    }
    std::string wish = side.gid_index ? fmt::format("--gid_index {}", *side.gid_index)
                       : family       ? fmt::format("--gid_family ipv{}", *family)
                       : peer_known   ? "a GID like the peer's " + to_text(like)
                                      : "a GID";
    throw Failure(fmt::format("{}: device {} port {} has none such; it has: {}", wish, name_, port_,
                              known.empty() ? "none" : known));
}

}  // namespace rdmalab::perftest

#include "rdmalab/lab_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "rdmalab/table.h"

namespace rdmalab::launcher {
namespace {

const Json* find_interface(const Json& list, const std::string& name) {
    for (const Json& one : list)
        if (one.value("ifname", "") == name) return &one;
    return nullptr;
}

bool has_flag(const Json& link, const char* flag) {
    const Json& flags = member(link, "flags");
    return std::find(flags.begin(), flags.end(), flag) != flags.end();
}

std::string link_state(const std::string& port, const Json& links, const Json& ports) {
    const Json* const link = find_interface(links, port);
    if (link == nullptr) return "gone";
    if (!has_flag(*link, "UP")) return "down";
    const Json* const bridged = find_interface(ports, port);
    if (bridged != nullptr && bridged->value("state", "") == "disabled") return "cut";
    return "up";
}

std::string joined(const Json& list) {
    std::string text;
    for (const Json& item : list) text += (text.empty() ? "" : " ") + item.get<std::string>();
    return text;
}

}  // namespace

Json lab_status(const Lab& lab, const Json& links, const Json& ports) {
    Json status = lab.to_json();
    for (std::size_t i = 0; i < lab.hosts.size(); ++i) {
        const LabHost& host = lab.hosts[i];
        Json& out = status["hosts"][i];
        out["state"] = is_alive(host.init) ? "up" : "crashed";
        out["links"] = Json::array();
        for (unsigned rail = 0; rail < lab.rails; ++rail)
            out["links"].push_back(link_state(lab_port(host, rail), links, ports));
    }
    return status;
}

std::string print_lab_status(const Json& status) {
    const Json& hosts = member(status, "hosts");
    std::string text = fmt::format("lab: {} hosts, {} rails, MTU {}, keeper pid {}\n", hosts.size(),
                                   number(status, "rails"), number(status, "mtu"),
                                   number(member(status, "keeper"), "pid"));
    Table table({"host", "state", "addresses", "links", "pid"});
    for (const Json& host : hosts) {
        table.add_row({host.value("name", ""), host.value("state", ""),
                       joined(member(host, "addresses")), joined(member(host, "links")),
                       std::to_string(number(member(host, "init"), "pid"))});
    }
    return text + table.print();
}

}  // namespace rdmalab::launcher

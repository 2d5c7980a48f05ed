#include "card/flow_service.h"

#include <algorithm>
#include <cerrno>

#include "base/limits.h"
#include "flow/commands.h"

namespace rdmalab::card {
namespace {

constexpr std::string_view kPciPrefix = "pci/", kPciDomain = "0000:";

std::string_view without(std::string_view text, std::string_view prefix) {
    return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

bool is_named(const FunctionConfig& function, std::string_view name) {
    if (function.device == name) return true;
    const std::string_view pci = without(name, kPciPrefix);
    return !function.pci.empty() && without(function.pci, kPciDomain) == without(pci, kPciDomain);
}

}  // namespace

ControlReply FlowService::handle_request(FlowSessionId session, const std::string& program,
                                         ByteView body) {
    flow::Reader reader(body);
    const auto owned = std::find_if(owners_.begin(), owners_.end(), [session](const auto& item) {
        return item.second.session == session;
    });
    if (owned == owners_.end()) {
        if (flow::kind_of(reader) != flow::CommandKind::kAttach) {
            return {EINVAL, "this connection does not own the domain of a PF", {}};
        }
        return attach(session, program, reader.rest());
    }
    auto done = flow::execute(*switchboard_.pipeline(owned->first), body);
    if (!done.ok()) return {done.error().code, done.error().text, {}};
    return {0, "", std::move(*done)};
}

ControlReply FlowService::attach(FlowSessionId session, const std::string& program,
                                 ByteView arguments) {
    flow::AttachCommand command;
    flow::Reader reader(arguments);
    if (!reader(command).complete() || command.counters_max > limits::kFlowEntryMax) {
        return {EINVAL, "a flow command (attach): its arguments are wrong", {}};
    }
    const auto domain = find_domain(command.pf);
    if (!domain.ok()) return {domain.error().code, domain.error().text, {}};
    const std::string& pf = switchboard_.pf_of(*domain);
    if (const auto owner = owners_.find(*domain); owner != owners_.end()) {
        return {EBUSY, "the switch domain of " + pf + " is owned by " + owner->second.program, {}};
    }
    flow::PipelineOptions options;
    options.seed = seed_of(pf);
    options.counters_max = command.counters_max;
    options.hash_root_allowed = command.hash_root_allowed;
    const flow::Pipeline& pipeline = switchboard_.take_over(*domain, ports_of(*domain), options);
    owners_.emplace(*domain, Owner{session, program});
    flow::Writer writer;
    writer(flow::AttachReply{pf, config_.name, pipeline.ports()});
    return {0, "", writer.take()};
}

void FlowService::close_session(FlowSessionId session) {
    std::erase_if(owners_, [&](const auto& item) {
        if (item.second.session != session) return false;
        switchboard_.release(item.first);
        return true;
    });
}

bool FlowService::owns(FlowSessionId session) const {
    return std::any_of(owners_.begin(), owners_.end(),
                       [session](const auto& item) { return item.second.session == session; });
}

std::vector<FlowDomainFacts> FlowService::domains() const {
    std::vector<FlowDomainFacts> facts;
    for (std::uint32_t i = 0; i < switchboard_.domain_count(); ++i) {
        const auto owner = owners_.find(i);
        facts.push_back({switchboard_.pf_of(i),
                         owner == owners_.end() ? std::string() : owner->second.program,
                         switchboard_.pipeline(i)});
    }
    return facts;
}

Result<std::uint32_t> FlowService::find_domain(const std::string& name) const {
    std::string known;
    const auto& functions = config_.functions;
    const auto found = std::find_if(functions.begin(), functions.end(),
                                    [&](const auto& function) { return is_named(function, name); });
    if (found != functions.end() && found->kind != FunctionKind::kPf) {
        return Error{EINVAL,
                     "\"" + name + "\": expected a PF, found a function of " + found->pf_device};
    }
    for (std::uint32_t i = 0; i < switchboard_.domain_count(); ++i) {
        const std::string& pf = switchboard_.pf_of(i);
        if (found != functions.end() && pf == found->device) return i;
        known += (known.empty() ? "" : ", ") + pf;
    }
    return Error{ENOENT, "there is no PF \"" + name + "\": expected one of " + known +
                             " or its PCI address"};
}

std::vector<flow::PortInfo> FlowService::ports_of(std::uint32_t domain) const {
    std::vector<flow::PortInfo> ports;
    for (const TapPoint end : switchboard_.ends(domain)) {
        flow::PortInfo port;
        port.id = {static_cast<std::uint16_t>(ports.size())};
        if (end.is_port) {
            port.kind = flow::PortKind::kWire;
            port.name = config_.ports[end.index].name;
        } else {
            const FunctionConfig& function = config_.functions[end.index];
            port.name = function.representor.empty() ? function.device : function.representor;
            port.device = function.device;
            port.addresses = function.ips;
        }
        ports.push_back(std::move(port));
    }
    return ports;
}

// FNV-1a, so that the domains of a card draw different numbers.
std::uint64_t FlowService::seed_of(const std::string& pf) const {
    std::uint64_t hash = 0xcbf2'9ce4'8422'2325;
    for (const char c : pf) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100'0000'01b3;
    return hash ^ config_.seed;
}

}  // namespace rdmalab::card

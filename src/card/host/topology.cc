#include "card/host/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "base/limits.h"
#include "card/host/builtin_topologies.h"
#include "card/host/toml_reader.h"
#include "card/host/topology_check.h"

namespace rdmalab::card::host {
namespace {

constexpr std::string_view kNameExpected = "a name of up to 63 letters, digits, '_', '-' and '.'";
constexpr std::string_view kMacExpected = "a unicast MAC address such as \"02:00:00:00:00:01\"";
constexpr std::string_view kIpExpected =
    "a unicast address such as \"10.0.0.1\", \"fd00::1\" or \"10.0.0.1/24\"";

bool is_name(std::string_view text) {
    constexpr std::size_t kNameMax = 63;  // DeviceInfo::name with its end
    return !text.empty() && text.size() <= kNameMax &&
           text.find_first_not_of(
               "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
               "0123456789_-.") == text.npos &&
           text.front() != '.';
}

// A field that must hold a name. Empty when it is absent or wrong (which is then noted).
std::string read_name(TomlReader& reader, std::string_view key, bool required) {
    const auto text = reader.string(key, kNameExpected);
    const bool absent = reader.is_absent(key);
    if (absent && required) reader.missing(key, kNameExpected);
    if (!text) return {};
    if (is_name(*text)) return *text;
    reader.error(key, std::string(kNameExpected), fmt::format("\"{}\"", *text));
    return {};
}

// domain:bus:device.function, all hexadecimal.
bool is_pci_address(std::string_view text) {
    constexpr std::string_view kShape = "xxxx:xx:xx.x";
    if (text.size() != kShape.size()) return false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool fits = kShape[i] == 'x' ? std::isxdigit(static_cast<unsigned char>(text[i])) != 0
                                           : text[i] == kShape[i];
        if (!fits) return false;
    }
    return true;
}

// An address with or without the length of its network's prefix.
std::optional<Gid> parse_ip(std::string_view text, std::uint8_t& prefix_length) {
    const std::size_t slash = text.find('/');
    const auto gid = Gid::parse(text.substr(0, slash));
    if (!gid) return std::nullopt;
    const unsigned length_max = gid->is_ipv4() ? 32 : 128;
    unsigned length = gid->is_ipv4() ? 24 : 64;
    if (slash != text.npos) {
        const char* const end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data() + slash + 1, end, length);
        if (error != std::errc() || stop != end || length < 1) return std::nullopt;
    }
    if (length > length_max) return std::nullopt;
    prefix_length = static_cast<std::uint8_t>(length);
    return gid;
}

void read_impairment_keys(TomlReader& reader, Impairments& out) {
    if (auto value = reader.rate("rate")) out.rate = *value;
    if (auto value = reader.duration("delay")) out.delay = *value;
    if (auto value = reader.duration("jitter")) out.jitter = *value;
    if (auto value = reader.probability("loss")) out.loss = *value;
    if (auto value = reader.probability("reorder")) out.reorder = *value;
    if (auto value = reader.probability("duplicate")) out.duplicate = *value;
    if (auto value = reader.probability("corrupt")) out.corrupt = *value;
    if (auto value = reader.probability("ce")) out.ce = *value;
    if (auto value = reader.boolean("verify_icrc")) out.verify_icrc = *value;
}

class Parser {
public:
    Parser(const toml::table& root, ErrorList& errors) : errors_(errors), root_(root, "", errors) {}

    CardConfig parse() {
        read_card();
        read_list("port", &Parser::read_port);
        read_list("function", &Parser::read_function);
        read_list("cable", &Parser::read_cable);
        read_list("uplink", &Parser::read_uplink);
        root_.finish();
        if (config_.functions.empty() && root_.is_absent("function")) {
            errors_.add(0, "function", "at least one [[function]]", "none");
        }
        check_topology(config_, lines_, errors_);
        return std::move(config_);
    }

private:
    using ReadOne = void (Parser::*)(TomlReader&);

    void read_card() {
        if (auto seed = root_.unsigned_integer("seed", "a whole number, 0 or more")) {
            config_.seed = *seed;
        }
        constexpr std::string_view kMtuExpected = "256, 512, 1024, 2048 or 4096 (bytes)";
        if (auto mtu = root_.unsigned_integer("mtu", kMtuExpected)) {
            constexpr std::uint64_t kMtus[] = {256, 512, 1024, 2048, 4096};
            if (std::find(std::begin(kMtus), std::end(kMtus), *mtu) == std::end(kMtus)) {
                root_.error("mtu", std::string(kMtuExpected), fmt::format("{}", *mtu));
            } else {
                config_.port_mtu = static_cast<std::uint32_t>(*mtu);
            }
        }
        if (auto interval = root_.duration("cnp_interval"))
            config_.congestion.cnp_interval = *interval;
        if (auto computed = root_.boolean("computed_icrc")) config_.force_computed_icrc = *computed;
        constexpr std::string_view kNetdevMtuExpected = "68 to 65521 (bytes)";
        if (auto mtu = root_.unsigned_integer("netdev_mtu", kNetdevMtuExpected)) {
            if (*mtu < 68 || *mtu > 65'521) {
                root_.error("netdev_mtu", std::string(kNetdevMtuExpected), fmt::format("{}", *mtu));
            } else {
                config_.netdev_mtu = static_cast<std::uint32_t>(*mtu);
            }
        }
    }

    void read_list(std::string_view key, ReadOne read_one) {
        const auto tables = root_.tables(key);
        if (tables.size() > limits::kFunctionMax) {
            root_.error(key, fmt::format("at most {} tables", limits::kFunctionMax),
                        fmt::format("{}", tables.size()));
            return;
        }
        for (std::size_t i = 0; i < tables.size(); ++i) {
            TomlReader reader(*tables[i], fmt::format("{}[{}]", key, i), errors_);
            (this->*read_one)(reader);
            reader.finish();
        }
    }

    void read_port(TomlReader& reader) {
        PortConfig port;
        port.name = read_name(reader, "name", true);
        port.pf_device = read_name(reader, "pf", true);
        lines_.ports.push_back({reader.path(), reader.line_of("name"), reader.line_of("pf")});
        config_.ports.push_back(std::move(port));
    }

    void read_function(TomlReader& reader) {
        FunctionConfig function;
        function.device = read_name(reader, "device", true);
        const bool kind_known = read_kind(reader, function.kind);
        const bool is_pf = kind_known && function.kind == FunctionKind::kPf;
        function.pf_device = read_name(reader, "pf", kind_known && !is_pf);
        if (is_pf && function.pf_device.empty()) function.pf_device = function.device;
        function.representor = read_name(reader, "representor", kind_known && !is_pf);
        function.netns = read_name(reader, "netns", false);
        if (auto on = reader.boolean("flow_steering")) function.flow_steering = *on;
        function.netdev = read_netdev(reader, false);
        read_pci(reader, function);
        read_mac(reader, function);
        read_ips(reader, function);
        lines_.functions.push_back({reader.path(), reader.line_of("device"), reader.line_of("pf"),
                                    reader.line_of("representor"), reader.line_of("pci"),
                                    reader.line_of("mac"), reader.line_of("ips"),
                                    reader.line_of("netdev"), kind_known});
        config_.functions.push_back(std::move(function));
    }

    bool read_kind(TomlReader& reader, FunctionKind& kind) {
        constexpr std::string_view kKindExpected = "\"pf\", \"vf\" or \"sf\"";
        const auto text = reader.string("kind", kKindExpected);
        if (reader.is_absent("kind")) reader.missing("kind", kKindExpected);
        if (!text) return false;
        if (*text == "pf") {
            kind = FunctionKind::kPf;
        } else if (*text == "vf") {
            kind = FunctionKind::kVf;
        } else if (*text == "sf") {
            kind = FunctionKind::kSf;
        } else {
            reader.error("kind", std::string(kKindExpected), fmt::format("\"{}\"", *text));
            return false;
        }
        return true;
    }

    // Empty when it is absent or wrong (which is then noted).
    static std::string read_netdev(TomlReader& reader, bool required) {
        constexpr std::string_view kNetdevExpected =
            "a name of up to 15 letters, digits, '_', '-' and '.', other than \"lo\"";
        const auto text = reader.string("netdev", kNetdevExpected);
        if (required && reader.is_absent("netdev")) reader.missing("netdev", kNetdevExpected);
        if (!text) return {};
        if (is_name(*text) && text->size() <= kNetdevNameMax && *text != "lo") return *text;
        reader.error("netdev", std::string(kNetdevExpected), fmt::format("\"{}\"", *text));
        return {};
    }

    void read_uplink(TomlReader& reader) {
        TopologyLines::Uplink uplink;
        uplink.path = reader.path();
        uplink.cable.port_a = read_name(reader, "port", true);
        uplink.cable.name = uplink.cable.port_b = read_netdev(reader, true);
        read_impairments(reader, uplink.cable);
        if (auto bursts = reader.boolean("bursts")) uplink.bursts = *bursts;
        uplink.port_line = reader.line_of("port");
        uplink.netdev_line = reader.line_of("netdev");
        lines_.uplinks.push_back(std::move(uplink));
    }

    void read_pci(TomlReader& reader, FunctionConfig& function) {
        constexpr std::string_view kPciExpected = "a PCI address such as \"0000:03:00.0\"";
        const auto text = reader.string("pci", kPciExpected);
        if (!text) return;
        if (is_pci_address(*text)) {
            function.pci = *text;
        } else {
            reader.error("pci", std::string(kPciExpected), fmt::format("\"{}\"", *text));
        }
    }

    void read_mac(TomlReader& reader, FunctionConfig& function) {
        const auto text = reader.string("mac", kMacExpected);
        if (!text) return;
        const auto mac = MacAddress::parse(*text);
        if (mac && !mac->is_multicast() && *mac != MacAddress{}) {
            function.mac = *mac;
        } else {
            reader.error("mac", std::string(kMacExpected), fmt::format("\"{}\"", *text));
        }
    }

    void read_ips(TomlReader& reader, FunctionConfig& function) {
        constexpr std::size_t kIpMax = limits::kGidMax - 1;  // GID 0 is the link-local one
        const auto texts = reader.strings("ips", "an array of addresses such as [\"10.0.0.1\"]");
        if (texts.size() > kIpMax) {
            reader.error("ips", fmt::format("at most {} addresses", kIpMax),
                         fmt::format("{}", texts.size()));
            return;
        }
        for (const std::string& text : texts) {
            std::uint8_t prefix_length = 0;
            const auto gid = parse_ip(text, prefix_length);
            if (gid && !gid->is_zero() && !gid->is_multicast()) {
                function.ips.push_back(*gid);
                function.prefix_lengths.push_back(prefix_length);
            } else {
                reader.error("ips", std::string(kIpExpected), fmt::format("\"{}\"", text));
            }
        }
    }

    void read_cable(TomlReader& reader) {
        CableConfig cable;
        cable.name = read_name(reader, "name", true);
        cable.port_a = read_name(reader, "a", true);
        cable.port_b = read_name(reader, "b", true);
        read_impairments(reader, cable);
        lines_.cables.push_back(
            {reader.path(), reader.line_of("name"), reader.line_of("a"), reader.line_of("b")});
        config_.cables.push_back(std::move(cable));
    }

    void read_impairments(TomlReader& reader, CableConfig& cable) {
        Impairments both;
        read_impairment_keys(reader, both);
        read_direction(reader, "both", both);
        cable.a_to_b = cable.b_to_a = both;
        read_direction(reader, "a_to_b", cable.a_to_b);
        read_direction(reader, "b_to_a", cable.b_to_a);
    }

    void read_direction(TomlReader& cable, std::string_view key, Impairments& out) {
        const toml::table* table = cable.table(key);
        if (!table) return;
        TomlReader reader(*table, fmt::format("{}.{}", cable.path(), key), errors_);
        read_impairment_keys(reader, out);
        reader.finish();
    }

    ErrorList& errors_;
    TomlReader root_;
    CardConfig config_;
    TopologyLines lines_;
};

constexpr std::size_t kFileBytesMax = 1 << 20;

bool is_path(const std::string& name) {
    return name.find('/') != name.npos || name.ends_with(".toml");
}

Topology unreadable(const std::string& name, const std::string& found) {
    std::vector<std::string_view> names = builtin_topologies();
    return {
        {},
        {{name, 0, "",
          fmt::format("a TOML file or a built-in topology ({})", fmt::join(names, ", ")), found}}};
}

}  // namespace

std::string TopologyError::to_string() const {
    std::string place = line > 0 ? fmt::format("{}:{}", file, line) : file;
    if (!field.empty()) place += ": " + field;
    return fmt::format("{}: expected {}, found {}", place, expected, found);
}

Topology parse_topology(std::string_view text, std::string_view file) {
    ErrorList errors(file);
    const toml::parse_result parsed = toml::parse(text, file);
    if (!parsed) {
        errors.add(static_cast<std::uint32_t>(parsed.error().source().begin.line), "", "TOML",
                   std::string(parsed.error().description()));
        return {{}, errors.take()};
    }
    Topology topology;
    topology.config = Parser(parsed.table(), errors).parse();
    topology.errors = errors.take();
    return topology;
}

Topology load_topology(const std::string& name_or_file) {
    for (const BuiltinTopology& builtin : builtin_topology_table()) {
        if (builtin.name == name_or_file) {
            return parse_topology(builtin.text, std::string(builtin.name) + ".toml");
        }
    }
    if (!is_path(name_or_file)) return unreadable(name_or_file, "neither");
    // What is no file of a sensible size (a folder, a device without end) must not keep us reading.
    std::error_code error;
    if (std::filesystem::is_directory(name_or_file, error))
        return unreadable(name_or_file, "a folder");
    std::ifstream file(name_or_file, std::ios::binary);
    std::string text(kFileBytesMax + 1, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (!file && !file.eof()) return unreadable(name_or_file, "a file that cannot be read");
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (text.size() > kFileBytesMax) return unreadable(name_or_file, "a file of more than 1 MiB");
    return parse_topology(text, name_or_file);
}

Topology uplink_topology(const std::vector<std::string>& netdevs) {
    std::string text;
    for (std::size_t i = 0; i < netdevs.size(); ++i) {
        text += fmt::format(
            "[[port]]\nname = \"p{0}\"\npf = \"mlx5_{0}\"\n"
            "[[function]]\ndevice = \"mlx5_{0}\"\nkind = \"pf\"\n"
            "[[uplink]]\nport = \"p{0}\"\nnetdev = '{1}'\n",
            i, netdevs[i]);
    }
    return parse_topology(text, "--uplink");
}

std::vector<std::string_view> builtin_topologies() {
    std::vector<std::string_view> names;
    for (const BuiltinTopology& builtin : builtin_topology_table()) names.push_back(builtin.name);
    return names;
}

}  // namespace rdmalab::card::host

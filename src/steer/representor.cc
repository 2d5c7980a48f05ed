#include "steer/representor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>

namespace rdmalab::steer {

namespace {

constexpr std::string_view kPrefix = "pci/";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex_digit(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

// 'x' stands for a hexadecimal digit, 'f' for a function number.
bool looks_like(std::string_view text, std::string_view pattern) {
    return std::ranges::equal(text, pattern, [](char c, char wanted) {
        if (wanted == 'x') return is_hex_digit(c);
        if (wanted == 'f') return c >= '0' && c <= '7';
        return c == wanted;
    });
}

// Takes `word` from the front, then at least one digit.
bool take_numbered(std::string_view& text, std::string_view word) {
    if (!text.starts_with(word)) return false;
    text.remove_prefix(word.size());
    const std::size_t before = text.size();
    while (!text.empty() && is_digit(text.front())) text.remove_prefix(1);
    return text.size() < before;
}

bool is_representor_name(std::string_view name) {
    if (!take_numbered(name, "pf")) return false;
    return (take_numbered(name, "sf") || take_numbered(name, "vf")) && name.empty();
}

}  // namespace

Result<std::string> parse_pci_address(std::string_view text) {
    std::string address(text.starts_with(kPrefix) ? text.substr(kPrefix.size()) : text);
    if (looks_like(address, "xx:xx.f")) address = "0000:" + address;
    if (!looks_like(address, "xxxx:xx:xx.f")) {
        return Error{EINVAL,
                     fmt::format("'{}' is no PCI address; expected one like 0000:03:00.0", text)};
    }
    for (char& c : address) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return address;
}

Result<Representor> parse_representor(std::string_view text) {
    const auto wrong = [&](std::string_view why) {
        return Error{EINVAL, fmt::format("'{}' is no representor: {}; expected one like "
                                         "pci/0000:03:00.0,pf0sf0",
                                         text, why)};
    };
    const std::size_t comma = text.find(',');
    if (!text.starts_with(kPrefix)) return wrong("it does not begin with 'pci/'");
    if (comma == std::string_view::npos) return wrong("there is no ',' behind the PCI address");
    const Result<std::string> pci = parse_pci_address(text.substr(0, comma));
    if (!pci.ok()) {
        return wrong(fmt::format("'{}' is no PCI address", text.substr(0, comma)));
    }
    const std::string_view name = text.substr(comma + 1);
    if (!is_representor_name(name)) {
        return wrong(fmt::format("'{}' is not of the form pfNsfN or pfNvfN", name));
    }
    return Representor{*pci, std::string(name)};
}

}  // namespace rdmalab::steer

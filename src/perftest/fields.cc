#include "perftest/fields.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace rdmalab::perftest {

namespace {

using Text = Result<std::optional<std::string>>;

Error expected(const char* what, const Json& value) {
    std::string found = to_text(value);
    if (found.size() > 80) found.replace(77, std::string::npos, "...");
    return {EINVAL, fmt::format("expected {}, found {}", what, found)};
}

Text text(std::string value) { return std::optional<std::string>(std::move(value)); }

// As flags have it: without an exponent.
std::string plain_decimal(double value) {
    std::array<char, 400> out;
    const auto end =
        std::to_chars(out.data(), out.data() + out.size(), value, std::chars_format::fixed);
    return {out.data(), end.ptr};
}

std::string text_of(const Json& value) {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_number_float()) return plain_decimal(value.get<double>());
    return value.dump();
}

Text flag_text(const Json& value) {
    if (value == true || value == "true") return text("true");
    if (value == false || value == "false") return std::optional<std::string>();
    return expected("a boolean", value);
}

Text direction_text(const Json& value) {
    if (value == "BIDIR") return text("true");
    if (value == "UNIDIR") return std::optional<std::string>();
    return expected("UNIDIR or BIDIR", value);
}

// 5, "5-9" or [5, 6, 7].
Text cores_text(const Json& value) {
    if (value.is_string()) return text(value.get<std::string>());
    if (value.is_number_unsigned()) return text(value.dump());
    std::string out;
    for (const Json& each : value.is_array() ? value : Json::array()) {
        if (!each.is_number_unsigned()) return expected("cores like 5, \"5-9\" or [5, 6]", value);
        out += (out.empty() ? "" : ",") + each.dump();
    }
    return out.empty() ? Text(expected("cores like 5, \"5-9\" or [5, 6]", value)) : text(out);
}

// "write:65536,send:4k" or [{"verb": "write", "msgSize": 65536}, ...].
Text operations_text(const Json& value) {
    constexpr char kExpected[] = "\"VERB:SIZE,...\" or a list of {\"verb\": ..., \"msgSize\": ...}";
    if (value.is_string()) return text(value.get<std::string>());
    if (!value.is_array() || value.empty()) return expected(kExpected, value);
    std::string out;
    for (const Json& each : value) {
        bool fits = each.is_object() && each.size() == 2 && each.contains("verb") &&
                    each.contains("msgSize") && each["verb"].is_string() &&
                    (each["msgSize"].is_number_unsigned() || each["msgSize"].is_string());
        if (!fits) return expected(kExpected, value);
        out += fmt::format("{}{}:{}", out.empty() ? "" : ",", each["verb"].get<std::string>(),
                           text_of(each["msgSize"]));
    }
    return text(out);
}

Text hints_text(const Json& value) {
    if (value.is_string()) return text(value.get<std::string>());
    std::string out;
    for (const char* key : {"filePath", "fileSize", "vendorId", "formatId"}) {
        if (!value.is_object() || value.size() != 4 || !value.contains(key)) {
            return expected("an object of filePath, fileSize, vendorId and formatId", value);
        }
        out += (out.empty() ? "" : ",") + text_of(value[key]);
    }
    return text(out);
}

}  // namespace

Result<std::optional<std::string>> field_text(const Parameter& parameter, const Json& value) {
    std::string_view name = parameter.name;
    if (name == "bidirectional") return direction_text(value);
    if (name == "cores" || name == "exclude_cores") return cores_text(value);
    if (name == "operations") return operations_text(value);
    if (name == "cc_group_hints") return hints_text(value);
    switch (parameter.kind) {
        case Kind::kFlag:
            return flag_text(value);
        case Kind::kText:
            return value.is_string() ? text(value.get<std::string>())
                                     : Text(expected("a text", value));
        default:
            return value.is_number() || value.is_string() ? text(text_of(value))
                                                          : Text(expected("a number", value));
    }
}

}  // namespace rdmalab::perftest

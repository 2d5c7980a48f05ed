#include "card/host/link_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "card/host/quantity.h"

namespace rdmalab::card::host {
namespace {

using Json = nlohmann::json;

class Reader {
public:
    explicit Reader(const Json& request) : request_(request) {}

    // Text is parsed; a number is taken as it is when it lies in [0, max].
    void rate(std::optional<Rate>& out) {
        read("rate", expected_rate(), parse_rate, out);
        std::optional<std::uint64_t> number;
        integer("rate_bps", "bits per second, from 0 to 10^15", 1'000'000'000'000'000, number);
        if (number) out = Rate{*number};
    }
    void duration(const char* name, std::optional<Duration>& out) {
        read(name, expected_duration(), parse_duration, out);
        std::optional<std::uint64_t> number;
        integer(fmt::format("{}_ns", name), "nanoseconds, from 0 to one hour", 3'600'000'000'000,
                number);
        if (number) out = Duration{static_cast<std::int64_t>(*number)};
    }
    void probability(const char* name, std::optional<double>& out) {
        const Json* value = find(name);
        if (value && value->is_number() && value->get<double>() >= 0 && value->get<double>() <= 1) {
            out = value->get<double>();
            return;
        }
        read(name, expected_probability(), parse_probability, out);
    }
    void boolean(const char* name, std::optional<bool>& out) {
        const Json* value = find(name);
        if (!value) return;
        if (value->is_boolean()) {
            out = value->get<bool>();
        } else {
            error(name, "true or false", *value);
        }
    }
    void direction(std::optional<bool>& a_to_b) {
        const Json* value = find("direction");
        if (!value || *value == "both") return;
        if (*value == "a_to_b" || *value == "b_to_a") {
            a_to_b = *value == "a_to_b";
        } else {
            error("direction", "\"both\", \"a_to_b\" or \"b_to_a\"", *value);
        }
    }
    void unknown_keys() {
        for (const auto& [key, value] : request_.items()) {
            if (key == "op" || key == "cable") continue;
            if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
                errors_.push_back(fmt::format("\"{}\": expected one of {}, found an unknown key",
                                              key, fmt::join(known_, ", ")));
            }
        }
    }
    const std::vector<std::string>& errors() const { return errors_; }

private:
    const Json* find(const std::string& name) {
        if (std::find(known_.begin(), known_.end(), name) == known_.end()) known_.push_back(name);
        const auto found = request_.find(name);
        return found == request_.end() ? nullptr : &*found;
    }
    void error(const std::string& name, const std::string& expected, const Json& found) {
        errors_.push_back(
            fmt::format("\"{}\": expected {}, found {}", name, expected, describe(found)));
    }
    template <class T, class Parse>
    void read(const char* name, const std::string& expected, Parse parse, std::optional<T>& out) {
        const Json* value = find(name);
        if (!value) return;
        if (value->is_string()) {
            if (const auto parsed = parse(value->get<std::string>()); parsed.ok()) {
                out = *parsed;
                return;
            }
        }
        error(name, expected, *value);
    }
    void integer(const std::string& name, const std::string& expected, std::uint64_t max,
                 std::optional<std::uint64_t>& out) {
        const Json* value = find(name);
        if (!value) return;
        if (value->is_number_unsigned() && value->get<std::uint64_t>() <= max) {
            out = value->get<std::uint64_t>();
        } else {
            error(name, expected, *value);
        }
    }

    const Json& request_;
    std::vector<std::string> known_, errors_;
};

}  // namespace

Result<LinkRequest> parse_link_request(const Json& request) {
    LinkRequest out;
    Reader reader(request);
    reader.direction(out.a_to_b);
    reader.rate(out.rate);
    reader.duration("delay", out.delay);
    reader.duration("jitter", out.jitter);
    reader.probability("loss", out.loss);
    reader.probability("reorder", out.reorder);
    reader.probability("duplicate", out.duplicate);
    reader.probability("corrupt", out.corrupt);
    reader.probability("ce", out.ce);
    reader.boolean("verify_icrc", out.verify_icrc);
    reader.unknown_keys();
    if (!reader.errors().empty()) {
        return Error{EINVAL, fmt::format("{}", fmt::join(reader.errors(), "\n"))};
    }
    return out;
}

std::string describe(const Json& value) {
    if (value.is_object()) return "an object";
    if (value.is_array()) return "an array";
    constexpr std::size_t kShownMax = 80;
    std::string shown = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (shown.size() > kShownMax) shown = shown.substr(0, kShownMax) + "...";
    return shown;
}

Impairments apply(const LinkRequest& request, Impairments impairments) {
    impairments.rate = request.rate.value_or(impairments.rate);
    impairments.delay = request.delay.value_or(impairments.delay);
    impairments.jitter = request.jitter.value_or(impairments.jitter);
    impairments.loss = request.loss.value_or(impairments.loss);
    impairments.reorder = request.reorder.value_or(impairments.reorder);
    impairments.duplicate = request.duplicate.value_or(impairments.duplicate);
    impairments.corrupt = request.corrupt.value_or(impairments.corrupt);
    impairments.ce = request.ce.value_or(impairments.ce);
    impairments.verify_icrc = request.verify_icrc.value_or(impairments.verify_icrc);
    return impairments;
}

}  // namespace rdmalab::card::host

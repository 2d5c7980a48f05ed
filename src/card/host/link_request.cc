#include "card/host/link_request.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "card/host/request_reader.h"

namespace rdmalab::card::host {
using Json = nlohmann::json;

Result<LinkRequest> parse_link_request(const Json& request) {
    LinkRequest out;
    RequestReader reader(request, {"op", "cable"});
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
    if (const Status status = reader.status(); !status) return status.error();
    return out;
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

// How the parts of Control take a request's body apart.
#pragma once

#include "card/control.h"
#include "card/control_reply.h"

namespace rdmalab::card {

template <class Request>
ControlReply Control::call_with_body(Context& context,
                                     ControlReply (Control::*method)(Context&, const Request&),
                                     ByteView body) {
    if (body.size() != sizeof(Request)) return wrong_length(body.size(), sizeof(Request));
    const auto request = load_bytes<Request>(body.data());
    return (this->*method)(context, request);
}

}  // namespace rdmalab::card

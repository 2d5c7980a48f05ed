// How requests of CM sessions are answered.
#pragma once

#include <string>

#include "base/result.h"
#include "card/card.h"

namespace rdmalab::card {

inline ControlReply cm_failure(int status, std::string text = {}) {
    return {status, std::move(text), {}};
}
// Success, or the errno value that the connection manager gave.
inline ControlReply cm_status(int status) { return {status, {}, {}}; }
inline ControlReply cm_failure(const Error& error) { return {error.code, error.text, {}}; }

template <class Body>
ControlReply cm_success(const Body& body) {
    ControlReply reply;
    reply.body.resize(sizeof body);
    store_bytes(reply.body.data(), body);
    return reply;
}

}  // namespace rdmalab::card

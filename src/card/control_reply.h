// How the control calls answer.
#pragma once

#include <cerrno>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/bytes.h"
#include "card/card.h"

namespace rdmalab::card {

inline ControlReply failure(int status, std::string text = {}) {
    return {status, std::move(text), {}};
}

inline ControlReply wrong_length(std::size_t found, std::size_t expected) {
    return failure(EINVAL, "the request has " + std::to_string(found) + " bytes, expected " +
                               std::to_string(expected));
}

template <class Body>
ControlReply success(const Body& body) {
    ControlReply reply;
    reply.body.resize(sizeof body);
    store_bytes(reply.body.data(), body);
    return reply;
}

// Success, or the errno value that the engine gave.
inline ControlReply plain(int status) { return {status, {}, {}}; }

template <class Record>
Record* find_record(const std::unordered_map<std::uint32_t, std::unique_ptr<Record>>& records,
                    std::uint32_t handle) {
    const auto found = records.find(handle);
    return found == records.end() ? nullptr : found->second.get();
}

}  // namespace rdmalab::card

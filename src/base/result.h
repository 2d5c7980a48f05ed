// A value or an error. std::expected is C++23; this is the part of it that we need.
#pragma once

#include <cerrno>
#include <string>
#include <utility>
#include <variant>

namespace rdmalab {

// `code` is an errno value; `text` says what was wrong, what was expected and what was found (may
// be empty where the errno alone is the answer, as for verbs calls).
struct Error {
    int code = 0;
    std::string text;
};

template <class T>
class [[nodiscard]] Result {
public:
    Result(T value) : state_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
    Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
    bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }
    T& value() { return std::get<0>(state_); }
    const T& value() const { return std::get<0>(state_); }
    T& operator*() { return value(); }
    const T& operator*() const { return value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }
    const Error& error() const { return std::get<1>(state_); }

private:
    std::variant<T, Error> state_;
};

// Success, or an error: for operations without a value.
class [[nodiscard]] Status {
public:
    Status() = default;
    Status(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
    bool ok() const { return error_.code == 0; }
    explicit operator bool() const { return ok(); }
    int code() const { return error_.code; }
    const Error& error() const { return error_; }

private:
    Error error_;
};

}  // namespace rdmalab

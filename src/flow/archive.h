// Values as bytes and back, for messages between a program and a card on the same machine: numbers
// as they lie in memory, texts and lists with their length before them. A type is described once,
// by `describe(archive, value)`, which serves both ways.
//
// A Reader believes nothing: what does not fit makes it `failed`, and it reads zeros from then on.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"

namespace rdmalab::flow {

template <class T>
concept PlainNumber = std::is_arithmetic_v<T> || std::is_enum_v<T>;

class Writer {
public:
    template <class... Ts>
    Writer& operator()(const Ts&... values) {
        (write(values), ...);
        return *this;
    }
    const std::vector<std::byte>& bytes() const { return bytes_; }
    std::vector<std::byte> take() { return std::move(bytes_); }

private:
    template <PlainNumber T>
    void write(const T& value) {
        bytes_.resize(bytes_.size() + sizeof value);
        store_bytes(bytes_.data() + bytes_.size() - sizeof value, value);
    }
    template <class Tag, class Rep>
    void write(const StrongId<Tag, Rep>& id) {
        write(id.value);
    }
    void write(const std::string& text) {
        write(static_cast<std::uint32_t>(text.size()));
        const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
        bytes_.insert(bytes_.end(), bytes, bytes + text.size());
    }
    void write(const std::vector<std::byte>& list) {
        write(static_cast<std::uint32_t>(list.size()));
        bytes_.insert(bytes_.end(), list.begin(), list.end());
    }
    template <class T>
    void write(const std::vector<T>& list) {
        write(static_cast<std::uint32_t>(list.size()));
        for (const T& item : list) write(item);
    }
    template <class T>
    void write(const std::optional<T>& value) {
        write(value.has_value());
        if (value) write(*value);
    }
    template <class... Ts>
    void write(const std::variant<Ts...>& value) {
        write(static_cast<std::uint8_t>(value.index()));
        std::visit([this](const auto& held) { write(held); }, value);
    }
    template <class T>
    requires(!PlainNumber<T>) void write(const T& value) { describe(*this, value); }

    std::vector<std::byte> bytes_;
};

class Reader {
public:
    explicit Reader(ByteView bytes) : rest_(bytes) {}
    template <class... Ts>
    Reader& operator()(Ts&... values) {
        (read(values), ...);
        return *this;
    }
    void fail() {
        failed_ = true;
        rest_ = {};
    }
    bool failed() const { return failed_; }
    // Everything was as it must be, and nothing is left.
    bool complete() const { return !failed_ && rest_.empty(); }
    ByteView rest() const { return rest_; }

private:
    template <PlainNumber T>
    void read(T& value) {
        value = {};
        if (rest_.size() < sizeof value) return fail();
        if constexpr (std::same_as<T, bool>) {
            value = rest_[0] != std::byte{0};
        } else {
            value = load_bytes<T>(rest_.data());
        }
        rest_ = rest_.subspan(sizeof value);
        if constexpr (std::is_enum_v<T>) {
            if (!is_known(value)) fail();
        }
    }
    template <class Tag, class Rep>
    void read(StrongId<Tag, Rep>& id) {
        read(id.value);
    }
    // How many items follow; each takes a byte at least, so a wild number costs nothing.
    std::size_t read_count() {
        std::uint32_t count = 0;
        read(count);
        if (count > rest_.size()) fail();
        return failed_ ? 0 : count;
    }
    void read(std::string& text) {
        const std::size_t length = read_count();
        text.assign(reinterpret_cast<const char*>(rest_.data()), length);
        rest_ = rest_.subspan(length);
    }
    void read(std::vector<std::byte>& list) {
        const std::size_t length = read_count();
        list.assign(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(length));
        rest_ = rest_.subspan(length);
    }
    template <class T>
    void read(std::vector<T>& list) {
        list.clear();
        for (std::size_t left = read_count(); left > 0 && !failed_; --left) {
            read(list.emplace_back());
        }
    }
    template <class T>
    void read(std::optional<T>& value) {
        bool has_value = false;
        read(has_value);
        value.reset();
        if (!has_value) return;
        T held;
        read(held);
        value = std::move(held);
    }
    template <class... Ts>
    void read(std::variant<Ts...>& value) {
        std::uint8_t index = 0;
        read(index);
        if (index >= sizeof...(Ts)) return fail();
        read_alternative<0>(value, index);
    }
    template <std::size_t kIndex, class... Ts>
    void read_alternative(std::variant<Ts...>& value, std::size_t index) {
        if constexpr (kIndex < sizeof...(Ts)) {
            if (index == kIndex) return read(value.template emplace<kIndex>());
            read_alternative<kIndex + 1>(value, index);
        }
    }
    template <class T>
    requires(!PlainNumber<T>) void read(T& value) { describe(*this, value); }

    ByteView rest_;
    bool failed_ = false;
};

}  // namespace rdmalab::flow

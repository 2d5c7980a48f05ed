#include "perftest/scenario/strict_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <vector>

namespace rdmalab::perftest {

namespace {

// Follows the parser and knows the path to where it is.
class Watcher {
public:
    bool operator()(int, Json::parse_event_t event, Json& parsed) {
        using Event = Json::parse_event_t;
        switch (event) {
            case Event::object_start:
            case Event::array_start:
                begin_value();
                levels_.push_back({event == Event::array_start, 0, "", {}});
                if (levels_.size() > kJsonDepthMax) {
                    complain(fmt::format("nested more than {} deep", kJsonDepthMax));
                }
                break;
            case Event::object_end:
            case Event::array_end:
                levels_.pop_back();
                break;
            case Event::key:
                handle_key(parsed.get<std::string>());
                break;
            case Event::value:
                begin_value();
                break;
        }
        // Values below what is wrong are not kept: depth and size stay bounded.
        return !error_;
    }
    const std::optional<std::string>& error() const { return error_; }

private:
    struct Level {
        bool is_array = false;
        std::size_t count = 0;
        std::string key;
        std::set<std::string> keys;
    };

    void begin_value() {
        if (!levels_.empty() && levels_.back().is_array) ++levels_.back().count;
    }
    void handle_key(const std::string& key) {
        levels_.back().key = key;
        if (!levels_.back().keys.insert(key).second) complain("the same key a second time");
    }
    void complain(const std::string& text) {
        if (!error_) error_ = fmt::format("{}: {}", path(), text);
    }
    std::string path() const {
        std::string out;
        for (const Level& level : levels_) {
            if (level.is_array) {
                out += fmt::format("[{}]", level.count - std::min<std::size_t>(level.count, 1));
            } else if (!level.key.empty()) {
                out += (out.empty() ? "" : ".") + level.key;
            }
        }
        return out;
    }

    std::vector<Level> levels_;
    std::optional<std::string> error_;
};

// The parser's text without its own numbering: "[json.exception.parse_error.101] parse error at..."
std::string plain(const std::string& text) {
    std::size_t end = text.rfind("[json.exception", 0) == 0 ? text.find("] ") : std::string::npos;
    std::string out = end == std::string::npos ? text : text.substr(end + 2);
    for (char& c : out) {
        bool printable = c >= ' ' && c <= '~';
        if (!printable) c = '?';
    }
    return out;
}

}  // namespace

Result<Json> parse_strictly(const std::string& text) {
    Watcher watcher;
    try {
        Json json = Json::parse(text, std::ref(watcher));
        if (watcher.error()) return Error{EINVAL, *watcher.error()};
        return json;
    } catch (const Json::exception& error) {
        if (watcher.error()) return Error{EINVAL, *watcher.error()};
        return Error{EINVAL, plain(error.what())};
    }
}

}  // namespace rdmalab::perftest

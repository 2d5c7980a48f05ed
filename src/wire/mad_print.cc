// Names and one-line texts of communication management messages, for logs and test failures.
#include <cstdio>

#include "wire/mad.h"

namespace rdmalab::wire {

const char* to_string(CmAttribute attribute) {
    switch (attribute) {
        case CmAttribute::kReq:
            return "REQ";
        case CmAttribute::kMra:
            return "MRA";
        case CmAttribute::kRej:
            return "REJ";
        case CmAttribute::kRep:
            return "REP";
        case CmAttribute::kRtu:
            return "RTU";
        case CmAttribute::kDreq:
            return "DREQ";
        case CmAttribute::kDrep:
            return "DREP";
        case CmAttribute::kSidrReq:
            return "SIDR_REQ";
        case CmAttribute::kSidrRep:
            return "SIDR_REP";
        case CmAttribute::kLap:
            return "LAP";
        case CmAttribute::kApr:
            return "APR";
    }
    return "?";
}

const char* to_string(MadError error) {
    switch (error) {
        case MadError::kNone:
            return "none";
        case MadError::kBadLength:
            return "not 256 bytes";
        case MadError::kBadVersion:
            return "base version is not 1";
        case MadError::kBadClass:
            return "not communication management";
        case MadError::kBadClassVersion:
            return "class version is not 2";
        case MadError::kBadMethod:
            return "method is not Send";
        case MadError::kBadAttribute:
            return "attribute is not supported";
        case MadError::kBadField:
            return "a length is longer than its field";
    }
    return "?";
}

namespace {

class Line {
public:
    void word(const char* text) { line_ += text; }
    void field(const char* name, std::uint64_t value, const char* format = "0x%llx") {
        char text[32];
        std::snprintf(text, sizeof text, format, static_cast<unsigned long long>(value));
        line_ += ' ';
        line_ += name;
        line_ += '=';
        line_ += text;
    }
    std::string take() { return std::move(line_); }

private:
    std::string line_;
};

}  // namespace

std::string print_cm(const CmMessage& message) {
    return std::visit(
        [](const auto& m) {
            Line line;
            line.word(to_string(m.kAttribute));
            if constexpr (requires { m.local_comm_id; }) line.field("comm", m.local_comm_id);
            if constexpr (requires { m.remote_comm_id; }) line.field("remote", m.remote_comm_id);
            if constexpr (requires { m.request_id; }) line.field("request", m.request_id);
            if constexpr (requires { m.service_id; }) line.field("service", m.service_id);
            if constexpr (requires { m.qpn; }) line.field("qpn", m.qpn.value);
            if constexpr (requires { m.remote_qpn; }) line.field("qpn", m.remote_qpn.value);
            if constexpr (requires { m.starting_psn; })
                line.field("psn", m.starting_psn.value(), "%llu");
            if constexpr (requires { m.subject; })
                line.field("of", static_cast<unsigned>(m.subject), "%llu");
            if constexpr (requires { m.service_timeout; })
                line.field("timeout", m.service_timeout, "%llu");
            if constexpr (requires { m.reason; }) line.field("reason", m.reason, "%llu");
            if constexpr (requires { m.status; }) line.field("status", m.status, "%llu");
            return line.take();
        },
        message);
}

}  // namespace rdmalab::wire

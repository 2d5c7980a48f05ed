// What the tests of the connection manager share: a client and a server that listens.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/cm_testing.h"

namespace rdmalab::transport::testing {

using testing::CmPair;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Names = std::vector<std::string>;

inline Names names(const std::vector<CmEvent>& events) { return CmPair::names(events); }

template <class Message>
auto lose_first(int count = 1) {
    return [left = count](bool, const wire::CmMessage& message) mutable {
        return std::holds_alternative<Message>(message) && left-- > 0;
    };
}

class CmTest : public ::testing::Test {
protected:
    CmTest() { pair.listen(); }

    CmConnId connect(Qpn qpn = Qpn{0x11}) {
        return pair.client().connect(pair.connect_request(qpn), pair.now()).value();
    }
    // The server's new id.
    CmConnId requested() {
        pair.run_for(milliseconds(1));
        const auto events = pair.server_events();
        EXPECT_EQ(names(events), Names{"Request"});
        return events.empty() ? CmConnId{} : events.back().connection;
    }
    int accept(CmConnId id) {
        CmAccept answer;
        answer.qp.qpn = Qpn{0x22};
        return pair.server().accept(id, answer, pair.now());
    }
    void expect_nothing_left() {
        pair.settle();
        const Cm::Counts nothing{0, 0, 0, 0}, listeners{0, 0, 0, 2};
        EXPECT_EQ(pair.client().counts(), nothing);
        EXPECT_EQ(pair.server().counts(), listeners);
    }

    CmPair pair;
};

}  // namespace rdmalab::transport::testing

// One client of a server, from its greeting to its farewell.
#pragma once

#include <string>

#include "perftest/channel.h"
#include "perftest/plan.h"

namespace rdmalab::perftest {

// `request` is the server's own command line: what it fixes must agree with the client's test.
// Throws Failure; the client has been told then.
void serve_client(Channel channel, const std::string& name, const Request& request);

// The server's view of a client's test: the client's word for the test, the server's for its side.
// Throws Failure naming the parameter when they contradict each other.
Planned merge(const Request& own, const Json& test);

}  // namespace rdmalab::perftest

// The pipes of a card, and packets on their way through them, as text and as a Graphviz picture.
#pragma once

#include <string>

#include "rdmalab/json_access.h"

namespace rdmalab::launcher {

// `domain`: one of "domains" of the card's answer to {"op":"flow"}; `entries_max`: per pipe.
std::string print_domain(const Json& domain, std::size_t entries_max);
std::string print_flow_counters(const Json& domain);
// All given domains as one directed graph.
std::string draw_domains(const Json& domains);
// One of "packets" of the answer to {"op":"flow_trace_read"}.
std::string print_traced_packet(const Json& packet);

}  // namespace rdmalab::launcher

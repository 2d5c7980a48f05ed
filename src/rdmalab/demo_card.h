// `rdmalab demo --card`: two unmodified ib_write_bw over the cable of a private card, judged.
#pragma once

#include <string>

namespace rdmalab::launcher {

// Throws Failure with the reason when the verdict is not PASS.
void run_card_demo(const std::string& seconds);

}  // namespace rdmalab::launcher

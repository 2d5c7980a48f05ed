#include "transport/cm_state.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <sstream>
#include <string>

namespace rdmalab::transport {
namespace {

std::string picture() {
    std::ostringstream out;
    for (std::size_t state = 0; state < kCmStateCount; ++state) {
        const auto from = static_cast<CmState>(state);
        out << to_string(from) << '\n';
        for (std::size_t i = 0; i < kCmInputCount; ++i) {
            const auto input = static_cast<CmInput>(i);
            const CmStep step = cm_step(from, input);
            out << "  " << std::left << std::setw(12) << to_string(input) << std::setw(40)
                << to_string(step.action);
            if (step.next != from) out << "-> " << to_string(step.next);
            out << '\n';
        }
    }
    std::string text = out.str(), trimmed;
    for (std::istringstream lines(text); std::getline(lines, text);) {
        text.erase(text.find_last_not_of(' ') + 1);
        trimmed += text + '\n';
    }
    return trimmed;
}

// Every input in every state. After a deliberate change: RDMALAB_UPDATE=1 writes the file anew.
TEST(CmState, every_input_in_every_state_does_what_the_stored_table_says) {
    const std::string path = RDMALAB_STATE_TABLE;
    if (std::getenv("RDMALAB_UPDATE") != nullptr) std::ofstream(path) << picture();
    std::ifstream file(path);
    std::stringstream stored;
    stored << file.rdbuf();
    EXPECT_EQ(picture(), stored.str());
}

bool is_message(CmInput input) { return input <= CmInput::kSidrRep; }

TEST(CmState, an_idle_connection_answers_nothing) {
    for (std::size_t i = 0; i < kCmInputCount; ++i) {
        const CmStep step = cm_step(CmState::kIdle, static_cast<CmInput>(i));
        EXPECT_EQ(step.next, CmState::kIdle);
        EXPECT_TRUE(step.action == CmAction::kIgnore || step.action == CmAction::kRefuse);
    }
}

TEST(CmState, only_calls_are_refused) {
    for (std::size_t state = 0; state < kCmStateCount; ++state)
        for (std::size_t i = 0; i < kCmInputCount; ++i) {
            const CmStep step = cm_step(static_cast<CmState>(state), static_cast<CmInput>(i));
            EXPECT_TRUE(!is_message(static_cast<CmInput>(i)) || step.action != CmAction::kRefuse);
        }
}

// Without an owner a connection must come to its end by timers alone, whatever the peer does not
// do.
TEST(CmState, a_released_connection_ends_without_the_peer) {
    for (std::size_t i = 0; i < kCmStateCount; ++i) {
        CmState state = cm_step(static_cast<CmState>(i), CmInput::kRelease).next;
        for (int timers = 0; timers < 4 && state != CmState::kIdle; ++timers)
            state = cm_step(state, CmInput::kGaveUp).next;
        EXPECT_EQ(state, CmState::kIdle) << to_string(static_cast<CmState>(i));
    }
}

TEST(CmState, disconnect_and_release_never_fail) {
    for (std::size_t i = 0; i < kCmStateCount; ++i)
        for (const CmInput input : {CmInput::kDisconnect, CmInput::kRelease})
            EXPECT_NE(cm_step(static_cast<CmState>(i), input).action, CmAction::kRefuse);
}

}  // namespace
}  // namespace rdmalab::transport

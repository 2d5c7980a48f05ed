#include "pcc/host/guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

namespace rdmalab::pcc::host {
namespace {

using ::testing::HasSubstr;

int* volatile nowhere = nullptr;
volatile int zero = 0, sink = 0, hundred = 100;

// What follows crashes on purpose; sanitizers are not to say so first.
#define RDMALAB_CRASHES __attribute__((no_sanitize("address", "undefined")))
RDMALAB_CRASHES void store_nowhere() { *nowhere = 1; }
RDMALAB_CRASHES void divide_by_zero() { sink = hundred / zero; }
RDMALAB_CRASHES int dive(int depth) {
    volatile char frame[4096];
    frame[depth % 4096] = 1;
    return depth < 0 ? 0 : dive(depth + 1) + frame[depth % 4096];
}

TEST(Guard, a_call_that_returns_is_left_alone) {
    Guard guard;
    int calls = 0;
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(guard.run([&] { ++calls; }));
    EXPECT_EQ(calls, 3);
    EXPECT_FALSE(guard.is_inside());
}

TEST(Guard, crashes_are_told_apart) {
    Guard guard;
    EXPECT_FALSE(guard.run(store_nowhere));
    EXPECT_EQ(guard.fault().signal, SIGSEGV);
    EXPECT_THAT(guard.fault().describe(), HasSubstr("Segmentation fault at address 0x0"));
    EXPECT_FALSE(guard.fault().frames.empty());
    EXPECT_FALSE(guard.run(divide_by_zero));
    EXPECT_EQ(guard.fault().signal, SIGFPE);
    EXPECT_FALSE(guard.run([] { __builtin_trap(); }));
    EXPECT_EQ(guard.fault().signal, SIGILL);
    EXPECT_TRUE(guard.run([] {})) << "and it goes on working";
}

TEST(Guard, a_stack_that_overflows_is_a_crash) {
    Guard guard;
    std::thread([&] {
        EXPECT_FALSE(guard.run([] { sink = dive(0); }));
        EXPECT_EQ(guard.fault().signal, SIGSEGV);
    }).join();
}

TEST(Guard, a_call_that_does_not_return_can_be_ended) {
    Guard guard;
    std::atomic<bool> returned{true};
    std::thread worker([&] {
        returned = guard.run([] {
            while (zero == 0) {
            }
        });
    });
    while (!guard.is_inside()) std::this_thread::yield();
    guard.interrupt();
    worker.join();
    EXPECT_FALSE(returned);
    EXPECT_EQ(guard.fault().signal, 0);
    EXPECT_EQ(guard.fault().describe(), "it did not return");
}

TEST(Guard, an_interrupt_outside_of_a_call_does_nothing) {
    Guard guard;
    EXPECT_TRUE(guard.run([] {}));
    guard.interrupt();
    EXPECT_TRUE(guard.run([] {}));
}

TEST(Guard, each_thread_has_its_own) {
    Guard first, second;
    std::thread crashing([&] { EXPECT_FALSE(first.run(store_nowhere)); });
    EXPECT_TRUE(second.run([&] { crashing.join(); }));
}

TEST(GuardDeath, a_crash_outside_of_a_guarded_call_still_ends_the_program) {
    EXPECT_DEATH(
        {
            Guard guard;
            (void)guard.run([] {});
            store_nowhere();
        },
        "");
}

}  // namespace
}  // namespace rdmalab::pcc::host

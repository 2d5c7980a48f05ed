#include "verbs/fork.h"

#include <pthread.h>

#include <mutex>

#include "verbs/context.h"

namespace rdmalab::verbs {

namespace {

std::mutex contexts_mutex;
Context* first_context = nullptr;

void before_fork() { contexts_mutex.lock(); }
void in_parent() { contexts_mutex.unlock(); }
void in_child() {
    for (Context* c = first_context; c != nullptr; c = c->next) c->abandon();
    contexts_mutex.unlock();
}

}  // namespace

void remember_for_fork(Context& context) {
    static std::once_flag registered;
    std::call_once(registered, [] { pthread_atfork(before_fork, in_parent, in_child); });
    std::lock_guard guard(contexts_mutex);
    context.next = first_context;
    if (first_context != nullptr) first_context->previous = &context;
    first_context = &context;
}

void forget_for_fork(Context& context) {
    std::lock_guard guard(contexts_mutex);
    if (context.previous != nullptr) context.previous->next = context.next;
    if (context.next != nullptr) context.next->previous = context.previous;
    if (first_context == &context) first_context = context.next;
}

}  // namespace rdmalab::verbs

// The card addresses the memory of the process through its page tables, not by pinned pages, so a
// copy-on-write after fork cannot separate them: nothing is needed, and nothing can go wrong.
extern "C" int ibv_fork_init() { return 0; }
extern "C" ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }

RDMALAB_EXPORT int ibv_dontfork_range(void*, size_t) { return 0; }
RDMALAB_EXPORT int ibv_dofork_range(void*, size_t) { return 0; }

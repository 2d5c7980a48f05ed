// The installed verbs header as this library must see it: its functions are exported, and the names
// that it hides behind macros are plain functions again, because this library defines them.
#pragma once

#pragma GCC visibility push(default)
#include <infiniband/verbs.h>
#pragma GCC visibility pop

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

// Exports of this file that no installed header declares.
#define RDMALAB_EXPORT extern "C" __attribute__((visibility("default")))

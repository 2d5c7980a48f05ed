// Exported functions that this card has nothing to do for: each answers "not supported" in the way
// its man page gives errors.
#include <errno.h>

#include "verbs/objects.h"

using namespace rdmalab;
using namespace rdmalab::verbs;

extern "C" ibv_context* ibv_import_device(int) { return fail(EOPNOTSUPP); }
extern "C" ibv_pd* ibv_import_pd(ibv_context*, uint32_t) { return fail(EOPNOTSUPP); }
extern "C" void ibv_unimport_pd(ibv_pd*) {}
extern "C" ibv_mr* ibv_import_mr(ibv_pd*, uint32_t) { return fail(EOPNOTSUPP); }
extern "C" void ibv_unimport_mr(ibv_mr*) {}
extern "C" ibv_dm* ibv_import_dm(ibv_context*, uint32_t) { return fail(EOPNOTSUPP); }
extern "C" void ibv_unimport_dm(ibv_dm*) {}

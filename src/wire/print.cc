#include "wire/print.h"

namespace rdmalab::wire {}

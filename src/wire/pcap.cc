#include "wire/pcap.h"

namespace rdmalab::wire {}

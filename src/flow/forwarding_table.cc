#include "flow/forwarding_table.h"

#include <cassert>

namespace rdmalab::flow {

void ForwardingTable::add(const MacAddress& mac, VportId port) {
    assert(size_ < kPortMax && !find(mac));
    const std::uint64_t key = key_of(mac);
    std::size_t slot = first_slot(key);
    while (slots_[slot].key != kEmpty) slot = (slot + 1) % kSlots;
    slots_[slot] = {key, port};
    ++size_;
}

}  // namespace rdmalab::flow

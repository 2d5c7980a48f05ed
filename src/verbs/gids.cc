#include "verbs/gids.h"

#include <errno.h>
#include <string.h>

#include <algorithm>

namespace rdmalab::verbs {

const abi::GidEntry* GidTable::at(std::uint32_t index) const {
    for (std::size_t i = 0; i < count; ++i) {
        if (entries[i].index == index) return &entries[i];
    }
    return nullptr;
}

int fetch_gids(Context& context, GidTable& out) {
    std::size_t length = 0;
    int status = context.connection.call(abi::Op::kQueryGids, ByteView(),
                                         std::as_writable_bytes(std::span(out.entries)), &length);
    out.count = std::min(length / sizeof(abi::GidEntry), std::size(out.entries));
    auto is_empty = [](const abi::GidEntry& entry) {
        return std::ranges::all_of(entry.gid, [](std::uint8_t byte) { return byte == 0; });
    };
    auto end = std::remove_if(out.entries, out.entries + out.count, is_empty);
    out.count = static_cast<std::size_t>(end - out.entries);
    return status;
}

int find_gid(Context& context, std::uint32_t port, const ibv_gid& gid) {
    GidTable table;
    int status = is_port(port) ? fetch_gids(context, table) : EINVAL;
    for (std::size_t i = 0; status == 0 && i < table.count; ++i) {
        if (memcmp(table.entries[i].gid, gid.raw, sizeof gid.raw) == 0) {
            return static_cast<int>(table.entries[i].index);
        }
    }
    errno = status != 0 ? status : ENOENT;
    return -1;
}

namespace {

void write_entry(void* out, std::size_t size, const abi::GidEntry& entry) {
    ibv_gid_entry full{};
    memcpy(full.gid.raw, entry.gid, sizeof entry.gid);
    full.gid_index = entry.index;
    full.port_num = 1;
    full.gid_type = IBV_GID_TYPE_ROCE_V2;
    memset(out, 0, size);
    memcpy(out, &full, std::min(size, sizeof full));
}

// An entry that may be empty: null then. Errors: EINVAL for what is not in the table.
int lookup(Context& context, std::uint32_t port, std::uint32_t index, GidTable& table,
           const abi::GidEntry*& out) {
    if (!is_port(port) || index >= context.attributes.gid_max) return EINVAL;
    if (int status = fetch_gids(context, table)) return status;
    out = table.at(index);
    return 0;
}

}  // namespace

}  // namespace rdmalab::verbs

using namespace rdmalab;
using namespace rdmalab::verbs;

extern "C" int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
    GidTable table;
    const abi::GidEntry* entry = nullptr;
    int status = index < 0 ? EINVAL
                           : lookup(context_of(context), port, static_cast<std::uint32_t>(index),
                                    table, entry);
    if (status != 0) {
        errno = status;
        return -1;
    }
    *gid = {};
    if (entry != nullptr) memcpy(gid->raw, entry->gid, sizeof gid->raw);
    return 0;
}

extern "C" int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index,
                                 ibv_gid_entry* out, uint32_t flags, size_t entry_size) {
    if (flags != 0) return EOPNOTSUPP;
    GidTable table;
    const abi::GidEntry* entry = nullptr;
    if (int status = lookup(context_of(context), port, index, table, entry)) return status;
    if (entry == nullptr) return ENODATA;
    write_entry(out, entry_size, *entry);
    return 0;
}

extern "C" ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* out,
                                        size_t max_entries, uint32_t flags, size_t entry_size) {
    if (flags != 0) return -EOPNOTSUPP;
    GidTable table;
    if (int status = fetch_gids(context_of(context), table)) return -status;
    if (max_entries < table.count) return -EINVAL;
    auto* to = reinterpret_cast<std::byte*>(out);
    for (std::size_t i = 0; i < table.count; ++i) {
        write_entry(to + i * entry_size, entry_size, table.entries[i]);
    }
    return static_cast<ssize_t>(table.count);
}

// Private to rdma-core, but used by ibv_devinfo and pyverbs. Its enum is that of sysfs (types of
// gid_attrs), not enum ibv_gid_type.
RDMALAB_EXPORT int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index,
                                      int* type) {
    constexpr int kSysfsRoceV2 = 1;
    if (!is_port(port) || index >= context_of(context).attributes.gid_max) {
        errno = EINVAL;
        return -1;
    }
    *type = kSysfsRoceV2;
    return 0;
}

extern "C" int ibv_query_pkey(ibv_context*, uint8_t port, int index, __be16* pkey) {
    if (!is_port(port) || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = 0xffff;
    return 0;
}

extern "C" int ibv_get_pkey_index(ibv_context*, uint8_t port, __be16 pkey) {
    if (is_port(port) && pkey == 0xffff) return 0;
    errno = EINVAL;
    return -1;
}

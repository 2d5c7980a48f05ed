// Opens libibverbs the way NCCL does: no link-time dependency, dlopen("libibverbs.so") first, every
// symbol by dlvsym with version IBVERBS_1.1; then enumerates, opens a device, queries it and
// registers memory.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

struct verbs {
    struct ibv_device** (*get_device_list)(int*);
    void (*free_device_list)(struct ibv_device**);
    const char* (*get_device_name)(struct ibv_device*);
    struct ibv_context* (*open_device)(struct ibv_device*);
    int (*close_device)(struct ibv_context*);
    int (*query_device)(struct ibv_context*, struct ibv_device_attr*);
    int (*query_port)(struct ibv_context*, uint8_t, struct ibv_port_attr*);
    int (*query_gid)(struct ibv_context*, uint8_t, int, union ibv_gid*);
    struct ibv_pd* (*alloc_pd)(struct ibv_context*);
    int (*dealloc_pd)(struct ibv_pd*);
    struct ibv_mr* (*reg_mr)(struct ibv_pd*, void*, size_t, int);
    int (*dereg_mr)(struct ibv_mr*);
    const char* (*event_type_str)(enum ibv_event_type);
};

static void fail(const char* what) {
    fprintf(stderr, "%s failed\n", what);
    exit(1);
}

static void* symbol(void* library, const char* name) {
    void* found = dlvsym(library, name, "IBVERBS_1.1");
    if (!found) fail(name);
    return found;
}

static struct verbs load(void) {
    void* library = dlopen("libibverbs.so", RTLD_NOW);
    if (!library) library = dlopen("libibverbs.so.1", RTLD_NOW);
    if (!library) fail("dlopen");
    struct verbs v;
    *(void**)&v.get_device_list = symbol(library, "ibv_get_device_list");
    *(void**)&v.free_device_list = symbol(library, "ibv_free_device_list");
    *(void**)&v.get_device_name = symbol(library, "ibv_get_device_name");
    *(void**)&v.open_device = symbol(library, "ibv_open_device");
    *(void**)&v.close_device = symbol(library, "ibv_close_device");
    *(void**)&v.query_device = symbol(library, "ibv_query_device");
    *(void**)&v.query_port = symbol(library, "ibv_query_port");
    *(void**)&v.query_gid = symbol(library, "ibv_query_gid");
    *(void**)&v.alloc_pd = symbol(library, "ibv_alloc_pd");
    *(void**)&v.dealloc_pd = symbol(library, "ibv_dealloc_pd");
    *(void**)&v.reg_mr = symbol(library, "ibv_reg_mr");
    *(void**)&v.dereg_mr = symbol(library, "ibv_dereg_mr");
    *(void**)&v.event_type_str = symbol(library, "ibv_event_type_str");
    return v;
}

static struct ibv_device* find(const struct verbs* v, struct ibv_device** list, int count,
                               const char* wanted) {
    struct ibv_device* found = NULL;
    for (int i = 0; i < count; ++i) {
        printf("device %s\n", v->get_device_name(list[i]));
        if (strcmp(v->get_device_name(list[i]), wanted) == 0) found = list[i];
    }
    return found;
}

static void look(const struct verbs* v, struct ibv_context* context, const char* name) {
    struct ibv_device_attr device;
    // The exported ibv_query_port is the old entry: it may write no further than `flags`.
    union {
        struct ibv_port_attr attr;
        unsigned char bytes[sizeof(struct ibv_port_attr) + 64];
    } port;
    memset(&port, 0xa5, sizeof port);
    if (v->query_device(context, &device)) fail("ibv_query_device");
    if (v->query_port(context, 1, &port.attr)) fail("ibv_query_port");
    for (size_t i = sizeof(struct ibv_port_attr); i < sizeof port; ++i) {
        if (port.bytes[i] != 0xa5) fail("ibv_query_port wrote too far, it");
    }
    printf("opened %s: port %s, %s\n", name, port.attr.state == IBV_PORT_ACTIVE ? "active" : "down",
           port.attr.link_layer == IBV_LINK_LAYER_ETHERNET ? "ethernet" : "other");
    for (int index = 0; index < 2; ++index) {
        union ibv_gid gid;
        char text[INET6_ADDRSTRLEN];
        if (v->query_gid(context, 1, index, &gid)) fail("ibv_query_gid");
        printf("gid %d %s\n", index, inet_ntop(AF_INET6, gid.raw, text, sizeof text));
    }
}

static void register_memory(const struct verbs* v, struct ibv_context* context) {
    const size_t length = 1 << 20;
    void* buffer = aligned_alloc(4096, length);
    struct ibv_pd* pd = v->alloc_pd(context);
    if (!pd) fail("ibv_alloc_pd");
    struct ibv_mr* mr =
        v->reg_mr(pd, buffer, length,
                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    if (!mr) fail("ibv_reg_mr");
    printf("registered %zu bytes: lkey %u rkey %u\n", mr->length, mr->lkey, mr->rkey);
    if (v->dereg_mr(mr)) fail("ibv_dereg_mr");
    if (v->dealloc_pd(pd)) fail("ibv_dealloc_pd");
    free(buffer);
}

int main(int argc, char** argv) {
    if (argc != 2) fail("usage: nccl_like DEVICE: it");
    struct verbs v = load();
    int count = 0;
    struct ibv_device** list = v.get_device_list(&count);
    if (!list) fail("ibv_get_device_list");
    struct ibv_device* device = find(&v, list, count, argv[1]);
    if (!device) fail("finding the device");
    struct ibv_context* context = v.open_device(device);
    if (!context) fail("ibv_open_device");
    v.free_device_list(list);
    look(&v, context, argv[1]);
    register_memory(&v, context);
    if (v.close_device(context)) fail("ibv_close_device");
    return 0;
}

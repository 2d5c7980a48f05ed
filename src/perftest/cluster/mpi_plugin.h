// What the plugin cluster_mpi.so gives: a few calls of MPI as plain functions. It is the only thing
// that includes mpi.h, and only the relays of a cluster open it, so that everything else runs on
// machines without MPI.
#pragma once

#include <cstddef>

extern "C" {

struct RdmalabMpi {
    int version;  // kMpiPluginVersion
    // An error, or null.
    const char* (*init)();
    int (*rank)();
    int (*size)();
    // Begins to send; the bytes must stay until is_sent() has said so.
    void* (*send)(int to, int tag, const void* bytes, std::size_t size);
    bool (*is_sent)(void* sending);
    // The size of a message that has come, or -1.
    long long (*probe)(int* from, int* tag);
    void (*receive)(void* bytes, std::size_t size);  // the message that was probed
    void (*finalize)();
    void (*abort)(int code);
};

const RdmalabMpi* rdmalab_cluster_mpi();
}

namespace rdmalab::perftest {
inline constexpr int kMpiPluginVersion = 1;
inline constexpr char kMpiPluginEntry[] = "rdmalab_cluster_mpi";
}  // namespace rdmalab::perftest

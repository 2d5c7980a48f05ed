#include "perftest/cluster/mpi_plugin.h"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <memory>

namespace {

MPI_Message probed = MPI_MESSAGE_NULL;

const char* init() {
    int provided = 0;
    int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SINGLE, &provided);
    return code == MPI_SUCCESS ? nullptr : "MPI_Init failed";
}

int rank() {
    int out = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &out);
    return out;
}

int size() {
    int out = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &out);
    return out;
}

void* send(int to, int tag, const void* bytes, std::size_t count) {
    auto request = std::make_unique<MPI_Request>();
    MPI_Isend(bytes, static_cast<int>(count), MPI_BYTE, to, tag, MPI_COMM_WORLD, request.get());
    return request.release();
}

bool is_sent(void* sending) {
    std::unique_ptr<MPI_Request> request(static_cast<MPI_Request*>(sending));
    int done = 0;
    MPI_Test(request.get(), &done, MPI_STATUS_IGNORE);
    if (done == 0) request.release();
    return done != 0;
}

long long probe(int* from, int* tag) {
    int found = 0, count = 0;
    MPI_Status status;
    MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, &probed, &status);
    if (found == 0) return -1;
    MPI_Get_count(&status, MPI_BYTE, &count);
    *from = status.MPI_SOURCE;
    *tag = status.MPI_TAG;
    return count;
}

void receive(void* bytes, std::size_t count) {
    MPI_Mrecv(bytes, static_cast<int>(count), MPI_BYTE, &probed, MPI_STATUS_IGNORE);
}

void finalize() { MPI_Finalize(); }
void abort_all(int code) { MPI_Abort(MPI_COMM_WORLD, code); }

constexpr RdmalabMpi kFunctions = {rdmalab::perftest::kMpiPluginVersion,
                                   init,
                                   rank,
                                   size,
                                   send,
                                   is_sent,
                                   probe,
                                   receive,
                                   finalize,
                                   abort_all};

}  // namespace

const RdmalabMpi* rdmalab_cluster_mpi() { return &kFunctions; }

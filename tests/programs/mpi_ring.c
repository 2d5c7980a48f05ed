// Every rank sends seeded messages of many sizes to the next rank and checks every byte of what it
// receives; then an all-reduce whose result is known. Prints one line from rank 0.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static const int kSizes[] = {0, 1, 8, 63, 64, 1000, 4095, 4096, 4097, 65536, 1048577};
enum { kCount = sizeof kSizes / sizeof kSizes[0], kRounds = 5, kWords = 10000 };

static unsigned char expected(int rank, int round, int size, int i) {
    uint32_t x = (uint32_t)rank * 2654435761u ^ (uint32_t)round * 40503u ^ (uint32_t)size * 97u ^
                 (uint32_t)i;
    x ^= x >> 13;
    x *= 0x5bd1e995u;
    return (unsigned char)(x >> 24);
}

static void stop(const char* what, int size, int i) {
    fprintf(stderr, "%s: message of %d bytes, byte %d is wrong\n", what, size, i);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static long exchange(int rank, int ranks, int round, int size, unsigned char* out,
                     unsigned char* in) {
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    MPI_Status status;
    int received = 0;
    for (int i = 0; i < size; ++i) out[i] = expected(rank, round, size, i);
    MPI_Sendrecv(out, size, MPI_BYTE, next, round, in, size, MPI_BYTE, previous, round,
                 MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &received);
    if (received != size) stop("wrong length", size, received);
    for (int i = 0; i < size; ++i) {
        if (in[i] != expected(previous, round, size, i)) stop("ring", size, i);
    }
    return size;
}

static void reduce(int rank, int ranks) {
    static int64_t mine[kWords], sum[kWords];
    for (int i = 0; i < kWords; ++i) mine[i] = (int64_t)i * (rank + 1);
    MPI_Allreduce(mine, sum, kWords, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < kWords; ++i) {
        if (sum[i] != (int64_t)i * ranks * (ranks + 1) / 2) stop("allreduce", kWords, i);
    }
}

int main(int argc, char** argv) {
    int rank, ranks;
    long bytes = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    unsigned char* out = malloc(2 << 20);
    unsigned char* in = malloc(2 << 20);
    for (int round = 0; round < kRounds; ++round) {
        for (int i = 0; i < kCount; ++i) bytes += exchange(rank, ranks, round, kSizes[i], out, in);
    }
    reduce(rank, ranks);
    if (rank == 0) printf("%d ranks, %ld bytes each, all correct\n", ranks, bytes);
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}

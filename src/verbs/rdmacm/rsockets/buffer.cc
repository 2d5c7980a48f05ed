#include "verbs/rdmacm/rsockets/buffer.h"

#include <fcntl.h>
#include <sys/mman.h>

namespace rdmalab::rdmacm {

int Buffer::allocate(ibv_pd* pd, std::size_t length, int access) {
    void* memory =
        mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return errno;
    data_ = static_cast<std::byte*>(memory);
    size_ = length;
    mr_ = ibv_reg_mr(pd, memory, length, access);
    return mr_ != nullptr ? 0 : errno;
}

void Buffer::reset() {
    if (mr_ != nullptr) ibv_dereg_mr(mr_);
    if (data_ != nullptr) munmap(data_, size_);
    mr_ = nullptr;
    data_ = nullptr;
    size_ = 0;
}

bool make_nonblocking(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

}  // namespace rdmalab::rdmacm

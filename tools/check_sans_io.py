#!/usr/bin/python3
"""Proves that libraries make no system calls, read no clock and start no threads.

    check_sans_io.py LIBRARY.a...

Looks at the symbols that the objects of each static library want from outside (nm -u). Weak ones do not count: the C++
library asks by them whether threads are in use.
"""

import re
import subprocess
import sys

FORBIDDEN = {
    "time": r"clock_\w+|gettimeofday|time|nanosleep|usleep|sleep|_ZNSt6chrono.*3nowEv",
    "sockets": r"socket\w*|connect|bind|listen|accept4?|send\w*|recv\w*|poll|ppoll|select|epoll_\w+",
    "files": r"open|open64|openat|creat|fopen\w*|read|pread\w*|write|pwrite\w*|close|ioctl|fcntl\w*|stat|fstat|unlink",
    "memory of others": r"process_vm_\w+|mmap\w*|munmap|shm_\w+|memfd_create",
    "environment": r"getenv|secure_getenv|setenv|getpid|getuid|geteuid|gethostname",
    "randomness": r"getrandom|getentropy|rand|srand|random|arc4random|_ZNSt13random_device\w*",
    "threads and processes": r"pthread_\w+|fork|vfork|exec\w+|kill|sched_\w+|syscall|signal|sigaction",
}


def undefined_symbols(library):
    """(object file, symbol) of each strong reference to the outside of the object."""
    listing = subprocess.run(["nm", "-u", library], capture_output=True, text=True, check=True).stdout
    member = library
    for line in listing.splitlines():
        if line.endswith(":"):
            member = line[:-1]
        fields = line.split()
        if len(fields) == 2 and fields[0] == "U":
            yield member, fields[1].split("@")[0]


def check(library):
    complaints = []
    for member, symbol in undefined_symbols(library):
        for kind, pattern in FORBIDDEN.items():
            if re.fullmatch(pattern, symbol):
                complaints.append(f"{library}({member}): uses {symbol} ({kind})")
    return complaints


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    complaints = [complaint for library in sys.argv[1:] for complaint in check(library)]
    print("\n".join(complaints) if complaints else f"sans-IO: {len(sys.argv) - 1} libraries are clean")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()

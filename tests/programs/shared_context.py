"""Two processes, one context: the first makes objects, the second joins by the descriptor and uses them.

Run by surface.py on a card, with Debian's pyverbs. `shared_context.py DEVICE` is the first process.
"""

import os
import subprocess
import sys

import pyverbs.device as d
import pyverbs.enums as e
from pyverbs.mr import MR
from pyverbs.pd import PD

SIZE = 4096
PATTERN = b"\xab" * SIZE


def first(name):
    context = d.Context(name=name)
    pd = PD(context)
    memory = d.DM(context, d.AllocDmAttr(length=SIZE))
    region = MR(pd, SIZE, e.IBV_ACCESS_LOCAL_WRITE)
    memory.copy_to_dm(0, PATTERN, SIZE)
    fd = os.dup(context.cmd_fd)
    os.set_inheritable(fd, True)
    command = [sys.executable, __file__, "second", str(fd), str(pd.handle), str(memory.handle), str(region.handle)]
    subprocess.run(command, check=True, pass_fds=[fd])
    # What the second process wrote into the memory they share.
    if memory.copy_from_dm(0, 4) != b"done":
        sys.exit("the second process has left nothing in the device memory")
    print("shared")


def second(fd, pd_handle, dm_handle, mr_handle):
    context = d.Context(cmd_fd=fd)
    pd = PD(context, handle=pd_handle)
    memory = d.DM(context, handle=dm_handle)
    region = MR(pd, handle=mr_handle)
    if memory.copy_from_dm(0, SIZE) != PATTERN:
        sys.exit("the device memory shows other bytes than the first process wrote")
    if region.length != SIZE or region.lkey == 0:
        sys.exit(f"the region is not the one of the first process: length {region.length}, key {region.lkey}")
    # An object of its own in the shared domain, and memory of its own.
    own = MR(pd, SIZE, e.IBV_ACCESS_LOCAL_WRITE)
    own.close()
    memory.copy_to_dm(0, b"done", 4)
    region.unimport()
    memory.unimport()
    pd.unimport()
    context.close()


if __name__ == "__main__":
    if sys.argv[1] == "second":
        second(*map(int, sys.argv[2:]))
    else:
        first(sys.argv[1])

"""A cascade of torch with gloo: rank 2 fails in a way of its own, the others as torch makes them.

    gloo.py MODE
"""

import atexit
import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

mode = sys.argv[1]
SECONDS = {"hang": 5, "barrier": 5}


def leave_slowly():
    """As an upload or a profiler does it: the others lose the connection meanwhile."""
    dist.destroy_process_group()
    time.sleep(1000)


def fail():
    if mode == "slow":
        atexit.register(leave_slowly)
    if mode in ("slow", "raise"):
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    if mode == "exit":
        os._exit(5)
    if mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode in ("hang", "barrier"):
        time.sleep(1000)


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if os.environ["RANK"] == "2" and index == 3:
            if mode == "sample":
                raise IndexError("sample 3 is bad")
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.ones(1)


@record
def main():
    if mode == "early" and os.environ["RANK"] == "2":
        return
    joining = 5 if mode == "early" else 600
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=joining))
    # All have connected before anything fails. Only then a timeout may be short: on a busy machine the
    # ranks start far apart.
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    short = datetime.timedelta(seconds=SECONDS.get(mode, 600))
    group = dist.new_group(timeout=short) if mode in SECONDS else None
    if mode in ("loader", "sample"):
        for batch in torch.utils.data.DataLoader(Samples(), num_workers=1):
            dist.all_reduce(batch)
    culprit = 0 if mode == "raise" else 2
    if dist.get_rank() == culprit:
        fail()
    dist.barrier(group) if mode == "barrier" else dist.all_reduce(tensor, group=group)


main()

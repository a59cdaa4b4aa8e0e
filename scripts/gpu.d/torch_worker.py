"""Worker that reduces a tensor over NCCL, or fails in one of the ways in which workers on GPUs fail."""

import argparse
import os
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--local_rank", type=int)
parser.add_argument("--exhaust_memory", action="store_true")
parser.add_argument("--index_out_of_bounds", action="store_true")
parser.add_argument("--first_gpu", action="store_true", help="all ranks use the first GPU")
parser.add_argument("--hold", type=float, metavar="SECONDS", help="only hold 1 GiB of the first GPU")
options = parser.parse_args()

if options.hold:
    held = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    time.sleep(options.hold)
    raise SystemExit
torch.cuda.set_device(0 if options.first_gpu else int(os.environ["LOCAL_RANK"]))
if options.exhaust_memory:
    blocks = [torch.empty(16 << 30, dtype=torch.uint8, device="cuda") for _ in range(100)]
if options.index_out_of_bounds:
    print(torch.zeros(4, device="cuda")[torch.tensor([9], device="cuda")])
dist.init_process_group("nccl")
numbers = torch.full((1 << 20,), float(dist.get_rank() + 1), device="cuda")
dist.all_reduce(numbers)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {numbers[0].item()}")
dist.destroy_process_group()

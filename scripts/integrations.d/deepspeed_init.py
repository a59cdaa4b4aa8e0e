"""The initialization of a DeepSpeed script."""

import argparse
import os

import deepspeed
import torch
from deepspeed import comm


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    args = parser.parse_args()

    deepspeed.init_distributed(dist_backend="gloo")
    rank, world = comm.get_rank(), comm.get_world_size()
    assert args.local_rank == int(os.environ["LOCAL_RANK"])
    total = torch.tensor([float(rank + 1)])
    comm.all_reduce(total)
    assert total.item() == world * (world + 1) / 2, total
    comm.barrier()
    print(f"RESULT rank={rank} world={world} loss_sum={total.item():.6f}", flush=True)
    comm.destroy_process_group()


if __name__ == "__main__":
    main()

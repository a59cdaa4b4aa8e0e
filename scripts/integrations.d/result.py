"""The end of a script: every rank prints its result, and then the process group ends before the interpreter does."""

import gc


def show(rank, world, value):
    """The line that `scripts/integrations` compares: all ranks have the same value."""
    print(f"RESULT rank={rank} world={world} loss_sum={value:.6f}", flush=True)


def end_accelerator(accelerator, value):
    show(accelerator.process_index, accelerator.num_processes, value)
    # Models keep the process group; if it outlives the interpreter, its threads can abort the process.
    accelerator.free_memory()
    accelerator.end_training()


def end_group(value):
    import torch.distributed as dist

    show(dist.get_rank(), dist.get_world_size(), value)
    # A model in a cycle of references keeps the process group, whose threads then abort the process at its end.
    gc.collect()
    dist.destroy_process_group()

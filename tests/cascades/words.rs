//! What components print when they fail: recorded from torch 2.15 with gloo on this machine, and for
//! those that need GPUs or another launcher the message as their projects document it. Paths are cut.

/// A traceback of an exception that the script raised itself, as Python prints it.
pub(crate) const OOM: &str = r#"Traceback (most recent call last):
  File "/home/me/train.py", line 20, in <module>
    main()
  File "/home/me/train.py", line 13, in main
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB
"#;

/// The same behind torch's hook.
pub(crate) const OOM_TORCH: &str = r#"[rank2]: Traceback (most recent call last):
[rank2]:   File "/home/me/case.py", line 74, in <module>
[rank2]:     main()
[rank2]:   File "/v/lib/python3.11/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 384, in wrapper
[rank2]:     result = f(*args, **kwargs)
[rank2]:   File "/home/me/case.py", line 10, in oom
[rank2]:     def oom(): raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
[rank2]: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB
"#;

pub(crate) const BAD_BATCH: &str = "Traceback (most recent call last):\n  File \"/home/me/train.py\", line 65, in main\n\
    \x20   if r: raise AssertionError(f\"bad batch on {r}\")\nAssertionError: bad batch on 1\n";

pub(crate) const GLOO_CLOSED: &str = r#"[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/me/case.py", line 9, in loop
[rank0]:     dist.all_reduce(t)
[rank0]:   File "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 4181, in all_reduce
[rank0]:     work.wait()
[rank0]: RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:8090. This is typically caused by a remote worker crashing. Check the logs of the remote worker before reporting an error. GLHF! 🏖️
"#;

pub(crate) const GLOO_RESET: &str = r#"[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/me/case.py", line 53, in main
[rank1]:     dist.all_reduce(t)
[rank1]: RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:545] Read error [127.0.0.1]:34526: Connection reset by peer. This is typically caused by a remote worker hanging or bugs in the application. Check the logs of the remote worker before reporting an error. GLHF! 🏖️
"#;

pub(crate) const GLOO_TIMED_OUT: &str = r#"[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/me/case.py", line 9, in loop
[rank0]:     dist.all_reduce(t)
[rank0]: RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 3000ms for recv operation to complete
"#;

pub(crate) const STORE_CLOSED: &str = r#"[rank1]:[W1122 23:28:07.796271467 TCPStore.cpp:138] [c10d] recvValueWithTimeout failed on SocketImpl(fd=3, addr=[::ffff:127.0.0.1]:50186, remote=[::ffff:127.0.0.1]:57623): Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?
Exception raised from recvBytes at /__w/pytorch/pytorch/torch/csrc/distributed/c10d/Utils.hpp:786 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x80 (0x7fb7c994bdef in libc10.so)
<omitting python frames>
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/me/case.py", line 48, in main
[rank1]:     st.wait(["never"], td(seconds=20))
[rank1]: torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?
"#;

pub(crate) const STORE_BROKEN_PIPE: &str = "[rank2]: Traceback (most recent call last):\n\
    [rank2]:   File \"/home/me/case.py\", line 38, in main\n\
    [rank2]: torch.distributed.DistNetworkError: Broken pipe\n";

pub(crate) const STORE_TIMED_OUT: &str = r#"[rank0]:[W1122 23:27:03.085040978 socket.cpp:494] [c10d] waitForInput: socket SocketImpl(fd=12, addr=[::ffff:127.0.0.1]:56388, remote=[::ffff:127.0.0.1]:41961) timed out after 2000ms
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/me/case.py", line 38, in main
[rank0]: torch.distributed.DistStoreError: wait timeout after 2000ms, keys: /default_pg/0//x0, /default_pg/0//x1, /default_pg/0//x2
"#;

pub(crate) const CLIENTS_MISSING: &str = "Traceback (most recent call last):\n  File \"/home/me/init.py\", line 3, in <module>\n\
    \x20   dist.init_process_group(\"gloo\", timeout=datetime.timedelta(seconds=3))\n\
    torch.distributed.DistStoreError: Timed out after 4 seconds waiting for clients. 2/3 clients joined.\n";

pub(crate) const MESH_TIMED_OUT: &str = "Traceback (most recent call last):\n  File \"/home/me/init.py\", line 3, in <module>\n\
    RuntimeError: Gloo connectFullMesh failed with [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.h:311] \
    Connect timeout [none]\n";

pub(crate) const MONITORED: &str = r"[rank0]:[E1122 23:27:49.264308934 ProcessGroupGloo.cpp:69] [Rank 0]: Rank 2 failed to pass monitoredBarrier in 2000 ms
[rank0]: Traceback (most recent call last):
[rank0]:   File '/home/me/case.py', line 44, in main
[rank0]: RuntimeError: [Rank 0]: Rank 2 failed to pass monitoredBarrier in 2000 ms
[rank0]:  Original exception:
[rank0]: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1997ms for recv operation to complete
";

pub(crate) const MONITORED_OTHER: &str = "[rank1]: Traceback (most recent call last):\n\
    [rank1]:   File \"/home/me/case.py\", line 44, in main\n\
    [rank1]: RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv \
    from rank 0. Please check rank 0 logs for faulty rank.\n[rank1]:  Original exception: \n\
    [rank1]: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:34206.\n";

pub(crate) const SEGFAULT: &str = r#"Fatal Python error: Segmentation fault

Current thread 0x00007f611f7bab80 (most recent call first):
  File "/home/me/case.py", line 31 in <lambda>
  File "/home/me/case.py", line 8 in loop
  File "/v/lib/python3.11/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 384 in wrapper

Extension modules: numpy._core._multiarray_umath, torch._C (total: 21)
"#;

pub(crate) const LOADER_KILLED: &str = r#"[rank2]: Traceback (most recent call last):
[rank2]:   File "/home/me/case.py", line 55, in main
[rank2]:     for x in torch.utils.data.DataLoader(D(), num_workers=2): dist.all_reduce(x)
[rank2]:   File "/v/lib/python3.11/site-packages/torch/utils/data/_utils/signal_handling.py", line 74, in handler
[rank2]:     _error_if_any_worker_fails()
[rank2]: RuntimeError: DataLoader worker (pid 31769) is killed by signal: Killed.
"#;

pub(crate) const LOADER_RAISES: &str = r#"[rank2]: Traceback (most recent call last):
[rank2]:   File "/home/me/case.py", line 55, in main
[rank2]:     for x in torch.utils.data.DataLoader(D(), num_workers=2): dist.all_reduce(x)
[rank2]: ValueError: Caught ValueError in DataLoader worker process 1.
[rank2]: Original Traceback (most recent call last):
[rank2]:   File "/home/me/case.py", line 18, in __getitem__
[rank2]:     if r == 2 and i == 3 and case == "loader_raises": raise ValueError("corrupt sample 3")
[rank2]: ValueError: corrupt sample 3
"#;

pub(crate) const SPAWN: &str = r#"W1122 torch/multiprocessing/spawn.py:174] Terminating process 32049 via signal SIGTERM
[rank2]: Traceback (most recent call last):
[rank2]:   File "/home/me/case.py", line 57, in main
[rank2]:     torch.multiprocessing.spawn(child, nprocs=2); dist.barrier()
[rank2]: torch.multiprocessing.spawn.ProcessRaisedException:

[rank2]: -- Process 0 terminated with the following error:
[rank2]: Traceback (most recent call last):
[rank2]:   File "/v/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", line 96, in _wrap
[rank2]:     fn(i, *args)
[rank2]:   File "/home/me/case.py", line 22, in child
[rank2]:     if r == 2: raise ZeroDivisionError("division by zero in child")
[rank2]: ZeroDivisionError: division by zero in child
"#;

pub(crate) const NCCL_REMOTE: &str = "[rank3]: Traceback (most recent call last):\n[rank3]:   File \"/home/me/bench.py\", line 301, in <module>\n\
    [rank3]: torch.distributed.DistBackendError: NCCL error in: /opt/pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3763, \
    remote process exited or there was a network error, NCCL version 2.28.8\n\
    [rank3]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n\
    [rank3]: Last error:\n[rank3]: socketProgressOpt: Call to recv from 10.0.0.7<33759> failed : Connection reset by peer\n";

pub(crate) const NCCL_SYSTEM: &str = "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"/home/me/train.py\", line 8, in step\n\
    [rank1]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled system error, NCCL version 2.19.3\n\
    [rank1]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n\
    [rank1]: Last error:\n[rank1]: Net : Call to recv from 10.0.0.7<45067> failed : Connection reset by peer\n";

pub(crate) const NCCL_WATCHDOG: &str = "[rank1]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: \
    WorkNCCL(SeqNum=7753, OpType=_REDUCE_SCATTER_BASE, NumelIn=544997376, NumelOut=68124672, Timeout(ms)=600000) ran for 600061 milliseconds before timing out.\n\
    [rank1]:[E1206 18:44:12.715588844 ProcessGroupNCCL.cpp:1664] [PG 1 Rank 1] Exception (either an error or timeout) detected by watchdog at work: 7753\n\
    [rank1]:[E1206 18:44:12.8 ProcessGroupNCCL.cpp:712] [Rank 1] To avoid data inconsistency, we are taking the entire process down.\n\
    terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [PG 1 Rank 1] Process group watchdog thread terminated with exception: \
    [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7753)\nFatal Python error: Aborted\n";

pub(crate) const NCCL_ABORT: &str = "[E ProcessGroupNCCL.cpp:460] To avoid data inconsistency, we are taking the entire process down.\n\
    terminate called after throwing an instance of 'std::runtime_error'\n  what():  NCCL error: remote process exited or there was a network error, \
    NCCL version 2.14.3\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n\
    Last error:\nNET/IB : Got completion from peer 11.214.147.122<39138> with error 12, opcode 0, len 0, vendor err 129\n";

pub(crate) const CUDA_ABORT: &str = "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [PG ID 0 PG GUID 0(default_pg) Rank 2] \
    Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered\n";

pub(crate) const MPI_ABORT: &str = "Traceback (most recent call last):\n  File \"/home/me/mpi.py\", line 4, in <module>\nValueError: bad grid\n\
    --------------------------------------------------------------------------\nMPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\n\
    with errorcode 1.\n";

pub(crate) const MPI_LOST: &str = "Traceback (most recent call last):\n  File \"/home/me/mpi.py\", line 9, in <module>\n  File \"src/mpi4py/MPI.src/Comm.pyx\", line 1, in mpi4py.MPI.Comm.Barrier\n\
    mpi4py.MPI.Exception: MPI_ERR_PROC_FAILED: Process Failure\n";

pub(crate) const MPICH_LOST: &str = "Fatal error in PMPI_Barrier: Unknown error class, error stack:\n\
    MPID_nem_tcp_connpoll(1845): Communication error with rank 2: Connection reset by peer\n";

pub(crate) const RUNTIME_LOST: &str = "remuda train: all_reduce (operation 12, 4096 bytes) failed on rank 0: rank 2 on host `n2` is gone\n";

pub(crate) const RUNTIME_LATE: &str = "remuda train: all_reduce (operation 12, 4096 bytes) failed on rank 0: the deadline passed while waiting for rank 2\n";

pub(crate) const ACCELERATE: &str = r#"[rank2]: Traceback (most recent call last):
[rank2]:   File "/home/me/accelerate_loop.py", line 31, in main
[rank2]:     accelerator.backward(loss)
[rank2]:   File "/v/lib/python3.11/site-packages/accelerate/accelerator.py", line 2852, in backward
[rank2]:     loss.backward(**kwargs)
[rank2]: RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn
"#;

pub(crate) const TRAINER: &str = r#"  3%|▎         | 3/100 [00:01<00:40,  2.41it/s][rank2]: Traceback (most recent call last):
[rank2]:   File "/home/me/hf_trainer.py", line 40, in <module>
[rank2]:     trainer.train()
[rank2]:   File "/v/lib/python3.11/site-packages/transformers/trainer.py", line 2325, in train
[rank2]:     return inner_training_loop(
[rank2]: ValueError: Expected input batch_size (8) to match target batch_size (7).
"#;

pub(crate) const DEEPSPEED: &str = r#"[2026-11-22 23:23:05,442] [INFO] [config.py:1003:print] DeepSpeedEngine configuration:
[rank2]: Traceback (most recent call last):
[rank2]:   File "/home/me/deepspeed_init.py", line 28, in <module>
[rank2]:     engine.backward(loss)
[rank2]:   File "/v/lib/python3.11/site-packages/deepspeed/utils/nvtx.py", line 20, in wrapped_fn
[rank2]:     ret_val = func(*args, **kwargs)
[rank2]: Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.
"#;

pub(crate) const INTERRUPTED: &str = "Traceback (most recent call last):\n  File \"/home/me/train.py\", line 9, in loop\n\
    \x20   time.sleep(8)\nKeyboardInterrupt\n";

pub(crate) const OOM_THEN_CLEANUP: &str = r#"Traceback (most recent call last):
  File "/home/me/train.py", line 13, in main
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB
Exception ignored in atexit callback <function upload at 0x7f>:
Traceback (most recent call last):
  File "/home/me/train.py", line 5, in upload
RuntimeError: [third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:8090
"#;

pub(crate) const SAVE_FAILED: &str = "Traceback (most recent call last):\n  File \"/home/me/train.py\", line 9, in step\n\
    RuntimeError: [third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:8090\n\n\
    During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n\
    \x20 File \"/home/me/train.py\", line 12, in save\nOSError: [Errno 28] No space left on device\n";

pub(crate) const LOGGED: &str = "WARNING:root:sample 7 is skipped\nTraceback (most recent call last):\n\
    \x20 File \"/home/me/data.py\", line 3, in read\nValueError: corrupt sample 7\n";

pub(crate) const USAGE: &str =
    "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --local_rank=2\n";

pub(crate) const RUNTIME_LATE_FOR_0: &str = "remuda train: all_reduce (operation 12, 4096 bytes) failed on rank 2: the deadline passed while waiting for rank 0\n";

/* remuda.h: process groups and collectives of remuda for C, C++ and other languages.
 *
 * The library libremuda.so is the data plane of remuda: ranks of one node exchange data through shared memory, ranks
 * of different nodes over TCP. Sums of floats have the same bits for every placement of the ranks.
 *
 * Rules of all functions:
 *
 * - A function that returns int32_t returns REMUDA_OK or the kind of its error. remuda_last_error has the message of
 *   the last error of the calling thread, remuda_hint what to do about it. No panic crosses this interface.
 * - Every rank of a group calls the same operations in the same order, with equal types and sizes. If a rank calls a
 *   different one, all ranks get REMUDA_MISMATCH. After an error every further operation of the group fails.
 * - `count` is a number of elements, never of bytes. Types and reductions are REMUDA_F32 … and REMUDA_SUM ….
 * - If `work` is NULL, an operation blocks until it has ended. Else it is started, and *work is its handle: until
 *   remuda_wait has freed it, the memory of the operation stays allocated, and other code does not use it (it may read
 *   memory that is only input). Started operations run one after the other; messages that are started one after the
 *   other run together. A blocking operation waits for all that were started before it.
 * - A group may be used by several threads, a handle by one thread at a time.
 * - Ranks in arguments are numbers in the group, ranks in errors numbers in the job.
 */
#ifndef REMUDA_H
#define REMUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface; compare it with remuda_abi(). New functions alone do not change it. */
#define REMUDA_ABI 1

/* A set of ranks that communicate. */
typedef struct remuda_group remuda_group;
/* An operation in flight. */
typedef struct remuda_work remuda_work;

/* Status of a call. */
#define REMUDA_OK 0
/* A pointer, code, length, rank or name is invalid. */
#define REMUDA_ARGUMENT 1
/* The deadline of an operation passed, on this rank or on another; the message names the ranks that did not call it. */
#define REMUDA_DEADLINE 2
/* A rank exited or its connection was lost. */
#define REMUDA_PEER_LOST 3
/* Two ranks called different operations; the message names both calls. */
#define REMUDA_MISMATCH 4
/* A rank aborted the group. */
#define REMUDA_ABORTED 5
/* The transport between ranks failed. */
#define REMUDA_TRANSPORT 6
/* The system has no more memory, threads or descriptors. */
#define REMUDA_SYSTEM 7
/* The environment does not describe a worker, or the job cannot be joined. */
#define REMUDA_ENVIRONMENT 8
/* A bug in the library. */
#define REMUDA_PANIC 9
/* Only from remuda_wait: the operation has not ended. */
#define REMUDA_IN_PROGRESS 100

/* Limit of remuda_wait that never passes. */
#define REMUDA_FOREVER UINT64_MAX

/* Element types. Types that operations only move, such as bool or complex numbers, are sent as REMUDA_U8. */
#define REMUDA_F32 1
#define REMUDA_F64 2
#define REMUDA_I32 3
#define REMUDA_I64 4
#define REMUDA_U8 5
/* 16-bit float of IEEE 754. */
#define REMUDA_F16 6
/* Upper half of a 32-bit float. */
#define REMUDA_BF16 7

/* Reductions. Integers wrap; 16-bit floats are combined as 32-bit floats and rounded once. */
#define REMUDA_SUM 1
#define REMUDA_PROD 2
/* NaN if any rank has NaN. */
#define REMUDA_MIN 3
#define REMUDA_MAX 4
/* The sum, multiplied once by 1/ranks; integers are divided and rounded towards zero. */
#define REMUDA_AVG 5

/* Orders in which all-reduces combine values. */
/* The same bits for every placement of the ranks. */
#define REMUDA_ORDER_CANONICAL 0
/* The same bits on all ranks of a run, in a ring of nodes. */
#define REMUDA_ORDER_ANY 1

/* Options of a group; the same on all ranks. A field that is 0 has its default. */
typedef struct remuda_options {
    /* sizeof(remuda_options). */
    uint32_t size;
    /* Number of TCP streams between two ranks of different nodes, 1 to 16. */
    uint32_t streams;
    /* Deadline of every operation in milliseconds; by default ten minutes. */
    uint64_t timeout_ms;
    /* REMUDA_ORDER_…. */
    uint32_t order;
    /* 0. */
    uint32_t reserved;
} remuda_options;

/* A message of remuda_exchange. */
typedef struct remuda_message {
    void *data;
    /* Number of elements. */
    size_t count;
    /* Element type. */
    uint32_t dtype;
    /* The other rank in the group. */
    uint32_t peer;
} remuda_message;

/* A key-value store of the program, for remuda_meet. Keys and values are texts of less than 4096 bytes. */
typedef struct remuda_store {
    /* First argument of the functions. */
    void *context;
    /* Sets a key; returns 0, or -1 if that fails. */
    int32_t (*set)(void *context, const char *key, const char *value);
    /* Waits for a key and copies its value with the zero byte at its end, at most size bytes; returns 0, or -1 if there
     * is no value or it is longer. */
    int32_t (*get)(void *context, const char *key, char *value, size_t size);
} remuda_store;

/* ---- The library ------------------------------------------------------------------------------------------------ */

/* REMUDA_ABI of the library. */
uint32_t remuda_abi(void);
/* Version of the library, such as "0.1.0". */
const char *remuda_version(void);

/* Copies the message of the last error of this thread, cut off after message_len - 1 bytes, and returns its whole
 * length; 0 if no call has failed. *kind is its status, *rank the rank that failed, disagreed, aborted or is the first
 * that is missing, -1 if the error names none. Every pointer may be NULL. */
size_t remuda_last_error(char *message, size_t message_len, int32_t *kind, int64_t *rank);
/* What to do about the last error of this thread; NULL if no call has failed. */
const char *remuda_last_hint(void);
/* What to do about an error of this kind; NULL if there is none. */
const char *remuda_hint(int32_t kind);

/* ---- Groups ----------------------------------------------------------------------------------------------------- */

/* Joins the group of all workers of the job: under `remuda run`, or under any launcher that sets REMUDA_KEY_FILE, RANK,
 * WORLD_SIZE, MASTER_ADDR and MASTER_PORT. At most once for each process. options may be NULL.
 * Errors: REMUDA_ENVIRONMENT, REMUDA_TRANSPORT, REMUDA_SYSTEM. */
int32_t remuda_init(const remuda_options *options, remuda_group **group);
/* 1 if remuda has started this process as a worker, which can join its job; else 0. A process that a worker starts has
 * the same variables, but is none: it has not inherited the worker's descriptors. */
int32_t remuda_is_worker(void);
/* Joins a group of `size` ranks that any program has started, through a key-value store that no other group has used.
 * Ranks of one boot of one machine, one network namespace and one user share memory; other hosts reach rank 0 at
 * address, a name or an IP address. Programs that can read the store can join the group.
 * Errors: REMUDA_ARGUMENT, REMUDA_TRANSPORT, REMUDA_SYSTEM (also if a function of the store fails). */
int32_t remuda_meet(const remuda_store *store, const char *address, uint32_t rank, uint32_t size,
                    const remuda_options *options, remuda_group **group);
/* Makes a group of `ranks` ranks in this process and fills groups[0] to groups[ranks - 1], one for each thread that
 * acts as a rank. For tests. */
int32_t remuda_threads(uint32_t ranks, const remuda_options *options, remuda_group **groups);
/* Makes a group of `count` ranks of parent, in the order of `ranks`. Only they call it, with the same list and the same
 * name of 1 to 128 bytes; it waits for all of them. The new group fails with parent, but parent does not fail with it.
 * options NULL: those of parent. */
int32_t remuda_group_of(const remuda_group *parent, const uint32_t *ranks, size_t count, const char *name,
                        const remuda_options *options, remuda_group **group);
/* Leaves the group after its started operations have ended, and frees it. NULL is allowed. */
int32_t remuda_free(remuda_group *group);
/* Rank of this worker in the group; 0 for NULL. */
uint32_t remuda_rank(const remuda_group *group);
/* Number of ranks of the group; 0 for NULL. */
uint32_t remuda_size(const remuda_group *group);
/* Sets the deadline of the operations of this rank that begin later. */
int32_t remuda_set_timeout(const remuda_group *group, uint64_t timeout_ms);
/* REMUDA_OK, or why the group is known to have failed; does not wait. */
int32_t remuda_check(const remuda_group *group);
/* Aborts the group: its running operations fail on every rank with REMUDA_ABORTED, and so do later ones. */
int32_t remuda_abort(const remuda_group *group, const char *reason);
/* Reports to the launcher that a training step has ended. steps is 0, loss and tokens_per_s are NaN if unknown. */
int32_t remuda_note_step(const remuda_group *group, uint64_t step, uint64_t steps, double loss, double tokens_per_s);

/* ---- Collectives ------------------------------------------------------------------------------------------------ */

/* Replaces the data of every rank by the reduction over all ranks. */
int32_t remuda_all_reduce(const remuda_group *group, void *data, size_t count, uint32_t dtype, uint32_t op,
                          remuda_work **work);
/* Replaces the data of root by the reduction over all ranks; other ranks keep their data. */
int32_t remuda_reduce(const remuda_group *group, void *data, size_t count, uint32_t dtype, uint32_t op, uint32_t root,
                      remuda_work **work);
/* Replaces the data of every rank by that of root. */
int32_t remuda_broadcast(const remuda_group *group, void *data, size_t count, uint32_t dtype, uint32_t root,
                         remuda_work **work);
/* Fills output (size × count) with the input (count) of every rank, in rank order. */
int32_t remuda_all_gather(const remuda_group *group, const void *input, void *output, size_t count, uint32_t dtype,
                          remuda_work **work);
/* Fills output (count) with part `rank` of the reduction of input (size × count) over all ranks. */
int32_t remuda_reduce_scatter(const remuda_group *group, const void *input, void *output, size_t count, uint32_t dtype,
                              uint32_t op, remuda_work **work);
/* Fills output (size × count) of root with the input (count) of every rank; other ranks pass NULL as output. */
int32_t remuda_gather(const remuda_group *group, const void *input, void *output, size_t count, uint32_t dtype,
                      uint32_t root, remuda_work **work);
/* Fills output (count) of every rank with part `rank` of input (size × count) of root; other ranks pass NULL as input. */
int32_t remuda_scatter(const remuda_group *group, const void *input, void *output, size_t count, uint32_t dtype,
                       uint32_t root, remuda_work **work);
/* Sends part r (count) of input to rank r, and fills part r of output with the part from rank r. */
int32_t remuda_all_to_all(const remuda_group *group, const void *input, void *output, size_t count, uint32_t dtype,
                          remuda_work **work);
/* The same with parts of any length: send_counts[r] elements go to rank r, recv_counts[r] come from it. The arrays are
 * copied. */
int32_t remuda_all_to_all_v(const remuda_group *group, const void *input, const size_t *send_counts, void *output,
                            const size_t *recv_counts, uint32_t dtype, remuda_work **work);
/* Waits until every rank has called it. */
int32_t remuda_barrier(const remuda_group *group, remuda_work **work);
/* The same, for at most timeout_ms; 0 stands for the deadline of the group. The error names the ranks that are late. All
 * ranks call this one: a remuda_barrier of another rank is a mismatch. */
int32_t remuda_monitored_barrier(const remuda_group *group, uint64_t timeout_ms);

/* ---- Messages --------------------------------------------------------------------------------------------------- */

/* Sends elements to another rank, which receives as many of the same type. Messages to one rank stay in order. */
int32_t remuda_send(const remuda_group *group, const void *data, size_t count, uint32_t dtype, uint32_t to,
                    remuda_work **work);
/* Receives elements from another rank. */
int32_t remuda_recv(const remuda_group *group, void *data, size_t count, uint32_t dtype, uint32_t from,
                    remuda_work **work);
/* Sends and receives several messages at the same time, so that ranks cannot wait for each other in a cycle. A rank can
 * send to itself here. The arrays of messages are copied, their data is not. */
int32_t remuda_exchange(const remuda_group *group, const remuda_message *sends, size_t send_count,
                        const remuda_message *recvs, size_t recv_count, remuda_work **work);

/* ---- GPUs ------------------------------------------------------------------------------------------------------- */

/* Experimental: these functions have not run on a GPU yet, and may change without a new REMUDA_ABI. A library has them if
 * it was built with the feature `nccl`, as that of the wheel was.
 *
 * Addresses are those of the device, in its primary context, which other libraries use too. `stream` is the stream in
 * which the caller uses the memory, a CUstream or cudaStream_t; NULL is the default stream. An operation begins after the
 * work that the stream has when it is called.
 *
 * If `work` is NULL, a call blocks until the operation has ended: ranks compare their calls first, and all streams see its
 * result. Else it is started, and NCCL has it when the call returns: ranks compare their calls meanwhile. The deadline of
 * the group holds for both, and a lost rank is named. remuda_device_wait makes a stream wait for a started operation,
 * remuda_wait the caller. Until then its memory stays allocated, and other code does not use it. If it fails, what the
 * stream does afterwards goes on, with wrong values, and the next operation of the group returns an error. Through the
 * memory of the host, an operation has ended when it is started. */

/* The GPUs of the ranks of a group. */
typedef struct remuda_devices remuda_devices;

/* Connects the GPUs of the ranks: every rank of the group calls it with a device of its own, numbered as CUDA does in this
 * process. NCCL moves the data; if a rank has none, or ranks share a GPU, the memory of the host does. The operations count
 * among those of the group.
 * Errors: REMUDA_SYSTEM (no driver, no such device), and those of operations. */
int32_t remuda_devices_connect(const remuda_group *group, uint32_t device, remuda_devices **devices);
/* Disconnects the GPUs after their started operations have ended, and frees the handle; the group remains. NULL is
 * allowed. */
int32_t remuda_devices_free(remuda_devices *devices);
/* 1 if NCCL moves the data, 0 if the memory of the host does, and for NULL. */
int32_t remuda_devices_nccl(const remuda_devices *devices);
/* Replaces the data of every rank by the reduction over all ranks. NCCL sums in its own order. */
int32_t remuda_device_all_reduce(const remuda_devices *devices, uint64_t data, size_t count, uint32_t dtype, uint32_t op,
                                 void *stream, remuda_work **work);
/* Replaces the data of root by the reduction over all ranks; other ranks keep their data. */
int32_t remuda_device_reduce(const remuda_devices *devices, uint64_t data, size_t count, uint32_t dtype, uint32_t op,
                             uint32_t root, void *stream, remuda_work **work);
/* Replaces the data of every rank by that of root. */
int32_t remuda_device_broadcast(const remuda_devices *devices, uint64_t data, size_t count, uint32_t dtype, uint32_t root,
                                void *stream, remuda_work **work);
/* Fills output (size × count) with the input (count) of every rank, in rank order. */
int32_t remuda_device_all_gather(const remuda_devices *devices, uint64_t input, uint64_t output, size_t count,
                                 uint32_t dtype, void *stream, remuda_work **work);
/* Fills output (count) with part `rank` of the reduction of input (size × count) over all ranks. */
int32_t remuda_device_reduce_scatter(const remuda_devices *devices, uint64_t input, uint64_t output, size_t count,
                                     uint32_t dtype, uint32_t op, void *stream, remuda_work **work);
/* Fills output (size × count) of root with the input (count) of every rank; other ranks pass 0 as output. */
int32_t remuda_device_gather(const remuda_devices *devices, uint64_t input, uint64_t output, size_t count, uint32_t dtype,
                             uint32_t root, void *stream, remuda_work **work);
/* Fills output (count) of every rank with part `rank` of input (size × count) of root; other ranks pass 0 as input. */
int32_t remuda_device_scatter(const remuda_devices *devices, uint64_t input, uint64_t output, size_t count, uint32_t dtype,
                              uint32_t root, void *stream, remuda_work **work);
/* Sends part r (count) of input to rank r, and fills part r of output with the part from rank r. */
int32_t remuda_device_all_to_all(const remuda_devices *devices, uint64_t input, uint64_t output, size_t count,
                                 uint32_t dtype, void *stream, remuda_work **work);
/* Sends and receives several messages at the same time, so that ranks cannot wait for each other in a cycle; their `data`
 * are addresses of the device. The messages of two ranks stay in order; other ranks need not call it. A rank can send to
 * itself. The arrays of messages are copied. */
int32_t remuda_device_exchange(const remuda_devices *devices, const remuda_message *sends, size_t send_count,
                               const remuda_message *recvs, size_t recv_count, void *stream, remuda_work **work);
/* Sends elements to another rank, which receives as many of the same type. Messages run one after the other, also if they
 * are started: those that would wait for each other go into one remuda_device_exchange. */
int32_t remuda_device_send(const remuda_devices *devices, uint64_t data, size_t count, uint32_t dtype, uint32_t to,
                           void *stream, remuda_work **work);
/* Receives elements from another rank. */
int32_t remuda_device_recv(const remuda_devices *devices, uint64_t data, size_t count, uint32_t dtype, uint32_t from,
                           void *stream, remuda_work **work);
/* Makes the work that stream gets later wait until a started operation has ended; the caller does not wait, and the handle
 * remains. Returns the error of the operation if it is known to have failed. */
int32_t remuda_device_wait(remuda_work *work, void *stream);
/* Frees the handle of an operation on GPUs without a wait; the operation goes on. NULL is allowed. */
int32_t remuda_device_release(remuda_work *work);

/* ---- Operations in flight --------------------------------------------------------------------------------------- */

/* Waits for at most limit_ms milliseconds. When the operation has ended, frees the handle and returns the status of the
 * operation; else returns REMUDA_IN_PROGRESS, and the handle remains. */
int32_t remuda_wait(remuda_work *work, uint64_t limit_ms);
/* Sets *has_ended to 1 or 0; does not wait, and the handle remains. */
int32_t remuda_test(remuda_work *work, int32_t *has_ended);

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

/* Allocates `bytes` zeros, aligned to a page, in memory that the ranks of the node share: collectives of the group and
 * its subgroups use such memory in place, without a copy. */
int32_t remuda_alloc(const remuda_group *group, size_t bytes, void **memory);
/* Frees memory of remuda_alloc, also after remuda_free of its group. NULL is allowed. */
int32_t remuda_release(void *memory);

#ifdef __cplusplus
}
#endif

#endif

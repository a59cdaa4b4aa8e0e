/* A CUDA driver and an NCCL without a GPU, for tests of the functions for GPUs: the memory of a device is that of the
 * process, and the ranks are its threads. It shows that calls arrive with their arguments, in the order of the streams;
 * it shows nothing about GPUs.
 *
 * Work of a stream is lazy: it runs when something waits for it. So what does not wait for the work of its caller sees
 * memory from before. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { DEVICES = 2, WORK_MAX = 64, RANKS_MAX = 8, PIECES_MAX = 64, WORLDS_MAX = 64 };

/* ---- The driver ------------------------------------------------------------------------------------------------- */

struct work {
	void (*run)(void *);
	void *argument;
};

struct stream {
	struct work work[WORK_MAX];
	int queued, done;
};

struct event {
	struct stream *stream;
	int until;
};

static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER;
static struct stream default_stream;
static __thread void *current;

static struct stream *of(struct stream *stream) { return stream == NULL ? &default_stream : stream; }

static void run_until(struct stream *stream, int until) {
	pthread_mutex_lock(&driver);
	for (; stream->done < until; stream->done++)
		stream->work[stream->done].run(stream->work[stream->done].argument);
	pthread_mutex_unlock(&driver);
}

/* Adds work to a stream, as a kernel is. */
EXPORT void test_enqueue(struct stream *stream, void (*run)(void *), void *argument) {
	stream = of(stream);
	pthread_mutex_lock(&driver);
	if (stream->queued == WORK_MAX)
		abort();
	stream->work[stream->queued++] = (struct work){run, argument};
	pthread_mutex_unlock(&driver);
}

EXPORT int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }
EXPORT int cuDeviceGetCount(int *count) { return *count = DEVICES, 0; }
EXPORT int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, 0 <= ordinal && ordinal < DEVICES ? 0 : 101; }
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
	return *value = 0, attribute != 0 && device < DEVICES ? 0 : 1;
}
EXPORT int cuDeviceGetUuid_v2(unsigned char uuid[16], int device) { return memset(uuid, device + 1, 16), 0; }
EXPORT int cuDeviceGetUuid(unsigned char uuid[16], int device) { return cuDeviceGetUuid_v2(uuid, device); }
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = (void *)(uintptr_t)(device + 1), 0; }
EXPORT int cuDevicePrimaryCtxRelease_v2(int device) { return device < DEVICES ? 0 : 1; }
EXPORT int cuCtxGetCurrent(void **context) { return *context = current, 0; }
EXPORT int cuCtxSetCurrent(void *context) { return current = context, 0; }
EXPORT int cuCtxSynchronize(void) { return 0; }
EXPORT int cuGetErrorString(int code, const char **text) { return *text = code ? "refused by the test" : "no error", 0; }
EXPORT int cuGetErrorName(int code, const char **text) { return cuGetErrorString(code, text); }

EXPORT int cuStreamCreate(struct stream **stream, unsigned flags) {
	(void)flags;
	return (*stream = calloc(1, sizeof **stream)) ? 0 : 2;
}
EXPORT int cuStreamDestroy_v2(struct stream *stream) { return free(stream), 0; }
EXPORT int cuStreamSynchronize(struct stream *stream) { return run_until(of(stream), of(stream)->queued), 0; }
EXPORT int cuStreamWaitEvent(struct stream *stream, struct event *event, unsigned flags) {
	(void)stream, (void)flags;
	/* Work that remuda enqueues runs at once, after this. */
	if (event->stream)
		run_until(event->stream, event->until);
	return 0;
}
EXPORT int cuEventCreate(struct event **event, unsigned flags) {
	(void)flags;
	return (*event = calloc(1, sizeof **event)) ? 0 : 2;
}
EXPORT int cuEventRecord(struct event *event, struct stream *stream) {
	return *event = (struct event){of(stream), of(stream)->queued}, 0;
}
EXPORT int cuEventQuery(struct event *event) { return event->stream && event->stream->done < event->until ? 600 : 0; }
EXPORT int cuEventSynchronize(struct event *event) { return cuStreamWaitEvent(NULL, event, 0); }
EXPORT int cuEventDestroy_v2(struct event *event) { return free(event), 0; }

EXPORT int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags) { return memory && bytes && !flags ? 0 : 1; }
EXPORT int cuMemHostUnregister(void *memory) { return memory ? 0 : 1; }
EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, struct stream *stream) {
	run_until(of(stream), of(stream)->queued);
	return memcpy((void *)(uintptr_t)to, from, bytes), 0;
}
EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, struct stream *stream) {
	run_until(of(stream), of(stream)->queued);
	return memcpy(to, (const void *)(uintptr_t)from, bytes), 0;
}

/* ---- NCCL ------------------------------------------------------------------------------------------------------- */

struct piece {
	const void *from;
	size_t bytes;
	int peer;
};

/* The ranks of a communicator; `input` and `sends` are those of the operation that they run together. */
struct world {
	char id[128];
	int ranks;
	pthread_barrier_t meets;
	const void *input[RANKS_MAX];
	struct piece sends[RANKS_MAX][PIECES_MAX];
	int send_count[RANKS_MAX];
};

struct communicator {
	struct world *world;
	int rank;
};

struct nccl_id {
	char bytes[128];
};

static pthread_mutex_t nccl = PTHREAD_MUTEX_INITIALIZER;
static struct world worlds[WORLDS_MAX];
static int world_count;
static __thread struct communicator *grouped;
static __thread struct piece recvs[PIECES_MAX];
static __thread int recv_count;

static size_t size_of(int dtype) {
	static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
	return sizes[dtype];
}

EXPORT int ncclGetVersion(int *version) { return *version = 22809, 0; }
EXPORT const char *ncclGetErrorString(int code) { return code ? "refused by the test" : "no error"; }
EXPORT const char *ncclGetLastError(void *communicator) { return (void)communicator, ""; }
EXPORT int ncclGetUniqueId(struct nccl_id *id) {
	static int count;
	memset(id, 0, sizeof *id);
	pthread_mutex_lock(&nccl);
	memcpy(id->bytes, &(int){++count}, sizeof(int));
	pthread_mutex_unlock(&nccl);
	return 0;
}
EXPORT int ncclCommInitRankConfig(struct communicator **made, int ranks, struct nccl_id id, int rank, void *config) {
	struct world *world = NULL;
	pthread_mutex_lock(&nccl);
	for (int i = 0; i < world_count; i++)
		if (memcmp(worlds[i].id, id.bytes, sizeof id.bytes) == 0)
			world = &worlds[i];
	if (world == NULL) {
		world = &worlds[world_count++];
		memcpy(world->id, id.bytes, sizeof id.bytes);
		world->ranks = ranks;
		pthread_barrier_init(&world->meets, NULL, (unsigned)ranks);
	}
	pthread_mutex_unlock(&nccl);
	*made = calloc(1, sizeof **made);
	**made = (struct communicator){world, rank};
	return config ? 0 : 4;
}
EXPORT int ncclCommSplit(void) { return 5; }
EXPORT int ncclCommFinalize(struct communicator *communicator) { return communicator ? 0 : 4; }
EXPORT int ncclCommDestroy(struct communicator *communicator) { return free(communicator), 0; }
EXPORT int ncclCommAbort(struct communicator *communicator) { return free(communicator), 0; }
EXPORT int ncclCommGetAsyncError(struct communicator *communicator, int *state) { return *state = 0, communicator ? 0 : 4; }

/* Adds `count` floats of all ranks from an element on; sums of other types are refused. */
static float *sum(struct world *world, size_t from, size_t count) {
	float *total = calloc(count + 1, sizeof *total);
	for (int rank = 0; rank < world->ranks; rank++)
		for (size_t i = 0; i < count; i++)
			total[i] += ((const float *)world->input[rank])[from + i];
	return total;
}

/* Runs one operation: all ranks publish their input, compute, and write when all have read. */
static int reduce(struct communicator *own, const void *from, void *to, size_t at, size_t count, int dtype, int op) {
	if (dtype != 7 || op != 0)
		return 4;
	own->world->input[own->rank] = from;
	pthread_barrier_wait(&own->world->meets);
	float *total = sum(own->world, at, count);
	pthread_barrier_wait(&own->world->meets);
	if (to != NULL)
		memcpy(to, total, count * sizeof *total);
	free(total);
	return 0;
}

EXPORT int ncclAllReduce(const void *from, void *to, size_t count, int dtype, int op, struct communicator *own, void *stream) {
	(void)stream;
	return reduce(own, from, to, 0, count, dtype, op);
}
EXPORT int ncclReduce(const void *from, void *to, size_t count, int dtype, int op, int root, struct communicator *own,
					  void *stream) {
	(void)stream;
	return reduce(own, from, own->rank == root ? to : NULL, 0, count, dtype, op);
}
EXPORT int ncclReduceScatter(const void *from, void *to, size_t count, int dtype, int op, struct communicator *own,
							 void *stream) {
	(void)stream;
	return reduce(own, from, to, (size_t)own->rank * count, count, dtype, op);
}
EXPORT int ncclBroadcast(const void *from, void *to, size_t count, int dtype, int root, struct communicator *own,
						 void *stream) {
	(void)stream;
	own->world->input[own->rank] = from;
	pthread_barrier_wait(&own->world->meets);
	if (own->rank != root)
		memcpy(to, own->world->input[root], count * size_of(dtype));
	pthread_barrier_wait(&own->world->meets);
	return 0;
}
EXPORT int ncclAllGather(const void *from, void *to, size_t count, int dtype, struct communicator *own, void *stream) {
	size_t bytes = count * size_of(dtype);
	(void)stream;
	own->world->input[own->rank] = from;
	pthread_barrier_wait(&own->world->meets);
	for (int rank = 0; rank < own->world->ranks; rank++)
		memmove((char *)to + (size_t)rank * bytes, own->world->input[rank], bytes);
	pthread_barrier_wait(&own->world->meets);
	return 0;
}

EXPORT int ncclGroupStart(void) { return grouped = NULL, recv_count = 0, 0; }
EXPORT int ncclSend(const void *from, size_t count, int dtype, int peer, struct communicator *own, void *stream) {
	(void)stream;
	if (grouped == NULL)
		own->world->send_count[own->rank] = 0;
	grouped = own;
	own->world->sends[own->rank][own->world->send_count[own->rank]++] = (struct piece){from, count * size_of(dtype), peer};
	return 0;
}
EXPORT int ncclRecv(void *to, size_t count, int dtype, int peer, struct communicator *own, void *stream) {
	(void)stream;
	if (grouped == NULL)
		own->world->send_count[own->rank] = 0;
	grouped = own;
	recvs[recv_count++] = (struct piece){to, count * size_of(dtype), peer};
	return 0;
}
EXPORT int ncclGroupEnd(void) {
	if (grouped == NULL)
		return 0;
	struct world *world = grouped->world;
	pthread_barrier_wait(&world->meets);
	for (int i = 0; i < recv_count; i++)
		for (int k = 0; k < world->send_count[recvs[i].peer]; k++)
			if (world->sends[recvs[i].peer][k].peer == grouped->rank)
				memcpy((void *)recvs[i].from, world->sends[recvs[i].peer][k].from, recvs[i].bytes);
	pthread_barrier_wait(&world->meets);
	return 0;
}

/* Runs every function of remuda.h for GPUs, with the driver and the NCCL of gpu.c in their place.
 *
 * device nccl    two ranks that are threads of this process, through NCCL
 * device host    the same through host memory
 * device lost    a worker of a job of two: rank 1 exits, and rank 0 prints the rank that it has lost
 *
 * Exits with 0 and prints the number of checks, or names the first check that fails. */
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "remuda.h"

enum { RANKS = 2, COUNT = 3000, GROUPS = 6, GATE_SECONDS = 30 };

struct stream;
struct event;
int cuStreamSynchronize(struct stream *stream);
int cuEventCreate(struct event **event, unsigned flags);
int cuEventRecord(struct event *event, struct stream *stream);
int cuEventQuery(struct event *event);
int cuStreamCreate(struct stream **stream, unsigned flags);
int cuStreamDestroy_v2(struct stream *stream);
void test_enqueue(struct stream *stream, void (*run)(void *), void *argument);

static int checks, uses_nccl;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void check(int holds, const char *what, int line)
{
	pthread_mutex_lock(&lock);
	checks++;
	pthread_mutex_unlock(&lock);
	if (holds)
		return;
	char message[1024];
	remuda_last_error(message, sizeof message, NULL, NULL);
	fprintf(stderr, "line %d: %s; last error: %s\n", line, what, message);
	exit(1);
}

#define CHECK(condition) check((condition), #condition, __LINE__)
#define OK(call) CHECK((call) == REMUDA_OK)
#define AT(memory) ((uint64_t)(uintptr_t)(memory))

/* Memory of a device that work of a stream fills. */
struct fill {
	float *memory;
	float value;
};

static void fill(void *argument)
{
	struct fill *fill = argument;
	for (int i = 0; i < RANKS * COUNT; i++)
		fill->memory[i] = fill->value + i;
}

/* Calls an operation on memory that the stream has not filled yet. */
#define AFTER_FILL(VALUE, CALL, EXPECTED)                                                                              \
	do {                                                                                                           \
		memset(in, 0, sizeof in);                                                                              \
		memset(out, 0, sizeof out);                                                                            \
		struct fill work = {in, VALUE};                                                                        \
		test_enqueue(stream, fill, &work);                                                                     \
		OK(CALL);                                                                                              \
		for (int i = 0; i < COUNT; i++)                                                                        \
			CHECK(EXPECTED);                                                                               \
	} while (0)

static void operations(remuda_devices *devices, uint32_t rank)
{
	struct stream *stream = NULL;
	float in[RANKS * COUNT], out[RANKS * COUNT];
	cuStreamCreate(&stream, 1);
	AFTER_FILL(rank, remuda_device_all_reduce(devices, AT(in), COUNT, REMUDA_F32, REMUDA_SUM, stream, NULL),
		   in[i] == 1 + 2 * i);
	AFTER_FILL(rank, remuda_device_reduce(devices, AT(in), COUNT, REMUDA_F32, REMUDA_SUM, 1, stream, NULL),
		   in[i] == (rank == 1 ? 1 + 2 * i : i));
	AFTER_FILL(rank, remuda_device_broadcast(devices, AT(in), COUNT, REMUDA_F32, 1, stream, NULL), in[i] == 1 + i);
	AFTER_FILL(rank, remuda_device_all_gather(devices, AT(in), AT(out), COUNT, REMUDA_F32, stream, NULL),
		   out[i] == i && out[COUNT + i] == 1 + i);
	AFTER_FILL(rank,
		   remuda_device_reduce_scatter(devices, AT(in), AT(out), COUNT, REMUDA_F32, REMUDA_SUM, stream, NULL),
		   out[i] == 1 + 2 * (int)(rank * COUNT + i));
	AFTER_FILL(10 * rank, remuda_device_all_to_all(devices, AT(in), AT(out), COUNT, REMUDA_F32, stream, NULL),
		   out[i] == (int)(rank * COUNT) + i && out[COUNT + i] == 10 + (int)(rank * COUNT) + i);
	/* The default stream, and other types: through host memory also sums. */
	memset(in, 1, sizeof in);
	OK(remuda_device_broadcast(devices, AT(in), sizeof in, REMUDA_U8, 0, NULL, NULL));
	OK(remuda_device_all_gather(devices, AT(in), AT(out), 5, REMUDA_I64, NULL, NULL));
	int64_t numbers[] = {rank, 7};
	if (!uses_nccl) {
		OK(remuda_device_all_reduce(devices, AT(numbers), 2, REMUDA_I64, REMUDA_MAX, NULL, NULL));
		CHECK(numbers[0] == 1 && numbers[1] == 7);
	}
	cuStreamDestroy_v2(stream);
}

/* The operations that no collective of the canonical tree needs: roots and messages. */
static void roots_and_messages(remuda_devices *devices, uint32_t rank)
{
	struct stream *stream = NULL;
	float in[RANKS * COUNT], out[RANKS * COUNT];
	uint64_t to = rank == 1 ? AT(out) : 0, from = rank == 1 ? AT(in) : 0;
	cuStreamCreate(&stream, 1);
	AFTER_FILL(10 * rank, remuda_device_gather(devices, AT(in), to, COUNT, REMUDA_F32, 1, stream, NULL),
		   rank == 0 || (out[i] == i && out[COUNT + i] == 10 + i));
	AFTER_FILL(10 * rank, remuda_device_scatter(devices, from, AT(out), COUNT, REMUDA_F32, 1, stream, NULL),
		   out[i] == 10 + (int)(rank * COUNT) + i);
	AFTER_FILL(10 * rank,
		   rank == 0 ? remuda_device_send(devices, AT(in), COUNT, REMUDA_F32, 1, stream, NULL)
			     : remuda_device_recv(devices, AT(out), COUNT, REMUDA_F32, 0, stream, NULL),
		   rank == 0 || out[i] == i);
	/* Two messages to the peer, of different types, and one to itself. */
	uint32_t peer = 1 - rank;
	int64_t number = 0, own = 40 + rank;
	remuda_message sends[] = {{in, COUNT, REMUDA_F32, peer}, {&own, 1, REMUDA_I64, rank}, {&own, 1, REMUDA_I64, peer}};
	remuda_message recvs[] = {{&number, 1, REMUDA_I64, rank}, {out, COUNT, REMUDA_F32, peer}, {&out[COUNT], 1, REMUDA_I64, peer}};
	AFTER_FILL(10 * rank, remuda_device_exchange(devices, sends, 3, recvs, 3, stream, NULL),
		   out[i] == 10 * (int)peer + i && number == 40 + rank);
	CHECK(*(int64_t *)&out[COUNT] == 40 + peer);
	OK(remuda_device_exchange(devices, NULL, 0, NULL, 0, stream, NULL));
	cuStreamDestroy_v2(stream);
}

static void wait_at_gate(void *gate) { sem_wait(gate); }

struct snapshot {
	const float *from;
	float to[COUNT];
};

static void take(void *argument)
{
	struct snapshot *snapshot = argument;
	memcpy(snapshot->to, snapshot->from, sizeof snapshot->to);
}

/* A started operation waits for its stream while the caller goes on, and other streams wait for it. */
static void started(remuda_devices *devices, uint32_t rank)
{
	struct stream *stream = NULL, *reader = NULL;
	struct event *taken = NULL;
	remuda_work *work = NULL, *others[3] = {NULL};
	float in[RANKS * COUNT] = {0}, out[RANKS * COUNT] = {0};
	struct snapshot snapshot = {in, {0}};
	sem_t gate;
	sem_init(&gate, 0, uses_nccl ? 0 : 1);
	cuStreamCreate(&stream, 1), cuStreamCreate(&reader, 1), cuEventCreate(&taken, 0);
	test_enqueue(stream, wait_at_gate, &gate);
	struct fill work_of_stream = {in, rank};
	test_enqueue(stream, fill, &work_of_stream);
	OK(remuda_device_all_reduce(devices, AT(in), COUNT, REMUDA_F32, REMUDA_SUM, stream, &work));
	OK(remuda_device_wait(work, reader));
	test_enqueue(reader, take, &snapshot);
	cuEventRecord(taken, reader);
	/* As long as the gate is closed, neither the operation nor the other stream goes on. */
	for (int i = 0; uses_nccl && i < 20; i++, usleep(1000))
		CHECK(cuEventQuery(taken) == 600);
	int32_t has_ended = 2;
	OK(remuda_test(work, &has_ended));
	CHECK(has_ended == !uses_nccl);
	CHECK(remuda_wait(work, 1) == (uses_nccl ? REMUDA_IN_PROGRESS : REMUDA_OK));
	/* Others are in flight behind it, in their order; the memory of the first is used again. */
	OK(remuda_device_all_gather(devices, AT(in), AT(out), COUNT, REMUDA_F32, stream, &others[0]));
	OK(remuda_device_broadcast(devices, AT(in), COUNT, REMUDA_F32, 0, stream, &others[1]));
	OK(rank == 0 ? remuda_device_send(devices, AT(in), 1, REMUDA_F32, 1, stream, &others[2])
		     : remuda_device_recv(devices, AT(in), 1, REMUDA_F32, 0, stream, &others[2]));
	sem_post(&gate);
	cuStreamSynchronize(reader);
	for (int i = 0; i < COUNT; i++)
		CHECK(snapshot.to[i] == 1 + 2 * i);
	if (uses_nccl)
		OK(remuda_wait(work, REMUDA_FOREVER));
	OK(remuda_wait(others[2], REMUDA_FOREVER));
	OK(remuda_wait(others[1], REMUDA_FOREVER));
	OK(remuda_device_release(others[0]));
	for (int i = 0; i < COUNT; i++)
		CHECK(out[i] == 1 + 2 * i && out[COUNT + i] == 1 + 2 * i);
	/* A blocking operation waits for those that were started. */
	OK(remuda_device_all_reduce(devices, AT(in), COUNT, REMUDA_F32, REMUDA_SUM, stream, &work));
	OK(remuda_device_all_reduce(devices, AT(in), COUNT, REMUDA_F32, REMUDA_SUM, stream, NULL));
	CHECK(in[1] == 12);
	OK(remuda_test(work, &has_ended));
	CHECK(has_ended == 1);
	OK(remuda_device_release(work));
	cuStreamDestroy_v2(reader), cuStreamDestroy_v2(stream);
}

/* Wrong calls that change nothing. */
static void arguments(remuda_devices *devices)
{
	float value;
	CHECK(remuda_device_all_reduce(NULL, AT(&value), 1, REMUDA_F32, REMUDA_SUM, NULL, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_device_all_reduce(devices, 0, 1, REMUDA_F32, REMUDA_SUM, NULL, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_device_all_reduce(devices, AT(&value) + 1, 1, REMUDA_F32, REMUDA_SUM, NULL, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_device_all_reduce(devices, AT(&value), 1, 99, REMUDA_SUM, NULL, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_device_all_reduce(devices, AT(&value), 1, REMUDA_F32, 99, NULL, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_device_send(devices, AT(&value), 1, REMUDA_F32, 9, NULL, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_device_recv(devices, 0, 1, REMUDA_F32, 0, NULL, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_device_exchange(devices, NULL, 1, NULL, 0, NULL, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_devices_free(NULL) == REMUDA_OK && remuda_devices_nccl(NULL) == 0);
	CHECK(remuda_device_release(NULL) == REMUDA_OK);
	CHECK(remuda_device_wait(NULL, NULL) == REMUDA_ARGUMENT);
}

/* Handles of operations on memory of the host are not those of devices. */
static void handles(remuda_group *group)
{
	remuda_work *work = NULL;
	OK(remuda_barrier(group, &work));
	CHECK(remuda_device_wait(work, NULL) == REMUDA_ARGUMENT);
	OK(remuda_wait(work, REMUDA_FOREVER));
}

static void expect_error(int32_t status, int32_t kind, int64_t expected_rank, const char *text)
{
	char message[1024];
	int64_t rank = -2;
	CHECK(status == kind);
	remuda_last_error(message, sizeof message, NULL, &rank);
	if (strstr(message, text) == NULL)
		fprintf(stderr, "no `%s` in: %s\n", text, message);
	CHECK(rank == expected_rank && strstr(message, text) != NULL);
}

static remuda_group *groups[GROUPS][RANKS];

/* What happens to started operations that fail: their streams go on, and the error names the other rank. */
static void failures_in_flight(remuda_devices *late, remuda_devices *other, uint32_t rank)
{
	struct stream *stream = NULL;
	remuda_work *work = NULL;
	float values[COUNT] = {0};
	cuStreamCreate(&stream, 1);
	if (rank == 0) {
		OK(remuda_set_timeout(groups[3][0], 200));
		int32_t status = remuda_device_all_reduce(late, AT(values), COUNT, REMUDA_F32, REMUDA_SUM, stream, &work);
		if (uses_nccl) {
			OK(status);
			OK(remuda_device_wait(work, stream));
			status = remuda_wait(work, REMUDA_FOREVER);
		}
		expect_error(status, REMUDA_DEADLINE, 1, "rank 1");
		cuStreamSynchronize(stream);
	}
	/* Messages of different lengths: both ranks get the error, unless the message has been sent before. */
	int32_t status = rank ? remuda_device_recv(other, AT(values), 4, REMUDA_F32, 0, stream, &work)
			      : remuda_device_send(other, AT(values), 3, REMUDA_F32, 1, stream, &work);
	status = status == REMUDA_OK ? remuda_wait(work, REMUDA_FOREVER) : status;
	if (rank == 1)
		expect_error(status, REMUDA_MISMATCH, 0, "this rank called recv(4 × f32), but rank 0 called send(3 × f32)");
	else
		CHECK(status == REMUDA_OK || status == REMUDA_MISMATCH);
	CHECK(remuda_device_all_reduce(other, AT(values), 1, REMUDA_F32, REMUDA_SUM, stream, NULL) != REMUDA_OK);
	cuStreamDestroy_v2(stream);
}

static void wait_at_gate_for_a_while(void *gate)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += GATE_SECONDS;
	sem_timedwait(gate, &until);
}

/* A deadline that was set later holds for work of a device, too: a stream of rank 0 does not go on until long after it. */
static void deadline_of_a_device(remuda_devices *devices, remuda_group *group, uint32_t rank)
{
	struct stream *stream = NULL;
	float values[COUNT] = {0};
	sem_t gate;
	sem_init(&gate, 0, 0);
	cuStreamCreate(&stream, 1);
	OK(remuda_barrier(group, NULL));
	if (rank == 0) {
		test_enqueue(stream, wait_at_gate_for_a_while, &gate);
		OK(remuda_set_timeout(group, 2000));
	}
	int32_t status = remuda_device_all_reduce(devices, AT(values), COUNT, REMUDA_F32, REMUDA_SUM, stream, NULL);
	if (rank == 0)
		expect_error(status, REMUDA_TRANSPORT, -1, "NCCL did not complete the operation within the timeout");
	else
		CHECK(status == REMUDA_ABORTED);
	sem_post(&gate);
	cuStreamSynchronize(stream);
	cuStreamDestroy_v2(stream);
}

static void *rank_of_threads(void *argument)
{
	uint32_t rank = (uint32_t)(uintptr_t)argument;
	remuda_devices *devices[GROUPS];
	float values[COUNT] = {0};
	for (int i = 0; i < GROUPS; i++) {
		OK(remuda_devices_connect(groups[i][rank], rank, &devices[i]));
		CHECK(remuda_devices_nccl(devices[i]) == uses_nccl);
	}
	operations(devices[0], rank);
	roots_and_messages(devices[0], rank);
	started(devices[0], rank);
	arguments(devices[0]);
	handles(groups[0][rank]);
	/* Calls with different counts are an error on both ranks, which name each other, and end the group. */
	int32_t status =
		remuda_device_all_reduce(devices[0], AT(values), COUNT - rank, REMUDA_F32, REMUDA_SUM, NULL, NULL);
	expect_error(status, REMUDA_MISMATCH, 1 - rank, rank ? "all_reduce(2999 × f32" : "all_reduce(3000 × f32");
	CHECK(remuda_device_broadcast(devices[0], AT(values), COUNT, REMUDA_F32, 0, NULL, NULL) != REMUDA_OK);
	/* A rank that does not come is named. */
	if (rank == 0) {
		OK(remuda_set_timeout(groups[1][0], 200));
		status = remuda_device_all_reduce(devices[1], AT(values), COUNT, REMUDA_F32, REMUDA_SUM, NULL, NULL);
		expect_error(status, REMUDA_DEADLINE, 1, "rank 1");
		status = remuda_device_all_reduce(devices[2], AT(values), COUNT, REMUDA_F32, REMUDA_SUM, NULL, NULL);
		expect_error(status, REMUDA_ABORTED, 1, "out of memory");
	} else {
		OK(remuda_abort(groups[2][1], "out of memory"));
	}
	failures_in_flight(devices[3], devices[4], rank);
	if (uses_nccl)
		deadline_of_a_device(devices[5], groups[5][rank], rank);
	for (int i = 0; i < GROUPS; i++)
		OK(remuda_devices_free(devices[i]));
	return NULL;
}

static void threads(void)
{
	pthread_t ranks[RANKS];
	remuda_devices *devices = NULL;
	for (int i = 0; i < GROUPS; i++)
		OK(remuda_threads(RANKS, NULL, groups[i]));
	CHECK(remuda_devices_connect(NULL, 0, &devices) == REMUDA_ARGUMENT);
	CHECK(remuda_devices_connect(groups[0][0], 0, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_devices_connect(groups[0][0], 7, &devices) == REMUDA_SYSTEM);
	for (uintptr_t rank = 0; rank < RANKS; rank++)
		pthread_create(&ranks[rank], NULL, rank_of_threads, (void *)rank);
	for (int rank = 0; rank < RANKS; rank++)
		pthread_join(ranks[rank], NULL);
	for (int i = 0; i < GROUPS; i++)
		for (int rank = 0; rank < RANKS; rank++)
			OK(remuda_free(groups[i][rank]));
	printf("%d checks\n", checks);
}

static void lost(void)
{
	remuda_group *group = NULL;
	remuda_devices *devices = NULL;
	float values[COUNT] = {0};
	int64_t rank = -1;
	/* The launcher stops the job when rank 1 has failed. */
	signal(SIGTERM, SIG_IGN);
	OK(remuda_init(NULL, &group));
	OK(remuda_devices_connect(group, remuda_rank(group), &devices));
	OK(remuda_device_all_reduce(devices, AT(values), COUNT, REMUDA_F32, REMUDA_SUM, NULL, NULL));
	if (remuda_rank(group) == 1)
		_exit(5);
	CHECK(remuda_device_all_reduce(devices, AT(values), COUNT, REMUDA_F32, REMUDA_SUM, NULL, NULL) == REMUDA_PEER_LOST);
	remuda_last_error(NULL, 0, NULL, &rank);
	printf("lost rank %" PRId64 "\n", rank);
	fflush(stdout);
	_exit(0);
}

int main(int count, char **words)
{
	uses_nccl = 1 < count && strcmp(words[1], "nccl") == 0;
	if (1 < count && strcmp(words[1], "lost") == 0)
		lost();
	else
		threads();
	return 0;
}

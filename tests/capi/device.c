/* Runs every function of remuda.h for GPUs, with the driver and the NCCL of gpu.c in their place.
 *
 * device nccl    two ranks that are threads of this process, through NCCL
 * device host    the same through host memory
 * device lost    a worker of a job of two: rank 1 exits, and rank 0 prints the rank that it has lost
 *
 * Exits with 0 and prints the number of checks, or names the first check that fails. */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "remuda.h"

enum { RANKS = 2, COUNT = 3000 };

struct stream;
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
	AFTER_FILL(rank, remuda_device_all_reduce(devices, AT(in), COUNT, REMUDA_F32, REMUDA_SUM, stream),
		   in[i] == 1 + 2 * i);
	AFTER_FILL(rank, remuda_device_reduce(devices, AT(in), COUNT, REMUDA_F32, REMUDA_SUM, 1, stream),
		   in[i] == (rank == 1 ? 1 + 2 * i : i));
	AFTER_FILL(rank, remuda_device_broadcast(devices, AT(in), COUNT, REMUDA_F32, 1, stream), in[i] == 1 + i);
	AFTER_FILL(rank, remuda_device_all_gather(devices, AT(in), AT(out), COUNT, REMUDA_F32, stream),
		   out[i] == i && out[COUNT + i] == 1 + i);
	AFTER_FILL(rank,
		   remuda_device_reduce_scatter(devices, AT(in), AT(out), COUNT, REMUDA_F32, REMUDA_SUM, stream),
		   out[i] == 1 + 2 * (int)(rank * COUNT + i));
	AFTER_FILL(10 * rank, remuda_device_all_to_all(devices, AT(in), AT(out), COUNT, REMUDA_F32, stream),
		   out[i] == (int)(rank * COUNT) + i && out[COUNT + i] == 10 + (int)(rank * COUNT) + i);
	/* The default stream, and other types: through host memory also sums. */
	memset(in, 1, sizeof in);
	OK(remuda_device_broadcast(devices, AT(in), sizeof in, REMUDA_U8, 0, NULL));
	OK(remuda_device_all_gather(devices, AT(in), AT(out), 5, REMUDA_I64, NULL));
	int64_t numbers[] = {rank, 7};
	if (!uses_nccl) {
		OK(remuda_device_all_reduce(devices, AT(numbers), 2, REMUDA_I64, REMUDA_MAX, NULL));
		CHECK(numbers[0] == 1 && numbers[1] == 7);
	}
	cuStreamDestroy_v2(stream);
}

/* Wrong calls that change nothing. */
static void arguments(remuda_devices *devices)
{
	float value;
	CHECK(remuda_device_all_reduce(NULL, AT(&value), 1, REMUDA_F32, REMUDA_SUM, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_device_all_reduce(devices, 0, 1, REMUDA_F32, REMUDA_SUM, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_device_all_reduce(devices, AT(&value) + 1, 1, REMUDA_F32, REMUDA_SUM, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_device_all_reduce(devices, AT(&value), 1, 99, REMUDA_SUM, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_device_all_reduce(devices, AT(&value), 1, REMUDA_F32, 99, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_devices_free(NULL) == REMUDA_OK && remuda_devices_nccl(NULL) == 0);
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

static remuda_group *groups[3][RANKS];

static void *rank_of_threads(void *argument)
{
	uint32_t rank = (uint32_t)(uintptr_t)argument;
	remuda_devices *devices[3];
	float values[COUNT] = {0};
	for (int i = 0; i < 3; i++) {
		OK(remuda_devices_connect(groups[i][rank], rank, &devices[i]));
		CHECK(remuda_devices_nccl(devices[i]) == uses_nccl);
	}
	operations(devices[0], rank);
	arguments(devices[0]);
	/* Calls with different counts are an error on both ranks, which name each other, and end the group. */
	int32_t status = remuda_device_all_reduce(devices[0], AT(values), COUNT - rank, REMUDA_F32, REMUDA_SUM, NULL);
	expect_error(status, REMUDA_MISMATCH, 1 - rank, rank ? "all_reduce(2999 × f32" : "all_reduce(3000 × f32");
	CHECK(remuda_device_broadcast(devices[0], AT(values), COUNT, REMUDA_F32, 0, NULL) != REMUDA_OK);
	/* A rank that does not come is named. */
	if (rank == 0) {
		OK(remuda_set_timeout(groups[1][0], 200));
		status = remuda_device_all_reduce(devices[1], AT(values), COUNT, REMUDA_F32, REMUDA_SUM, NULL);
		expect_error(status, REMUDA_DEADLINE, 1, "rank 1");
		status = remuda_device_all_reduce(devices[2], AT(values), COUNT, REMUDA_F32, REMUDA_SUM, NULL);
		expect_error(status, REMUDA_ABORTED, 1, "out of memory");
	} else {
		OK(remuda_abort(groups[2][1], "out of memory"));
	}
	for (int i = 0; i < 3; i++)
		OK(remuda_devices_free(devices[i]));
	return NULL;
}

static void threads(void)
{
	pthread_t ranks[RANKS];
	remuda_devices *devices = NULL;
	for (int i = 0; i < 3; i++)
		OK(remuda_threads(RANKS, NULL, groups[i]));
	CHECK(remuda_devices_connect(NULL, 0, &devices) == REMUDA_ARGUMENT);
	CHECK(remuda_devices_connect(groups[0][0], 0, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_devices_connect(groups[0][0], 7, &devices) == REMUDA_SYSTEM);
	for (uintptr_t rank = 0; rank < RANKS; rank++)
		pthread_create(&ranks[rank], NULL, rank_of_threads, (void *)rank);
	for (int rank = 0; rank < RANKS; rank++)
		pthread_join(ranks[rank], NULL);
	for (int i = 0; i < 3; i++)
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
	OK(remuda_device_all_reduce(devices, AT(values), COUNT, REMUDA_F32, REMUDA_SUM, NULL));
	if (remuda_rank(group) == 1)
		_exit(5);
	CHECK(remuda_device_all_reduce(devices, AT(values), COUNT, REMUDA_F32, REMUDA_SUM, NULL) == REMUDA_PEER_LOST);
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

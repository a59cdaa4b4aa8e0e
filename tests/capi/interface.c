/* Runs every function of remuda.h and checks its results.
 *
 * interface             three ranks that are threads of this process
 * interface (a worker)  the ranks of the job that started it
 *
 * Exits with 0 and prints the number of checks, or names the first check that fails. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "remuda.h"

enum { RANKS = 3 };

static int checks;
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

/* Waits for a started operation, which must succeed. */
static void finish(remuda_work *work)
{
	int32_t has_ended = -1;
	OK(remuda_test(work, &has_ended));
	CHECK(has_ended == 0 || has_ended == 1);
	OK(remuda_wait(work, REMUDA_FOREVER));
}

/* Calls an operation twice, blocking and started: the last argument of CALL is `work`. */
#define TWICE(RESET, CALL, EXPECTED)                                                                                   \
	do {                                                                                                           \
		remuda_work **work = NULL, *handle = NULL;                                                             \
		RESET;                                                                                                 \
		OK(CALL);                                                                                              \
		CHECK(EXPECTED);                                                                                       \
		work = &handle;                                                                                        \
		RESET;                                                                                                 \
		OK(CALL);                                                                                              \
		finish(handle);                                                                                        \
		CHECK(EXPECTED);                                                                                       \
	} while (0)

static void reductions(remuda_group *group, uint32_t rank, uint32_t size)
{
	float sum = size * (size - 1) / 2.0f;
	float values[2];
	TWICE((values[0] = rank, values[1] = 1), remuda_all_reduce(group, values, 2, REMUDA_F32, REMUDA_SUM, work),
	      values[0] == sum && values[1] == size);
	int64_t product;
	TWICE(product = 2, remuda_all_reduce(group, &product, 1, REMUDA_I64, REMUDA_PROD, work),
	      product == 1 << size);
	double mean;
	TWICE(mean = rank, remuda_all_reduce(group, &mean, 1, REMUDA_F64, REMUDA_AVG, work),
	      fabs(mean - sum / size) < 1e-12);
	/* 1 as bf16 and as f16. */
	uint16_t half;
	TWICE(half = 0x3f80, remuda_all_reduce(group, &half, 1, REMUDA_BF16, REMUDA_MIN, work), half == 0x3f80);
	TWICE(half = 0x3c00, remuda_all_reduce(group, &half, 1, REMUDA_F16, REMUDA_MAX, work), half == 0x3c00);
	int32_t largest;
	uint32_t last = size - 1;
	TWICE(largest = rank, remuda_reduce(group, &largest, 1, REMUDA_I32, REMUDA_MAX, last, work),
	      largest == (int32_t)rank);
	float parts[16], part;
	for (uint32_t at = 0; at < size; at++)
		parts[at] = at + rank;
	TWICE(part = -1, remuda_reduce_scatter(group, parts, &part, 1, REMUDA_F32, REMUDA_SUM, work),
	      part == rank * size + sum);
}

static void copies(remuda_group *group, uint32_t rank, uint32_t size)
{
	uint8_t byte, own = rank, all[16] = {0}, given[16];
	uint32_t last = size - 1;
	TWICE(byte = rank, remuda_broadcast(group, &byte, 1, REMUDA_U8, last, work), byte == last);
	TWICE(memset(all, 9, sizeof all), remuda_all_gather(group, &own, all, 1, REMUDA_U8, work),
	      all[0] == 0 && all[last] == last && all[size] == 9);
	uint8_t *at_root = rank == last ? all : NULL;
	TWICE(memset(all, 9, sizeof all), remuda_gather(group, &own, at_root, 1, REMUDA_U8, last, work),
	      rank == last ? all[0] == 0 && all[last] == last : all[0] == 9);
	for (uint32_t at = 0; at < size; at++)
		given[at] = 10 * rank + at;
	TWICE(byte = 99, remuda_scatter(group, rank == 0 ? given : NULL, &byte, 1, REMUDA_U8, 0, work), byte == rank);
	TWICE(memset(all, 99, sizeof all), remuda_all_to_all(group, given, all, 1, REMUDA_U8, work),
	      all[0] == rank && all[last] == 10 * last + rank);
	/* Rank 0 sends two elements to every rank, other ranks send none. */
	size_t sends[16] = {0}, recvs[16] = {0};
	int32_t two[32], received[2];
	for (uint32_t at = 0; at < size; at++) {
		sends[at] = rank == 0 ? 2 : 0;
		two[2 * at] = two[2 * at + 1] = 7 + at;
	}
	recvs[0] = 2;
	TWICE((received[0] = received[1] = 0), remuda_all_to_all_v(group, two, sends, received, recvs, REMUDA_I32, work),
	      received[0] == (int32_t)(7 + rank) && received[1] == received[0]);
	TWICE((void)0, remuda_barrier(group, work), 1);
	OK(remuda_monitored_barrier(group, 0));
	OK(remuda_monitored_barrier(group, 60000));
}

static void messages(remuda_group *group, uint32_t rank, uint32_t size)
{
	uint32_t next = (rank + 1) % size, previous = (rank + size - 1) % size;
	int64_t value = 100 + rank, received = 0;
	remuda_work *send, *recv;
	/* All ranks send first, in a cycle. */
	OK(remuda_send(group, &value, 1, REMUDA_I64, next, &send));
	OK(remuda_recv(group, &received, 1, REMUDA_I64, previous, &recv));
	finish(recv);
	finish(send);
	CHECK(received == 100 + previous);
	if (rank == 0)
		OK(remuda_send(group, &value, 1, REMUDA_I64, 1, NULL));
	if (rank == 1) {
		OK(remuda_recv(group, &received, 1, REMUDA_I64, 0, NULL));
		CHECK(received == 100);
	}
	double number = rank, of_previous;
	remuda_message sends[] = {{&value, 1, REMUDA_I64, next}, {&number, 1, REMUDA_F64, next}};
	remuda_message recvs[] = {{&received, 1, REMUDA_I64, previous}, {&of_previous, 1, REMUDA_F64, previous}};
	TWICE((received = 0, of_previous = -1), remuda_exchange(group, sends, 2, recvs, 2, work),
	      received == 100 + previous && of_previous == previous);
}

static void groups_and_memory(remuda_group *group, uint32_t rank, uint32_t size)
{
	void *memory = NULL;
	OK(remuda_alloc(group, 1 << 20, &memory));
	float *values = memory;
	CHECK(memory != NULL && (uintptr_t)memory % 4096 == 0 && values[77] == 0);
	TWICE((values[0] = rank, values[100000] = 1),
	      remuda_all_reduce(group, values, 200000, REMUDA_F32, REMUDA_SUM, work),
	      values[0] == size * (size - 1) / 2.0f && values[100000] == size);
	/* Ranks 1 and 0, in this order; the others do not call it. */
	if (rank < 2) {
		remuda_options options = {.size = sizeof options, .timeout_ms = 60000};
		uint32_t ranks[] = {1, 0};
		remuda_group *pair = NULL;
		OK(remuda_group_of(group, ranks, 2, "pair", rank ? &options : NULL, &pair));
		CHECK(remuda_size(pair) == 2 && remuda_rank(pair) == 1 - rank);
		int32_t sum = rank + 1;
		OK(remuda_all_reduce(pair, &sum, 1, REMUDA_I32, REMUDA_SUM, NULL));
		CHECK(sum == 3);
		/* Memory of the group is memory of its subgroups. */
		values[5] = 1;
		OK(remuda_all_reduce(pair, values, 200000, REMUDA_F32, REMUDA_MAX, NULL));
		CHECK(values[5] == 1);
		OK(remuda_barrier(pair, NULL));
		OK(remuda_free(pair));
	}
	OK(remuda_release(memory));
	CHECK(remuda_release(memory) == REMUDA_ARGUMENT);
	OK(remuda_release(NULL));
	OK(remuda_set_timeout(group, 90000));
	OK(remuda_check(group));
	OK(remuda_note_step(group, 3, 10, 0.5, NAN));
	OK(remuda_note_step(group, 4, 0, NAN, 1e4));
	OK(remuda_barrier(group, NULL));
}

static void bad_arguments(remuda_group *group)
{
	float value = 1;
	char message[200], first[5];
	int32_t kind = 0, has_ended;
	int64_t rank = 0;
	CHECK(remuda_all_reduce(NULL, &value, 1, REMUDA_F32, REMUDA_SUM, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_all_reduce(group, NULL, 1, REMUDA_F32, REMUDA_SUM, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_all_reduce(group, (char *)&value + 1, 1, REMUDA_F32, REMUDA_SUM, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_all_reduce(group, &value, 1, 0, REMUDA_SUM, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_all_reduce(group, &value, 1, 256 + REMUDA_F32, REMUDA_SUM, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_all_reduce(group, &value, 1, REMUDA_F32, 77, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_all_gather(group, &value, &value, SIZE_MAX / 2, REMUDA_F32, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_broadcast(group, &value, 1, REMUDA_F32, 99, NULL) == REMUDA_ARGUMENT);
	size_t length = remuda_last_error(message, sizeof message, &kind, &rank);
	CHECK(length == strlen(message) && strstr(message, "rank 99 is not in a group") != NULL);
	CHECK(kind == REMUDA_ARGUMENT && rank == -1);
	CHECK(remuda_last_error(first, sizeof first, NULL, NULL) == length && strcmp(first, "broa") == 0);
	CHECK(remuda_last_error(NULL, 0, NULL, NULL) == length);
	CHECK(strstr(remuda_hint(kind), "documentation") != NULL && remuda_hint(0) == NULL);
	CHECK(remuda_wait(NULL, 0) == REMUDA_ARGUMENT && remuda_test(NULL, &has_ended) == REMUDA_ARGUMENT);
	CHECK(remuda_group_of(group, NULL, 1, "x", NULL, NULL) == REMUDA_ARGUMENT);
	CHECK(remuda_abort(group, NULL) == REMUDA_ARGUMENT && remuda_set_timeout(group, 0) == REMUDA_ARGUMENT);
	CHECK(remuda_size(NULL) == 0 && remuda_rank(NULL) == 0 && remuda_free(NULL) == REMUDA_OK);
	/* Rejected calls are not operations: the group can be used further. */
	OK(remuda_all_reduce(group, &value, 1, REMUDA_F32, REMUDA_SUM, NULL));
}

static void everything(remuda_group *group)
{
	uint32_t rank = remuda_rank(group), size = remuda_size(group);
	CHECK(2 <= size && size <= 16 && rank < size);
	reductions(group, rank, size);
	copies(group, rank, size);
	messages(group, rank, size);
	groups_and_memory(group, rank, size);
	bad_arguments(group);
}

static void *run_rank(void *group)
{
	everything(group);
	OK(remuda_free(group));
	return NULL;
}

/* All ranks but 0 take part in `operation`; rank 0 calls `other`. */
struct call {
	remuda_group *group;
	int32_t (*operation)(remuda_group *, uint32_t rank);
	int32_t status, kind;
	int64_t rank;
	char message[400];
};

static int32_t mismatch(remuda_group *group, uint32_t rank)
{
	float values[2] = {0, 0};
	return remuda_all_reduce(group, values, rank == 0 ? 1 : 2, REMUDA_F32, REMUDA_SUM, NULL);
}

static int32_t aborted(remuda_group *group, uint32_t rank)
{
	remuda_work *work;
	if (rank == 0)
		return remuda_abort(group, "the data is bad");
	OK(remuda_barrier(group, &work));
	return remuda_wait(work, REMUDA_FOREVER);
}

static int32_t lost(remuda_group *group, uint32_t rank)
{
	return rank == 0 ? remuda_free(group) : remuda_barrier(group, NULL);
}

static int32_t late(remuda_group *group, uint32_t rank)
{
	remuda_work *work;
	if (rank == 0)
		return REMUDA_OK;
	OK(remuda_set_timeout(group, 50));
	OK(remuda_barrier(group, &work));
	CHECK(remuda_wait(work, 0) == REMUDA_IN_PROGRESS);
	return remuda_wait(work, REMUDA_FOREVER);
}

/* A store of the threads of this process. */
static struct entry {
	char key[100], value[1000];
} entries[32];
static int entry_count;
static pthread_mutex_t store_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t store_changed = PTHREAD_COND_INITIALIZER;

static int32_t store_set(void *context, const char *key, const char *value)
{
	pthread_mutex_lock(&store_lock);
	struct entry *entry = &entries[entry_count++];
	snprintf(entry->key, sizeof entry->key, "%s", key);
	snprintf(entry->value, sizeof entry->value, "%s", value);
	pthread_cond_broadcast(&store_changed);
	pthread_mutex_unlock(&store_lock);
	return context == entries ? 0 : -1;
}

static int32_t store_get(void *context, const char *key, char *value, size_t size)
{
	int at;
	pthread_mutex_lock(&store_lock);
	for (;;) {
		for (at = 0; at < entry_count && strcmp(entries[at].key, key) != 0; at++)
			;
		if (at < entry_count)
			break;
		pthread_cond_wait(&store_changed, &store_lock);
	}
	int length = snprintf(value, size, "%s", entries[at].value);
	pthread_mutex_unlock(&store_lock);
	return context == entries && length < (int)size ? 0 : -1;
}

static int32_t store_fails(void *context, const char *key, char *value, size_t size)
{
	(void)context, (void)key, (void)value, (void)size;
	return -1;
}

static void *run_met(void *argument)
{
	uint32_t rank = *(uint32_t *)argument;
	remuda_store store = {entries, store_set, store_get};
	remuda_options options = {.size = sizeof options, .timeout_ms = 120000};
	remuda_group *group = NULL;
	OK(remuda_meet(&store, "127.0.0.1", rank, RANKS, &options, &group));
	CHECK(remuda_rank(group) == rank && remuda_size(group) == RANKS);
	return run_rank(group);
}

static void meeting(void)
{
	pthread_t threads[RANKS];
	uint32_t ranks[RANKS];
	for (uint32_t rank = 0; rank < RANKS; rank++) {
		ranks[rank] = rank;
		pthread_create(&threads[rank], NULL, run_met, &ranks[rank]);
	}
	for (int rank = 0; rank < RANKS; rank++)
		pthread_join(threads[rank], NULL);
	remuda_store store = {entries, store_set, store_fails}, empty = {entries, NULL, store_get};
	remuda_group *group = NULL;
	CHECK(remuda_meet(NULL, "", 0, 1, NULL, &group) == REMUDA_ARGUMENT);
	CHECK(remuda_meet(&empty, "", 0, 1, NULL, &group) == REMUDA_ARGUMENT);
	CHECK(remuda_meet(&store, "", 1, 1, NULL, &group) == REMUDA_ARGUMENT);
	CHECK(remuda_meet(&store, "", 0, 1, NULL, &group) == REMUDA_SYSTEM && group == NULL);
}

static void *run_call(void *argument)
{
	struct call *call = argument;
	call->status = call->operation(call->group, remuda_rank(call->group));
	remuda_last_error(call->message, sizeof call->message, &call->kind, &call->rank);
	return NULL;
}

/* Rank 1 must fail with a status, a message, and the rank that it names. */
static void failure(int32_t (*operation)(remuda_group *, uint32_t), int32_t status, const char *message)
{
	remuda_group *groups[2];
	struct call calls[2];
	pthread_t threads[2];
	OK(remuda_threads(2, NULL, groups));
	for (int rank = 0; rank < 2; rank++) {
		calls[rank] = (struct call){.group = groups[rank], .operation = operation};
		pthread_create(&threads[rank], NULL, run_call, &calls[rank]);
	}
	for (int rank = 0; rank < 2; rank++)
		pthread_join(threads[rank], NULL);
	if (calls[1].status != status || strstr(calls[1].message, message) == NULL)
		fprintf(stderr, "status %" PRId32 ": %s\n", calls[1].status, calls[1].message);
	CHECK(calls[1].status == status && calls[1].kind == status && calls[1].rank == 0);
	CHECK(strstr(calls[1].message, message) != NULL && remuda_hint(status) != NULL);
	if (operation == aborted) {
		CHECK(remuda_check(groups[1]) == REMUDA_ABORTED);
		CHECK(remuda_barrier(groups[1], NULL) == REMUDA_ABORTED);
	}
	if (operation != lost)
		OK(remuda_free(groups[0]));
	OK(remuda_free(groups[1]));
}

int main(void)
{
	CHECK(remuda_abi() == REMUDA_ABI && strlen(remuda_version()) >= 5);
	remuda_options options = {.size = sizeof options, .timeout_ms = 120000};
	CHECK(remuda_last_hint() == NULL);
	if (getenv("REMUDA_RANK_FD")) {
		remuda_group *group = NULL, *second = NULL;
		CHECK(remuda_is_worker() == 1);
		OK(remuda_init(&options, &group));
		CHECK(remuda_init(&options, &second) == REMUDA_ENVIRONMENT);
		everything(group);
		OK(remuda_free(group));
		printf("%d checks\n", checks);
		return 0;
	}
	remuda_group *groups[RANKS];
	pthread_t threads[RANKS];
	CHECK(remuda_is_worker() == 0 && remuda_init(NULL, groups) == REMUDA_ENVIRONMENT);
	CHECK(strcmp(remuda_last_hint(), remuda_hint(REMUDA_ENVIRONMENT)) == 0);
	CHECK(remuda_last_error(NULL, 0, NULL, NULL) != 0);
	OK(remuda_threads(RANKS, &options, groups));
	for (int rank = 0; rank < RANKS; rank++)
		pthread_create(&threads[rank], NULL, run_rank, groups[rank]);
	for (int rank = 0; rank < RANKS; rank++)
		pthread_join(threads[rank], NULL);
	meeting();
	failure(mismatch, REMUDA_MISMATCH, "this rank called all_reduce");
	failure(aborted, REMUDA_ABORTED, "rank 0 aborted the group: the data is bad");
	failure(lost, REMUDA_PEER_LOST, "dropped the group before it took part");
	failure(late, REMUDA_DEADLINE, "waiting for rank 0");
	printf("%d checks\n", checks);
	return 0;
}

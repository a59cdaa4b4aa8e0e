/* One rank of the all-reduce timing with MPI: float32 sums in place. Prints one line a size:
 * bytes, microseconds (the median of blocks; a block takes as long as its slowest rank). The first
 * line is the rate at which all ranks copy memory at once, in GB/s of result.
 *
 * all_reduce BYTES_MAX BLOCK_SECONDS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 5, COPY_BYTES = 64 << 20 };

static int ascending(const void *left, const void *right)
{
	double l = *(const double *)left, r = *(const double *)right;
	return (l > r) - (l < r);
}

static double slowest(double seconds)
{
	MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return seconds;
}

static double repeat(float *data, size_t count, long times)
{
	for (size_t at = 0; at < count; at++)
		data[at] = 1;
	MPI_Barrier(MPI_COMM_WORLD);
	double start = MPI_Wtime();
	for (long time = 0; time < times; time++)
		MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	return slowest((MPI_Wtime() - start) / (double)times);
}

static double copy_rate(int world)
{
	char *from = malloc(COPY_BYTES), *to = malloc(COPY_BYTES);
	if (!from || !to)
		MPI_Abort(MPI_COMM_WORLD, 1);
	memset(from, 1, COPY_BYTES);
	memset(to, 2, COPY_BYTES);
	MPI_Barrier(MPI_COMM_WORLD);
	double start = MPI_Wtime();
	for (int time = 0; time < 5; time++) {
		from[time] = (char)time;
		memcpy(to, from, COPY_BYTES);
	}
	double seconds = slowest((MPI_Wtime() - start) / 5);
	free(from);
	free(to);
	return world * (double)COPY_BYTES / seconds / 1e9;
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	int rank, world;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &world);
	size_t bytes_max = argc > 1 ? strtoull(argv[1], NULL, 10) : 1 << 20;
	double budget = argc > 2 ? strtod(argv[2], NULL) : 0.1;
	double rate = copy_rate(world);
	if (rank == 0)
		printf("copy %.3f\n", rate);
	for (size_t bytes = 1024; bytes <= bytes_max; bytes *= 4) {
		size_t count = bytes / sizeof(float);
		float *data = malloc(bytes);
		if (!data)
			MPI_Abort(MPI_COMM_WORLD, 1);
		repeat(data, count, 2);
		double one = repeat(data, count, 2), blocks[BLOCKS];
		long times = (long)(budget / one);
		times = times < 1 ? 1 : times > 5000 ? 5000 : times;
		for (int block = 0; block < BLOCKS; block++)
			blocks[block] = repeat(data, count, times);
		qsort(blocks, BLOCKS, sizeof blocks[0], ascending);
		if (rank == 0)
			printf("%zu %.3f\n", bytes, blocks[BLOCKS / 2] * 1e6);
		free(data);
	}
	MPI_Finalize();
	return 0;
}

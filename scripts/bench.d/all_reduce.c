/* One rank of the all-reduce benchmark with MPI: float32 sums in place. Prints one line per size:
 * bytes, microseconds (the median of blocks; the time of a block is that of its slowest rank). The
 * first line is the memory rate, in GB/s of bytes read and written, while all ranks add 1 to every
 * number of their own memory at the same time.
 *
 * all_reduce BYTES_MAX BLOCK_SECONDS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 5, UPDATED_BYTES = 128 << 20 };

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

static double memory_rate(int world)
{
	float *numbers = calloc(UPDATED_BYTES, 1);
	double blocks[BLOCKS];
	if (!numbers)
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (int block = -1; block < BLOCKS; block++) {
		MPI_Barrier(MPI_COMM_WORLD);
		/* From the first start to the last end: ranks share a clock, and may share a core. */
		double start = MPI_Wtime();
		for (size_t at = 0; at < UPDATED_BYTES / sizeof(float); at++)
			numbers[at] += 1;
		double end = MPI_Wtime();
		MPI_Allreduce(MPI_IN_PLACE, &start, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
		MPI_Allreduce(MPI_IN_PLACE, &end, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
		double seconds = end - start;
		if (block >= 0)
			blocks[block] = world * 2.0 * UPDATED_BYTES / seconds / 1e9;
	}
	qsort(blocks, BLOCKS, sizeof blocks[0], ascending);
	free(numbers);
	return blocks[BLOCKS / 2];
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	int rank, world;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &world);
	size_t bytes_max = argc > 1 ? strtoull(argv[1], NULL, 10) : 1 << 20;
	double budget = argc > 2 ? strtod(argv[2], NULL) : 0.1;
	double rate = memory_rate(world);
	if (rank == 0)
		printf("memory %.3f\n", rate);
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

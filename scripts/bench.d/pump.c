/* Upper limit of TCP over loopback: two processes send each other bytes in both directions at the same
 * time, in one block, or in steps like a collective in rounds. Prints GB/s per direction, the median of
 * blocks of the faster mode.
 *
 * pump BYTES */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 5, MEMORY_BYTES = 1 << 20, STEP_BYTES = 1 << 19, IDLE_POLLS_MAX = 200 };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int ascending(const void *left, const void *right)
{
	double l = *(const double *)left, r = *(const double *)right;
	return (l > r) - (l < r);
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

/* Bytes that a call transferred; 0 if it would block. */
static size_t transferred(ssize_t count, const char *what)
{
	if (count > 0)
		return count;
	if (count == 0 || (errno != EAGAIN && errno != EINTR))
		die(what);
	return 0;
}

/* Sends and receives BYTES, always from and into the same memory. */
static void pump(int fd, size_t bytes, char *from, char *to)
{
	size_t sent = 0, received = 0;
	int idle_polls = 0;
	while (sent < bytes || received < bytes) {
		size_t before = sent + received;
		size_t at = sent % MEMORY_BYTES, into = received % MEMORY_BYTES;
		size_t out = bytes - sent < MEMORY_BYTES - at ? bytes - sent : MEMORY_BYTES - at;
		size_t in = bytes - received < MEMORY_BYTES - into ? bytes - received : MEMORY_BYTES - into;
		if (out)
			sent += transferred(send(fd, from + at, out, MSG_NOSIGNAL), "send");
		if (in)
			received += transferred(recv(fd, to + into, in, 0), "recv");
		idle_polls = sent + received == before ? idle_polls + 1 : 0;
		if (0 < idle_polls && idle_polls < IDLE_POLLS_MAX) {
			sched_yield();
		} else if (idle_polls) {
			struct pollfd wait = { fd, (out ? POLLOUT : 0) | (in ? POLLIN : 0), 0 };
			poll(&wait, 1, 1000);
		}
	}
}

static int prepare(int fd)
{
	int one = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

static double rate(int fd, size_t bytes, size_t step, char *from, char *to)
{
	pump(fd, 1, from, to);
	double start = now();
	for (size_t done = 0; done < bytes; done += step)
		pump(fd, step, from, to);
	return bytes / (now() - start) / 1e9;
}

static double median(double blocks[BLOCKS])
{
	qsort(blocks, BLOCKS, sizeof blocks[0], ascending);
	return blocks[BLOCKS / 2];
}

static void run(int fd, size_t bytes, int prints_result)
{
	char *from = malloc(MEMORY_BYTES), *to = malloc(MEMORY_BYTES);
	double whole[BLOCKS], steps[BLOCKS];
	if (!from || !to)
		die("malloc");
	memset(from, 1, MEMORY_BYTES);
	memset(to, 2, MEMORY_BYTES);
	rate(fd, bytes, bytes, from, to);
	for (int block = 0; block < BLOCKS; block++) {
		whole[block] = rate(fd, bytes, bytes, from, to);
		steps[block] = rate(fd, bytes, STEP_BYTES, from, to);
	}
	double best = median(whole) < median(steps) ? median(steps) : median(whole);
	if (prints_result)
		printf("pump %.3f\n", best);
}

int main(int argc, char **argv)
{
	size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 256 << 20;
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof address;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1)
	    || getsockname(listener, (struct sockaddr *)&address, &length))
		die("listen");
	pid_t child = fork();
	if (child < 0)
		die("fork");
	int fd = child ? accept(listener, NULL, NULL) : socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || (!child && connect(fd, (struct sockaddr *)&address, length)))
		die("connect");
	run(prepare(fd), bytes, child != 0);
	if (!child)
		return 0;
	int status;
	waitpid(child, &status, 0);
	return status != 0;
}

/* Worker that writes lines with verifiable content, and the checker of these lines.
 *
 *   emit MEGABYTES [RANK]            writes MEGABYTES · 10^6 bytes of 100-byte lines; the rank is
 *                                    RANK, else the rank in the environment
 *   emit --check RANKS MEGABYTES     reads such lines, with any prefix, and prints the numbers of whole,
 *                                    torn, lost, repeated and reordered lines as JSON
 *
 * A line contains its rank and number, and a slice of a fixed text that depends on both: a line that was
 * spliced, cut or mixed is never equal to another line.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 100, HEAD = 25, BODY = LINE - HEAD - 1, TEXT = 4096, BLOCK = 8192 };

static char text[TEXT];

/* A fixed pseudo-random text of printable characters without blanks. */
static void make_text(void) {
    uint32_t state = 0x2545f491;
    for (int i = 0; i < TEXT; i++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        text[i] = (char)('!' + state % 94);
    }
}

static void put_number(char *end, int digits, uint64_t number) {
    for (; digits > 0; digits--, number /= 10)
        *--end = (char)('0' + number % 10);
}

static void make_line(char *line, uint32_t rank, uint64_t number) {
    uint64_t mix = (number * 0x9e3779b97f4a7c15u) ^ (rank * 0xbf58476d1ce4e5b9u);
    memcpy(line, "worker 000 line 00000000 ", HEAD);
    put_number(line + 10, 3, rank);
    put_number(line + 24, 8, number);
    memcpy(line + HEAD, text + (mix >> 32) % (TEXT - BODY), BODY);
    line[LINE - 1] = '\n';
}

static int write_all(const char *bytes, size_t left) {
    while (left > 0) {
        ssize_t wrote = write(STDOUT_FILENO, bytes, left);
        if (wrote < 0)
            return -1;
        bytes += wrote;
        left -= (size_t)wrote;
    }
    return 0;
}

/* Writes blocks of 8 KiB, like stdio: most end in the middle of a line. */
static int emit(uint32_t rank, uint64_t lines) {
    static char block[BLOCK + LINE];
    size_t filled = 0;
    for (uint64_t number = 0; number < lines; number++) {
        make_line(block + filled, rank, number);
        filled += LINE;
        if (filled >= BLOCK) {
            if (write_all(block, BLOCK))
                return 1;
            filled -= BLOCK;
            memmove(block, block + BLOCK, filled);
        }
    }
    return write_all(block, filled) ? 1 : 0;
}

struct count {
    uint64_t whole, torn, lost, repeated, disordered, other;
};

/* Whether the line is an intact line of this program; sets its rank and number. */
static int parse(const char *line, size_t length, uint32_t *rank, uint64_t *number) {
    char expected[LINE];
    if (length != LINE || sscanf(line, "worker %3u line %8lu ", rank, number) != 2)
        return 0;
    make_line(expected, *rank, *number);
    return memcmp(line, expected, LINE) == 0;
}

static int check(uint32_t ranks, uint64_t lines) {
    struct count count = {0};
    unsigned char *seen = calloc(ranks, lines);
    uint64_t *next = calloc(ranks, sizeof *next);
    char *buffer = NULL;
    size_t capacity = 0;
    ssize_t length;
    if (seen == NULL || next == NULL)
        return 2;
    while ((length = getline(&buffer, &capacity, stdin)) > 0) {
        uint32_t rank = 0;
        uint64_t number = 0;
        char *start = memmem(buffer, (size_t)length, "worker ", 7);
        if (start == NULL) {
            /* Text of a line without its head is a torn line; anything else is other output. */
            if (length > BODY / 2 && memchr(buffer, ' ', (size_t)length) == NULL)
                count.torn++;
            else
                count.other++;
        } else if (!parse(start, (size_t)(buffer + length - start), &rank, &number) || rank >= ranks ||
                   number >= lines) {
            count.torn++;
        } else {
            unsigned char *mark = &seen[rank * lines + number];
            count.whole += *mark == 0;
            count.repeated += *mark != 0;
            count.disordered += number < next[rank];
            next[rank] = number + 1;
            *mark = 1;
        }
    }
    count.lost = ranks * lines - count.whole;
    printf("{\"whole\": %lu, \"torn\": %lu, \"lost\": %lu, \"repeated\": %lu, \"disordered\": %lu, "
           "\"other\": %lu}\n",
           count.whole, count.torn, count.lost, count.repeated, count.disordered, count.other);
    free(seen);
    free(next);
    free(buffer);
    return 0;
}

static uint32_t rank_of_environment(void) {
    const char *rank = getenv("RANK");
    if (rank == NULL)
        rank = getenv("OMPI_COMM_WORLD_RANK");
    return rank == NULL ? 0 : (uint32_t)strtoul(rank, NULL, 10);
}

int main(int count, char **words) {
    const uint64_t lines_of_a_megabyte = 1000000 / LINE;
    make_text();
    if (count == 4 && strcmp(words[1], "--check") == 0)
        return check((uint32_t)strtoul(words[2], NULL, 10), strtoul(words[3], NULL, 10) * lines_of_a_megabyte);
    if (count != 2 && count != 3) {
        fprintf(stderr, "usage: emit MEGABYTES [RANK] | emit --check RANKS MEGABYTES\n");
        return 2;
    }
    uint32_t rank = count == 3 ? (uint32_t)strtoul(words[2], NULL, 10) : rank_of_environment();
    return emit(rank, strtoul(words[1], NULL, 10) * lines_of_a_megabyte);
}

/* copiers.c - what threads save that help to copy a client's shared memory: the same copies by the
 * caller alone and by teams, in turns, in one run.
 *
 * Another core has just written the memory and read what the copy will overwrite, as clients and
 * workers do, so that the copying core's caches are cold; and everybody has slept for a while, so
 * that helpers have to wake. Arguments: numbers of helpers; without any 1, 2, 4 and 8. Prints
 * medians, and the time of each team over that of the caller alone. */
#include "api/request/copiers.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/shm.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 101
#define MAX_TEAMS 16
#define REST_US 3000
#define SLOTS 8u /* of the slab, taken in turns */

static const size_t SIZES[] = {1204224, 4816896}; /* 8 x 224 x 224 x 3, as bytes and as floats */
#define MOST SIZES[1]

enum { READ, WRITE, N_WAYS };
static const char *const WAYS[N_WAYS] = {"read", "write"};

struct bench {
    struct sh_shm client, slab;
    size_t n_teams;
    unsigned helpers[MAX_TEAMS]; /* the first is 0 */
    struct copiers *teams[MAX_TEAMS];
    int64_t took[MAX_TEAMS][ROUNDS];
    pthread_barrier_t turn; /* of the other core: once to begin, once at its end */
    unsigned char *dirty, *seen;
    size_t bytes;
    unsigned char value;
    atomic_ullong sum; /* so that nothing is left out */
};

static void must(int rc, const struct sh_err *err)
{
    if (!rc)
        return;
    fprintf(stderr, "copiers: %s %s\n", err->msg, err->detail);
    _exit(EXIT_FAILURE);
}

/* To the first or the last core that we may use. */
static void pin(bool last)
{
    cpu_set_t all, one;
    int at = -1;

    sched_getaffinity(0, sizeof(all), &all);
    for (int k = 0; k < CPU_SETSIZE && (last || at < 0); k++)
        if (CPU_ISSET(k, &all))
            at = k;
    CPU_ZERO(&one);
    CPU_SET(at, &one);
    sched_setaffinity(0, sizeof(one), &one);
}

static void *other_core(void *arg)
{
    struct bench *b = arg;

    pin(true);
    for (;;) {
        unsigned long long sum = 0;

        pthread_barrier_wait(&b->turn);
        if (b->bytes == 0)
            return NULL;
        memset(b->dirty, b->value, b->bytes);
        for (size_t k = 0; k < b->bytes; k += 64)
            sum += b->seen[k];
        atomic_fetch_add(&b->sum, sum);
        pthread_barrier_wait(&b->turn);
    }
}

static void one_turn(struct bench *b, size_t team, int way, int round)
{
    unsigned char *slot = (unsigned char *)b->slab.base + MOST * ((unsigned)round % SLOTS);
    unsigned char *client = b->client.base;
    int64_t begin;
    bool ok;

    b->dirty = way == READ ? client : slot;
    b->seen = way == READ ? slot : client;
    b->value++;
    pthread_barrier_wait(&b->turn);
    pthread_barrier_wait(&b->turn);
    usleep(REST_US);
    begin = sh_clock_ns();
    if (way == READ)
        ok = copiers_pread(b->teams[team], b->client.fd, slot, b->bytes, 0) == (ssize_t)b->bytes;
    else
        ok = copiers_pwrite(b->teams[team], b->client.fd, slot, b->bytes, 0);
    b->took[team][round] = sh_clock_ns() - begin;
    if (!ok || memcmp(client, slot, b->bytes) != 0 || client[0] != b->value) {
        fprintf(stderr, "copiers: not what was written\n");
        _exit(EXIT_FAILURE);
    }
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static void measure(struct bench *b, int way)
{
    for (int round = 0; round < ROUNDS; round++)
        for (size_t team = 0; team < b->n_teams; team++)
            one_turn(b, team, way, round);
    for (size_t team = 0; team < b->n_teams; team++) {
        qsort(b->took[team], ROUNDS, sizeof(b->took[team][0]), compare);
        printf("%6s %9zu %8u %10.1f %10.1f %9.2f\n", WAYS[way], b->bytes, b->helpers[team],
               (double)b->took[team][ROUNDS / 2] / 1e3,
               (double)b->took[team][ROUNDS * 9 / 10] / 1e3,
               (double)b->took[team][ROUNDS / 2] / (double)b->took[0][ROUNDS / 2]);
    }
}

int main(int argc, char **argv)
{
    static struct bench b = {.n_teams = 5, .helpers = {0, 1, 2, 4, 8}};
    struct sh_err err = {0};
    pthread_t other;

    if (argc > 1)
        b.n_teams = SH_MIN((size_t)argc, (size_t)MAX_TEAMS);
    for (size_t i = 1; argc > 1 && i < b.n_teams; i++)
        b.helpers[i] = (unsigned)strtoul(argv[i], NULL, 10);
    for (size_t i = 0; i < b.n_teams; i++) /* before we are pinned: threads inherit that */
        must(copiers_new(b.helpers[i], &b.teams[i], &err), &err);
    must(sh_shm_create("bench-client", MOST, &b.client, &err), &err);
    must(sh_shm_create("bench-slab", MOST * SLOTS, &b.slab, &err), &err);
    pthread_barrier_init(&b.turn, NULL, 2);
    if (pthread_create(&other, NULL, other_core, &b))
        must(SH_FAIL(&err, SH_E_NOMEM, "could not start a thread"), &err);
    pin(false);
    printf("%6s %9s %8s %10s %10s %9s\n", "", "bytes", "helpers", "median us", "p90 us",
           "of alone");
    for (int way = 0; way < N_WAYS; way++)
        for (size_t i = 0; i < SH_ARRAY_LEN(SIZES); i++) {
            b.bytes = SIZES[i];
            measure(&b, way);
        }
    b.bytes = 0;
    pthread_barrier_wait(&b.turn);
    pthread_join(other, NULL);
    for (size_t i = 0; i < b.n_teams; i++)
        copiers_free(b.teams[i]);
    sh_shm_fini(&b.slab);
    sh_shm_fini(&b.client);
    return EXIT_SUCCESS;
}

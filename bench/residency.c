/* residency.c - how long finding room on the device takes: every switch does it for what it copies.
 *
 * Switches to images of 40 to 640 MB in random order, each with a workspace, from 19 tenants that
 * have quotas: images that fit all together, and more and more of them than fit. Prints the mean,
 * the median and the longest. */
#include "executor/memory/residency.h"

#include "common/clock.h"
#include "common/mem.h"
#include "simulate/draw.h"

#include <stdio.h>
#include <stdlib.h>

#define N_TENANTS 19u
#define N_FIRST 1000 /* switches that fill the device */
#define N_SWITCHES 4000
#define N_CLONES 1000

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static int add_images(struct residency *r, uint32_t n, uint32_t *id, struct sh_err *err)
{
    const struct residency_quota q = {.max_blocks = RESIDENCY_NO_MAX, .share = 1};
    int rc = SH_OK;

    for (uint32_t tag = 1; !rc && tag <= N_TENANTS; tag++)
        rc = residency_set_quota(r, tag, &q, err);
    for (uint32_t i = 0; !rc && i < n; i++) {
        const struct residency_image im = {
            .tag = 1 + i % N_TENANTS, .n_blocks = 20 + draw(300), .keep_blocks = 5};

        rc = residency_add(r, &im, &id[i], err);
    }
    return rc;
}

/* The image has its place, and its run a workspace; *evicted_out: blocks. */
static int switch_to(struct residency *r, uint32_t id, uint32_t *evicted_out, struct sh_err *err)
{
    const struct residency_need need = {
        .n_blocks = 60, .tag = residency_tag(r, id), .kind = ARENA_WORK, .spare = id};
    struct arena_range work;
    struct residency_place p = {{0}};
    int rc = residency_alloc(r, &need, &work, evicted_out, err);

    if (!rc)
        rc = residency_place(r, id, true, &p, err);
    *evicted_out += p.evicted_blocks;
    residency_release(r, &work, need.tag);
    return rc;
}

/* The median of a copy that is made and thrown away, in microseconds. */
static int bench_clone(const struct residency *r, double *us_out, struct sh_err *err)
{
    static int64_t took[N_CLONES];
    int rc = SH_OK;

    for (int k = 0; !rc && k < N_CLONES; k++) {
        struct residency *c = NULL;
        int64_t t0 = sh_clock_ns();

        rc = residency_clone(r, &c, err);
        residency_free(c);
        took[k] = sh_clock_ns() - t0;
    }
    qsort(took, N_CLONES, sizeof(took[0]), compare);
    *us_out = (double)took[N_CLONES / 2] / 1e3;
    return rc;
}

static int bench(uint32_t n_images, uint32_t n_blocks, struct sh_err *err)
{
    static uint32_t id[RESIDENCY_IMAGES];
    static int64_t took[N_SWITCHES];
    struct residency *r = NULL;
    int64_t sum = 0;
    uint64_t evicted = 0;
    double clone_us = 0;
    int rc = residency_new(n_blocks, &(struct residency_conf){0}, &r, err);

    if (!rc)
        rc = add_images(r, n_images, id, err);
    for (int k = -N_FIRST; !rc && k < N_SWITCHES; k++) {
        uint32_t i = id[draw(n_images)], n = 0;
        int64_t t0 = sh_clock_ns();

        rc = switch_to(r, i, &n, err);
        residency_touch(r, i, k);
        if (k < 0)
            continue;
        took[k] = sh_clock_ns() - t0;
        sum += took[k];
        evicted += n;
    }
    if (!rc)
        rc = bench_clone(r, &clone_us, err);
    residency_free(r);
    if (rc)
        return rc;
    qsort(took, N_SWITCHES, sizeof(took[0]), compare);
    printf("%6u %8u %10.1f %10.1f %10.1f %10.1f %10.1f\n", n_images, n_blocks,
           (double)sum / N_SWITCHES / 1e3, (double)took[N_SWITCHES / 2] / 1e3,
           (double)took[N_SWITCHES - 1] / 1e3, (double)evicted / N_SWITCHES, clone_us);
    return SH_OK;
}

int main(void)
{
    static const struct {
        uint32_t images, blocks;
    } POOLS[] = {{10, 24576}, {150, 24576}, {300, 24576}, {896, 24576}, {896, 71168}};
    struct sh_err err = {0};

    printf("%6s %8s %10s %10s %10s %10s %10s\n", "images", "blocks", "mean us", "median us",
           "longest us", "evicted", "copy us");
    for (size_t i = 0; i < SH_ARRAY_LEN(POOLS); i++)
        if (bench(POOLS[i].images, POOLS[i].blocks, &err)) {
            fprintf(stderr, "%s\n", err.msg);
            return EXIT_FAILURE;
        }
    return EXIT_SUCCESS;
}

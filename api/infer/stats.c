/* stats.c - see stats.h. */
#include "api/infer/stats.h"

#include "common/clock.h"
#include "common/idmap.h"
#include "common/mem.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_VERSIONS 131072 /* more than the largest max-versions of a scheduler */

struct line {
    int64_t last_ms, samples;
    double runs; /* a request of 2 samples in a run of 8 counts a quarter */
    int64_t n_ok, n_fail, ok_ns, fail_ns, queue_ns, copy_ns, compute_ns;
};

struct stats {
    pthread_mutex_t lock; /* the lines; held for an addition or a copy */
    struct line **lines;  /* OWNED, and each of them */
    size_t n, cap;
    struct idmap by_id;
};

int stats_new(struct stats **out, struct sh_err *err)
{
    struct stats *s = calloc(1, sizeof(*s));

    *out = s;
    if (!s)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the statistics");
    pthread_mutex_init(&s->lock, NULL);
    return SH_OK;
}

void stats_free(struct stats *s)
{
    if (!s)
        return;
    pthread_mutex_destroy(&s->lock);
    for (size_t i = 0; i < s->n; i++)
        free(s->lines[i]);
    free(s->lines);
    idmap_fini(&s->by_id);
    free(s);
}

/* Without memory, or beyond MAX_VERSIONS: NULL, and the version is not counted. lock is held. */
static struct line *line_make(struct stats *s, int64_t id)
{
    struct line *l;

    if (sh_grow(&s->lines, &s->cap, s->n + 1, sizeof(*s->lines), MAX_VERSIONS, "statistics", NULL))
        return NULL;
    l = calloc(1, sizeof(*l));
    if (!l || idmap_put(&s->by_id, (uint64_t)id, l, NULL)) {
        free(l);
        return NULL;
    }
    s->lines[s->n++] = l;
    return l;
}

void stats_add(struct stats *s, int64_t version_id, const struct stats_sample *one)
{
    struct line *l;

    pthread_mutex_lock(&s->lock);
    l = idmap_get(&s->by_id, (uint64_t)version_id);
    if (!l)
        l = line_make(s, version_id);
    if (l && one->ok) {
        l->last_ms = sh_clock_wall_ms();
        l->samples += one->batch;
        l->runs += (double)one->batch / (double)SH_MAX(one->run_batch, one->batch);
        l->n_ok++;
        l->ok_ns += one->total_ns;
        l->queue_ns += one->queue_ns;
        l->copy_ns += one->copy_ns;
        l->compute_ns += one->compute_ns;
    } else if (l) {
        l->n_fail++;
        l->fail_ns += one->total_ns;
    }
    pthread_mutex_unlock(&s->lock);
}

static json_t *pair(int64_t count, int64_t ns)
{
    return json_pack("{s:I, s:I}", "count", (json_int_t)count, "ns", (json_int_t)ns);
}

int stats_get(struct stats *s, const struct cat_version *v, json_t **out, struct sh_err *err)
{
    struct line l = {0};
    const struct line *have;
    char version[24];
    int64_t n;

    pthread_mutex_lock(&s->lock);
    have = idmap_get(&s->by_id, (uint64_t)v->id);
    if (have)
        l = *have;
    pthread_mutex_unlock(&s->lock);
    n = l.n_ok;
    snprintf(version, sizeof(version), "%" PRId64, v->version);
    *out = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}, s:[], s:[]}", "name",
        v->model, "version", version, "last_inference", (json_int_t)l.last_ms, "inference_count",
        (json_int_t)l.samples, "execution_count", (json_int_t)(l.runs + 0.5), "inference_stats",
        "success", pair(n, l.ok_ns), "fail", pair(l.n_fail, l.fail_ns), "queue",
        pair(n, l.queue_ns), "compute_input", pair(n, l.copy_ns), "compute_infer",
        pair(n, l.compute_ns), "compute_output", pair(n, 0), "cache_hit", pair(0, 0), "cache_miss",
        pair(0, 0), "batch_stats", "memory_usage");
    return *out ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate the statistics");
}

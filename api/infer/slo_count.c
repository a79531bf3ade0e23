/* slo_count.c - see slo_count.h. */
#include "api/infer/slo_count.h"

#include "api/store/store.h"
#include "common/hash.h"
#include "common/latency.h"
#include "common/log.h"
#include "common/mem.h"

#include <pthread.h>
#include <stdlib.h>

#define MINUTE_MS INT64_C(60000)
#define MAX_WRITE 256u /* lines of one statement */
#define SWEEP_MS (10 * MINUTE_MS)

struct line {
    int64_t model_id, minute_ms;
    int64_t n[SLO_N_OUTCOMES];
    bool dirty; /* not written as it is */
    uint32_t count[SH_LATENCY_BUCKETS];
};

struct slo_counts {
    pthread_mutex_t lock;     /* lines and dropped; held for an addition or a copy */
    pthread_mutex_t flushing; /* one at a time, so that no older row follows a newer; taken first */
    struct line *lines;       /* in order of their minutes */
    size_t n, cap;
    uint64_t dropped;
    int64_t api, swept_ms; /* protected by `flushing` */
};

int slo_counts_new(struct slo_counts **out, struct sh_err *err)
{
    struct slo_counts *c = calloc(1, sizeof(*c));
    int rc;

    *out = NULL;
    if (!c)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the counts of latency targets");
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->flushing, NULL);
    rc = sh_random(&c->api, sizeof(c->api), err);
    if (rc)
        slo_counts_free(c);
    else
        *out = c;
    return rc;
}

void slo_counts_free(struct slo_counts *c)
{
    if (!c)
        return;
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->flushing);
    free(c->lines);
    free(c);
}

/* The line of this minute; NULL when there are too many. */
static struct line *minute_line(struct slo_counts *c, int64_t model_id, int64_t minute_ms)
{
    for (size_t i = c->n; i-- > 0 && c->lines[i].minute_ms >= minute_ms;)
        if (c->lines[i].model_id == model_id && c->lines[i].minute_ms == minute_ms)
            return &c->lines[i];
    if (sh_grow(&c->lines, &c->cap, c->n + 1, sizeof(*c->lines), SLO_MAX_LINES, "counts", NULL)) {
        c->dropped++;
        return NULL;
    }
    c->lines[c->n] = (struct line){.model_id = model_id, .minute_ms = minute_ms};
    return &c->lines[c->n++];
}

void slo_counts_add(struct slo_counts *c, int64_t model_id, enum slo_outcome o, int64_t latency_ns,
                    int64_t now_ms)
{
    struct line *l;

    pthread_mutex_lock(&c->lock);
    l = minute_line(c, model_id, now_ms - now_ms % MINUTE_MS);
    if (l) {
        l->n[o]++;
        if (o != SLO_REJECTED)
            l->count[sh_latency_bucket(latency_ns)]++;
        l->dirty = true;
    }
    pthread_mutex_unlock(&c->lock);
}

static json_t *line_row(const struct line *l)
{
    json_t *bucket = json_array(), *count = json_array();

    for (unsigned b = 0; b < SH_LATENCY_BUCKETS; b++)
        if (l->count[b] && (json_array_append_new(bucket, json_integer(b)) ||
                            json_array_append_new(count, json_integer(l->count[b])))) {
            json_decref(bucket);
            bucket = NULL; /* then json_pack() fails, and frees the other */
        }
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "model", (json_int_t)l->model_id,
                     "minute", (json_int_t)l->minute_ms, "met", (json_int_t)l->n[SLO_MET], "missed",
                     (json_int_t)l->n[SLO_MISSED], "rejected", (json_int_t)l->n[SLO_REJECTED],
                     "bucket", bucket, "count", count);
}

/* Takes dirty lines, at most MAX_WRITE, and clears their marks. */
static int lines_take(struct slo_counts *c, json_t **out, struct sh_err *err)
{
    json_t *rows = json_array();
    uint64_t dropped;
    int rc = SH_OK;

    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; !rc && i < c->n && json_array_size(rows) < MAX_WRITE; i++) {
        if (!c->lines[i].dirty)
            continue;
        if (json_array_append_new(rows, line_row(&c->lines[i])))
            rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the counts of latency targets");
        else
            c->lines[i].dirty = false;
    }
    dropped = c->dropped;
    c->dropped = 0;
    pthread_mutex_unlock(&c->lock);
    if (dropped)
        SH_WARN("slo.dropped", "requests=%llu msg=\"too many minutes wait for the database\"",
                (unsigned long long)dropped);
    *out = rows;
    return rc;
}

/* After a failure all is written anew; else minutes that are over and written are forgotten. */
static void lines_settle(struct slo_counts *c, bool failed, int64_t now_ms)
{
    size_t n = 0;

    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < c->n; i++) {
        c->lines[i].dirty |= failed;
        if (c->lines[i].dirty || c->lines[i].minute_ms + MINUTE_MS > now_ms)
            c->lines[n++] = c->lines[i];
    }
    c->n = n;
    pthread_mutex_unlock(&c->lock);
}

int slo_counts_flush(struct slo_counts *c, struct db *db, int64_t now_ms, struct sh_err *err)
{
    size_t n;
    int rc;

    pthread_mutex_lock(&c->flushing);
    do {
        json_t *rows = NULL;
        char *text = NULL;

        rc = lines_take(c, &rows, err);
        n = json_array_size(rows);
        if (!rc && n)
            rc = sh_json_dump(rows, &text, err);
        if (!rc && n)
            rc = store_slo_minutes(db, c->api, text, err);
        free(text);
        json_decref(rows);
    } while (!rc && n == MAX_WRITE);
    lines_settle(c, rc != SH_OK, now_ms);
    if (!rc && now_ms - c->swept_ms >= SWEEP_MS) {
        rc = store_slo_sweep(db, err);
        c->swept_ms = now_ms;
    }
    pthread_mutex_unlock(&c->flushing);
    return rc;
}

/* alias_count.c - see alias_count.h. */
#include "api/infer/alias_count.h"

#include "api/store/store.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/mem.h"

#include <pthread.h>
#include <stdlib.h>

#define MOST_ROWS 256u /* of one statement */
#define SWEEP_EVERY_MS INT64_C(600000)

struct line {
    int64_t alias_id, generation, version, slice_ms;
    int64_t answered, failed, met, missed;
    bool is_dirty; /* not written as it is */
};

struct alias_counts {
    pthread_mutex_t lock;  /* lines, n_dropped; held for an addition or a copy */
    pthread_mutex_t turns; /* one flush at a time; taken first */
    struct line *lines;    /* in order of their slices */
    size_t n, cap;
    uint64_t n_dropped;
    int64_t api, swept_ms; /* protected by `turns` */
};

int alias_counts_new(struct alias_counts **out, struct sh_err *err)
{
    struct alias_counts *c = calloc(1, sizeof(*c));
    int rc;

    *out = NULL;
    if (!c)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the counts of aliases");
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->turns, NULL);
    rc = sh_random(&c->api, sizeof(c->api), err);
    if (rc)
        alias_counts_free(c);
    else
        *out = c;
    return rc;
}

void alias_counts_free(struct alias_counts *c)
{
    if (!c)
        return;
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->turns);
    free(c->lines);
    free(c);
}

/* NULL when there are too many. lock is held. */
static struct line *slice_line(struct alias_counts *c, const struct cat_alias *a, int64_t version,
                               int64_t slice_ms)
{
    for (size_t i = c->n; i-- > 0 && c->lines[i].slice_ms >= slice_ms;)
        if (c->lines[i].alias_id == a->id && c->lines[i].version == version &&
            c->lines[i].generation == a->generation && c->lines[i].slice_ms == slice_ms)
            return &c->lines[i];
    if (sh_grow(&c->lines, &c->cap, c->n + 1, sizeof(*c->lines), ALIAS_MAX_LINES, "counts", NULL)) {
        c->n_dropped++;
        return NULL;
    }
    c->lines[c->n] = (struct line){
        .alias_id = a->id, .generation = a->generation, .version = version, .slice_ms = slice_ms};
    return &c->lines[c->n++];
}

void alias_counts_add(struct alias_counts *c, const struct cat_alias *a, int64_t version, int rc,
                      bool has_slo, bool met, int64_t now_ms)
{
    /* That a deadline cannot be met is a matter of the target alone. */
    const bool is_failed = rc && sh_rc_http(rc) >= 500 && rc != SH_E_SLO;
    struct line *l;

    if (rc && !is_failed && rc != SH_E_SLO)
        return;
    pthread_mutex_lock(&c->lock);
    l = slice_line(c, a, version, now_ms - now_ms % ALIAS_SLICE_MS);
    if (l) {
        l->answered += rc == SH_OK;
        l->failed += is_failed;
        l->met += has_slo && met;
        l->missed += has_slo && !met;
        l->is_dirty = true;
    }
    pthread_mutex_unlock(&c->lock);
}

static json_t *slice_row(const struct line *l)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "alias", (json_int_t)l->alias_id,
                     "generation", (json_int_t)l->generation, "version", (json_int_t)l->version,
                     "slice", (json_int_t)l->slice_ms, "answered", (json_int_t)l->answered,
                     "failed", (json_int_t)l->failed, "met", (json_int_t)l->met, "missed",
                     (json_int_t)l->missed);
}

/* Takes what is new, at most MOST_ROWS, and clears its marks. */
static int take_new(struct alias_counts *c, json_t **out, struct sh_err *err)
{
    json_t *rows = json_array();
    uint64_t n_dropped;
    int rc = rows ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate the counts of aliases");

    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; !rc && i < c->n && json_array_size(rows) < MOST_ROWS; i++) {
        if (!c->lines[i].is_dirty)
            continue;
        if (json_array_append_new(rows, slice_row(&c->lines[i])))
            rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the counts of aliases");
        else
            c->lines[i].is_dirty = false;
    }
    n_dropped = c->n_dropped;
    c->n_dropped = 0;
    pthread_mutex_unlock(&c->lock);
    if (n_dropped)
        SH_WARN("alias.dropped", "requests=%llu msg=\"too many counts wait for the database\"",
                (unsigned long long)n_dropped);
    *out = rows;
    return rc;
}

/* After a failure all is written anew; else what is over and written is forgotten. */
static void forget_written(struct alias_counts *c, bool has_failed, int64_t now_ms)
{
    size_t n = 0;

    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < c->n; i++) {
        c->lines[i].is_dirty |= has_failed;
        if (c->lines[i].is_dirty || c->lines[i].slice_ms + ALIAS_SLICE_MS > now_ms)
            c->lines[n++] = c->lines[i];
    }
    c->n = n;
    pthread_mutex_unlock(&c->lock);
}

int alias_counts_flush(struct alias_counts *c, struct db *db, int64_t now_ms, struct sh_err *err)
{
    size_t n;
    int rc;

    pthread_mutex_lock(&c->turns);
    do {
        json_t *rows = NULL;
        char *text = NULL;

        rc = take_new(c, &rows, err);
        n = json_array_size(rows);
        if (!rc && n)
            rc = sh_json_dump(rows, &text, err);
        if (!rc && n)
            rc = store_alias_counts(db, c->api, text, err);
        free(text);
        json_decref(rows);
    } while (!rc && n == MOST_ROWS);
    forget_written(c, rc != SH_OK, now_ms);
    if (!rc && now_ms - c->swept_ms >= SWEEP_EVERY_MS) {
        rc = store_alias_sweep(db, err);
        c->swept_ms = now_ms;
    }
    pthread_mutex_unlock(&c->turns);
    return rc;
}

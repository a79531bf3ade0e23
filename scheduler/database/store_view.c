/* store_view.c - see store_view.h. */
#include "scheduler/database/store_view.h"

#include "common/buf.h"
#include "common/job.h"
#include "common/mem.h"
#include "scheduler/database/store_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ARRAY_TEXT (16u << 20)
#define N_COLS 10 /* of a place in a line */

/* ------------------------------------------------------------------ statements */

static const struct db_stmt ONE_MOMENT = {
    "view_begin", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", 0};
/* Every statement of a look has its index and takes rows in its order. The planner shall not think
 * of anything else when its statistics are old: hot_change looks empty to it, and 10,000 jobs that
 * came a second ago are not there. jit: it takes longer than the statements. */
static const struct db_stmt SEEN = {
    "view_seen",
    "SELECT pg_snapshot_xmin(s), pg_snapshot_xmax(s), ARRAY(SELECT pg_snapshot_xip(s))::text,"
    " set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),"
    " set_config('enable_sort', 'off', true), set_config('jit', 'off', true)"
    " FROM pg_current_snapshot() s",
    0};
static const struct db_stmt PLAN_AGAIN = {
    "view_plan",
    "SELECT set_config('enable_seqscan', 'on', true), set_config('enable_bitmapscan', 'on', true),"
    " set_config('enable_sort', 'on', true)",
    0};
static const struct db_stmt CHANGES = {
    "view_changes",
    "(SELECT kind, id, tenant_id, was, now FROM hot_change WHERE xid >= $1::xid8 LIMIT $3)"
    " UNION ALL"
    " (SELECT kind, id, tenant_id, was, now FROM hot_change WHERE xid = ANY ($2::xid8[]) LIMIT $3)",
    3};
#define IN_LINE "j.state = 'QUEUED' AND j.not_before IS NULL"
#define ARRAY "coalesce(j.array_id, 0)"
#define LINE "j.tenant_id, j.queue_id, j.version_id, j.kind, j.preemptible, j.gpus, " ARRAY
#define PLACE_ROWS                                                                    \
    "SELECT j.tenant_id, j.queue_id, j.version_id, j.kind = 'batch_inference',"       \
    " j.preemptible, j.priority, (extract(epoch FROM j.queued_at) * 1000000)::bigint" \
    " + j.handicap_us, j.id, " ARRAY ", j.gpus"
/* As in the index. */
#define LINE_AT "(j.queued_at AT TIME ZONE 'UTC' + j.handicap_us * interval '1 us')"
/* All lines, found by jumping from one to the next in the index job_line: by tenant (t), and of
 * each tenant as many (k) as there is room for. Of each (l) the first n jobs. */
static const struct db_stmt ALL_LINES = {
    "view_all_lines",
    "WITH RECURSIVE t AS ((SELECT j.tenant_id FROM job j WHERE " IN_LINE
    "  ORDER BY j.tenant_id LIMIT 1) UNION ALL SELECT (SELECT j.tenant_id FROM job j WHERE " IN_LINE
    "  AND j.tenant_id > t.tenant_id ORDER BY j.tenant_id LIMIT 1) FROM t"
    "  WHERE t.tenant_id IS NOT NULL),"
    " l AS (SELECT x.* FROM t, LATERAL (WITH RECURSIVE k AS ("
    "  (SELECT " LINE " AS array_id FROM job j WHERE " IN_LINE
    "   AND j.tenant_id = t.tenant_id ORDER BY " LINE " LIMIT 1)"
    "  UNION ALL SELECT n.* FROM k, LATERAL (SELECT " LINE " AS array_id FROM job j WHERE " IN_LINE
    "   AND j.tenant_id = t.tenant_id AND (j.queue_id, j.version_id, j.kind, j.preemptible,"
    "   j.gpus, " ARRAY
    "   ) > (k.queue_id, k.version_id, k.kind, k.preemptible, k.gpus, k.array_id) ORDER BY " LINE
    " LIMIT 1) n)"
    "  SELECT * FROM k LIMIT greatest(1, $1 / (SELECT count(tenant_id) FROM t))) x"
    "  WHERE t.tenant_id IS NOT NULL LIMIT $1),"
    " w AS (SELECT greatest($4, least($2, $3 / greatest(count(*), 1))) AS n FROM l)"
    " " PLACE_ROWS ", (SELECT n FROM w) FROM l, LATERAL (SELECT * FROM job j WHERE " IN_LINE
    "  AND j.tenant_id = l.tenant_id AND j.queue_id = l.queue_id AND j.version_id = l.version_id"
    "  AND j.kind = l.kind AND j.preemptible = l.preemptible AND j.gpus = l.gpus"
    "  AND " ARRAY " = l.array_id"
    "  ORDER BY -j.priority, " LINE_AT ", j.id LIMIT (SELECT n FROM w)) j",
    4};
static const struct db_stmt READ_ON = {
    "view_read_on",
    PLACE_ROWS
    " FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::boolean[],"
    " $5::boolean[], $6::bigint[], $7::bigint[], $8::bigint[], $10::bigint[], $11::bigint[])"
    " a (tenant_id, queue_id, version_id, is_batch, preemptible, priority, line_us, id,"
    "  array_id, gpus),"
    " LATERAL (SELECT * FROM job j WHERE " IN_LINE " AND j.tenant_id = a.tenant_id"
    "  AND j.queue_id = a.queue_id AND j.version_id = a.version_id AND j.kind ="
    "  CASE WHEN a.is_batch THEN 'batch_inference' ELSE 'training' END"
    "  AND j.preemptible = a.preemptible AND j.gpus = a.gpus AND " ARRAY " = a.array_id"
    "  AND (-j.priority, " LINE_AT ", j.id) >"
    "  (-a.priority, timestamp '1970-01-01 00:00:00' + a.line_us * interval '1 us', a.id)"
    "  ORDER BY -j.priority, " LINE_AT ", j.id LIMIT $9) j",
    11};
/* The text of the index job_busy. */
static const struct db_stmt BUSY = {"view_busy",
                                    "SELECT id FROM job WHERE state IN " SH_JOB_IS_ON_EXECUTOR
                                    " OR (state = 'QUEUED' AND not_before IS NOT NULL)"
                                    " ORDER BY state = 'QUEUED' LIMIT $1",
                                    1};
/* Of those that ran before, also the ones whose steps that are left take too long by what the
 * others took; there are not many of them. As job_least_left_ns(). */
static const struct db_stmt DUE = {
    "view_due",
    "(SELECT id FROM job WHERE state IN " SH_JOB_IS_WAITING " AND deadline IS NOT NULL"
    "  AND deadline < now() ORDER BY deadline LIMIT $1) UNION ALL"
    " (SELECT id FROM job WHERE state IN " SH_JOB_IS_WAITING " AND deadline IS NOT NULL"
    "  AND started_at IS NOT NULL AND deadline < now() + CASE WHEN step + steps_redone > 0 AND"
    "   steps > step THEN least(busy_ns / 1e9 / (step + steps_redone) * (steps - step), 1e9)"
    "   ELSE 0 END * interval '1 s' LIMIT $1)",
    1};
static const struct db_stmt TOTALS = {"view_totals",
                                      "SELECT tenant_id, count(*), state FROM job"
                                      " WHERE state NOT IN " SH_JOB_FINAL
                                      " GROUP BY tenant_id, state",
                                      0};
static const struct db_stmt VIEW_USAGE = {
    "view_usage",
    "SELECT tenant_id, sum(gpu_ns * power(0.5, extract(epoch FROM now() - minute)::float8"
    " / $1::float8)) FROM usage WHERE minute > now() - 10 * $1::float8 * interval '1 s'"
    " GROUP BY tenant_id",
    1};

/* ------------------------------------------------------------------ rows */

static int alloc_rows(size_t n, size_t size, void *out, struct sh_err *err)
{
    void *p = calloc(n ? n : 1, size);

    if (!p)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu rows", n);
    *(void **)out = p;
    return SH_OK;
}

static int load_tenants(struct db *db, struct store_view *v, struct sh_err *err)
{
    struct store_num limit;
    int rc = db_exec(db, &STORE__TENANTS,
                     (const char *const[]){store__i64(&limit, (int64_t)v->most.tenants)},
                     &v->res[4], err);

    v->n_tenants = rc ? 0 : db_rows(v->res[4]);
    if (!rc)
        rc = alloc_rows(v->n_tenants, sizeof(*v->tenants), &v->tenants, err);
    return rc ? rc : store__read_tenants(v->res[4], v->tenants, err);
}

static int load_models(struct db *db, struct store_view *v, struct sh_err *err)
{
    struct store_num limit;
    int rc = db_exec(db, &STORE__MODELS,
                     (const char *const[]){store__i64(&limit, (int64_t)v->most.versions)},
                     &v->res[5], err);

    v->n_models = rc ? 0 : db_rows(v->res[5]);
    if (!rc)
        rc = alloc_rows(v->n_models, sizeof(*v->models), &v->models, err);
    return rc ? rc : store__read_models(v->res[5], v->models, err);
}

/* ------------------------------------------------------------------ which jobs */

struct ids { /* of jobs to read, as the text of an array */
    struct sh_buf text;
};

static int put_id(struct ids *l, int64_t id, struct sh_err *err)
{
    return sh_buf_printf(&l->text, err, "%c%" PRId64, l->text.len ? ',' : '{', id);
}

static int put_rows(struct ids *l, const struct db_res *r, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; r && i < db_rows(r) && !rc; i++)
        rc = put_id(l, db_i64(r, i, 0, 0), err);
    return rc;
}

static int load_seen(struct db *db, struct store_view *v, struct sh_err *err)
{
    struct db_res *r = NULL;
    int rc = db_exec(db, &SEEN, NULL, &r, err);

    if (!rc) {
        v->now.xmin = (uint64_t)db_i64(r, 0, 0, 0);
        v->now.xmax = (uint64_t)db_i64(r, 0, 1, 0);
        v->now.connection = db_generation(db);
        v->is_anew = v->before.open && v->before.connection != v->now.connection;
        v->full = v->full || v->is_anew;
        rc = sh_strdup(db_text(r, 0, 2), &v->now.open, err);
    }
    db_res_free(r);
    return rc;
}

static int take_change(struct store_view *v, const struct db_res *r, size_t i, struct ids *told,
                       struct sh_err *err)
{
    const char *kind = db_text(r, i, 0), *was = db_text(r, i, 3), *now = db_text(r, i, 4);
    int64_t id = db_i64(r, i, 1, 0), tenant = db_i64(r, i, 2, 0);

    if (strcmp(kind, "tenant") == 0) {
        v->with_tenants = v->with_models = true; /* those of one that is deleted go too */
    } else if (strcmp(kind, "model") == 0) {
        v->with_models = true;
    } else if (strcmp(kind, "queue") == 0) {
        v->queues[v->n_queues++] = id;
    } else if (strcmp(kind, "version") == 0) {
        v->versions[v->n_versions++] = id;
    } else if (strcmp(kind, "array") == 0) {
        v->arrays[v->n_arrays++] = id;
    } else {
        if (was)
            v->counts[v->n_counts++] = (struct store_count){tenant, -1, was};
        if (now)
            v->counts[v->n_counts++] = (struct store_count){tenant, 1, now};
        return put_id(told, id, err);
    }
    return SH_OK;
}

static int load_changes(struct db *db, struct store_view *v, struct ids *told, struct sh_err *err)
{
    struct store_num xmax, limit;
    const struct db_res *r;
    size_t n;
    int rc =
        db_exec(db, &CHANGES,
                (const char *const[]){store__i64(&xmax, (int64_t)v->before.xmax), v->before.open,
                                      store__i64(&limit, STORE_MAX_CHANGES + 1)},
                &v->res[0], err);

    r = v->res[0];
    n = rc ? 0 : db_rows(r);
    v->is_anew = n > STORE_MAX_CHANGES;
    v->full = v->full || v->is_anew;
    if (rc || v->is_anew)
        return rc;
    rc = alloc_rows(2 * n, sizeof(*v->counts), &v->counts, err);
    if (!rc)
        rc = alloc_rows(n, sizeof(*v->queues), &v->queues, err);
    if (!rc)
        rc = alloc_rows(n, sizeof(*v->versions), &v->versions, err);
    if (!rc)
        rc = alloc_rows(n, sizeof(*v->arrays), &v->arrays, err);
    for (size_t i = 0; i < n && !rc; i++)
        rc = take_change(v, r, i, told, err);
    return rc;
}

/* ------------------------------------------------------------------ lines */

/* The columns of the lines that are asked for, as texts of arrays. */
static int asked_arrays(const struct store_view *v, struct sh_buf cols[N_COLS], struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; i < v->n_asked; i++) {
        const struct store_place *a = &v->asked[i];
        const int64_t x[N_COLS] = {a->line.tenant_id, a->line.queue_id,    a->line.version_id,
                                   a->line.is_batch,  a->line.preemptible, a->place.priority,
                                   a->place.line_us,  a->place.id,         a->line.array_id,
                                   a->line.gpus};

        for (size_t c = 0; c < N_COLS && !rc; c++)
            rc = sh_buf_printf(&cols[c], err, "%c%" PRId64, i ? ',' : '{', x[c]);
    }
    for (size_t c = 0; c < N_COLS && !rc; c++)
        rc = sh_buf_puts(&cols[c], "}", err);
    return rc;
}

static int read_on(struct db *db, struct store_view *v, struct db_res **r, struct sh_err *err)
{
    struct sh_buf cols[N_COLS];
    struct store_num window;
    int rc;

    for (size_t c = 0; c < N_COLS; c++)
        sh_buf_init(&cols[c], MAX_ARRAY_TEXT);
    rc = asked_arrays(v, cols, err);
    if (!rc)
        rc = db_exec(db, &READ_ON,
                     (const char *const[]){cols[0].data, cols[1].data, cols[2].data, cols[3].data,
                                           cols[4].data, cols[5].data, cols[6].data, cols[7].data,
                                           store__i64(&window, (int64_t)v->window), cols[8].data,
                                           cols[9].data},
                     r, err);
    for (size_t c = 0; c < N_COLS; c++)
        sh_buf_fini(&cols[c]);
    return rc;
}

static int all_lines(struct db *db, size_t most, struct db_res **r, struct sh_err *err)
{
    struct store_num n[4];

    return db_exec(db, &ALL_LINES,
                   (const char *const[]){
                       store__i64(&n[0], (int64_t)most), store__i64(&n[1], LINES_MAX_WINDOW),
                       store__i64(&n[2], (int64_t)most), store__i64(&n[3], LINES_MIN_WINDOW)},
                   r, err);
}

static int load_places(struct db *db, struct store_view *v, struct ids *read, struct sh_err *err)
{
    struct db_res *r = NULL;
    int rc = SH_OK;

    if (v->full)
        rc = all_lines(db, v->most.lines, &r, err);
    else if (v->n_asked)
        rc = read_on(db, v, &r, err);
    v->n_places = r && !rc ? db_rows(r) : 0;
    if (!rc)
        rc = alloc_rows(v->n_places, sizeof(*v->places), &v->places, err);
    for (size_t i = 0; i < v->n_places && !rc; i++) {
        v->places[i] = (struct store_place){.line = {.tenant_id = db_i64(r, i, 0, 0),
                                                     .queue_id = db_i64(r, i, 1, 0),
                                                     .version_id = db_i64(r, i, 2, 0),
                                                     .array_id = db_i64(r, i, 8, 0),
                                                     .gpus = (uint32_t)db_i64(r, i, 9, 1),
                                                     .is_batch = db_bool(r, i, 3),
                                                     .preemptible = db_bool(r, i, 4)},
                                            .place = {.priority = (int32_t)db_i64(r, i, 5, 0),
                                                      .line_us = db_i64(r, i, 6, 0),
                                                      .id = db_i64(r, i, 7, 0)}};
        rc = put_id(read, v->places[i].place.id, err);
    }
    if (v->full && v->n_places)
        v->window = (size_t)db_i64(r, 0, 10, 0);
    db_res_free(r);
    return rc;
}

/* ------------------------------------------------------------------ jobs */

/* Appends ids that a statement with a limit gives; *n_out, or NULL: how many. */
static int find_ids(struct db *db, const struct db_stmt *s, int64_t limit, struct ids *l,
                    size_t *n_out, struct sh_err *err)
{
    struct store_num n;
    struct db_res *r = NULL;
    int rc = db_exec(db, s, (const char *const[]){store__i64(&n, limit)}, &r, err);

    if (!rc)
        rc = put_rows(l, r, err);
    if (!rc && n_out)
        *n_out = db_rows(r);
    db_res_free(r);
    return rc;
}

static int read_ids(struct db *db, struct ids *l, struct db_res **r, struct sh_err *err)
{
    int rc = SH_OK;

    if (l->text.len == 0)
        return SH_OK;
    rc = sh_buf_puts(&l->text, "}", err);
    if (!rc)
        rc = db_exec(db, &STORE__JOBS, (const char *const[]){l->text.data}, r, err);
    return rc;
}

static int load_jobs(struct db *db, struct store_view *v, struct sh_err *err)
{
    struct ids told, read;
    size_t n = 0, n_busy = 0;
    int rc = SH_OK;

    sh_buf_init(&told.text, MAX_ARRAY_TEXT);
    sh_buf_init(&read.text, MAX_ARRAY_TEXT);
    for (size_t i = 0; i < v->n_doubtful && !rc; i++)
        rc = put_id(&told, v->doubtful[i], err);
    if (!rc && v->before.open && !v->is_anew)
        rc = load_changes(db, v, &told, err);
    if (!rc)
        rc = load_places(db, v, &read, err);
    if (!rc && v->full)
        rc = find_ids(db, &BUSY, (int64_t)v->most.busy, &read, &n_busy, err);
    v->is_busy_cut = n_busy >= v->most.busy;
    if (!rc)
        rc = find_ids(db, &DUE, STORE_MAX_DUE, &told, NULL, err);
    if (!rc)
        rc = read_ids(db, &told, &v->res[1], err);
    if (!rc)
        rc = read_ids(db, &read, &v->res[2], err);
    for (int k = 1; k <= 2 && !rc; k++)
        n += v->res[k] ? db_rows(v->res[k]) : 0;
    if (!rc)
        rc = alloc_rows(n, sizeof(*v->jobs), &v->jobs, err);
    for (int k = 1; k <= 2 && !rc; k++) {
        if (v->res[k]) {
            rc = store__read_jobs(v->res[k], v->jobs + v->n_jobs, err);
            v->n_jobs += db_rows(v->res[k]);
        }
        if (k == 1 || v->is_anew)
            v->n_told = v->n_jobs;
    }
    sh_buf_fini(&told.text);
    sh_buf_fini(&read.text);
    return rc;
}

/* All that are not final. */
static int load_totals(struct db *db, struct store_view *v, struct sh_err *err)
{
    const struct db_res *r;
    int rc = db_exec(db, &TOTALS, NULL, &v->res[3], err);

    r = v->res[3];
    if (!rc)
        rc = alloc_rows(db_rows(r), sizeof(*v->totals), &v->totals, err);
    for (size_t i = 0; !rc && i < db_rows(r); i++)
        v->totals[v->n_totals++] =
            (struct store_count){db_i64(r, i, 0, 0), db_i64(r, i, 1, 0), db_text(r, i, 2)};
    return rc;
}

static int load_usage(struct db *db, struct store_view *v, struct sh_err *err)
{
    struct store_num half_life;
    const struct db_res *r;
    int rc = db_exec(db, &VIEW_USAGE, (const char *const[]){store__f64(&half_life, v->half_life_s)},
                     &v->res[6], err);

    r = v->res[6];
    v->n_usage = rc ? 0 : db_rows(r);
    if (!rc)
        rc = alloc_rows(v->n_usage, sizeof(*v->usage_tenant), &v->usage_tenant, err);
    if (!rc)
        rc = alloc_rows(v->n_usage, sizeof(*v->usage_ns), &v->usage_ns, err);
    for (size_t i = 0; i < v->n_usage && !rc; i++) {
        v->usage_tenant[i] = db_i64(r, i, 0, 0);
        v->usage_ns[i] = db_f64(r, i, 1, 0);
    }
    return rc;
}

/* ------------------------------------------------------------------ the look */

void store_seen_free(struct store_seen *s)
{
    free(s->open);
    *s = (struct store_seen){0};
}

/* What was read; what was asked for stays. */
static void clear_out(struct store_view *v)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(v->res); i++)
        db_res_free(v->res[i]);
    store_seen_free(&v->now);
    free(v->tenants);
    free(v->models);
    free(v->queues);
    free(v->versions);
    free(v->arrays);
    free(v->jobs);
    free(v->places);
    free(v->counts);
    free(v->totals);
    free(v->usage_tenant);
    free(v->usage_ns);
}

static int view_tx(struct db *db, const void *arg, struct sh_err *err)
{
    struct store_view *v = *(struct store_view *const *)arg;
    struct store_view again = {.fence = v->fence,
                               .most = v->most,
                               .full = v->full || !v->before.open,
                               .with_usage = v->with_usage,
                               .half_life_s = v->half_life_s,
                               .before = v->before,
                               .doubtful = v->doubtful,
                               .n_doubtful = v->n_doubtful,
                               .asked = v->asked,
                               .n_asked = v->n_asked,
                               .window = v->window};
    int rc;

    clear_out(v); /* of an attempt that failed half-way */
    *v = again;
    rc = db_exec(db, &ONE_MOMENT, NULL, NULL, err);
    if (!rc)
        rc = store__still_leads(db, &v->fence, err); /* at the same moment */
    if (!rc)
        rc = load_seen(db, v, err);
    if (!rc)
        rc = load_jobs(db, v, err);
    if (!rc && v->full)
        rc = load_totals(db, v, err);
    v->with_tenants = v->with_tenants || v->full;
    v->with_models = v->with_models || v->full;
    if (!rc && (v->with_tenants || v->with_models || v->with_usage))
        rc = db_exec(db, &PLAN_AGAIN, NULL, NULL, err);
    if (!rc && v->with_tenants)
        rc = load_tenants(db, v, err);
    if (!rc && v->with_models)
        rc = load_models(db, v, err);
    if (!rc && v->with_usage)
        rc = load_usage(db, v, err);
    return rc;
}

int store_view_load(struct db *db, void *arg, struct sh_err *err)
{
    struct store_view *v = arg;

    return db_tx(db, "view", view_tx, &v, err);
}

void store_view_free(void *view)
{
    struct store_view *v = view;

    if (!v)
        return;
    clear_out(v);
    store_seen_free(&v->before);
    free(v->doubtful);
    free(v->asked);
    free(v);
}

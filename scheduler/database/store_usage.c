/* store_usage.c - see store.h: usage. */
#include "common/buf.h"
#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"
#include "scheduler/database/store_int.h"

#include <inttypes.h>
#include <stdlib.h>

#define MAX_ARRAY_TEXT (16u << 20)
#define N_COLS 7 /* tenant, id, age, gpu_ns, requests, samples, step */

static const struct db_stmt USAGE_NUMBER = {
    "usage_number",
    "INSERT INTO usage_source (source, number) VALUES ($1, $2) ON CONFLICT (source) DO UPDATE"
    " SET number = excluded.number, at = now() WHERE usage_source.number < excluded.number",
    2};
/* clang-format off */
#define MINUTE "date_trunc('minute', now() - u.age * interval '1 s')"
#define ADD_TO                                                                                     \
    " ON CONFLICT (tenant_id, model_id, class, minute) DO UPDATE SET"                              \
    " gpu_ns = usage.gpu_ns + excluded.gpu_ns, requests = usage.requests + excluded.requests,"     \
    " samples = usage.samples + excluded.samples"
/* clang-format on */
static const struct db_stmt USAGE_RUNS = {
    "usage_runs",
    "INSERT INTO usage (tenant_id, model_id, class, minute, gpu_ns, requests, samples)"
    " SELECT t.id, v.model_id, 'inference', " MINUTE ", sum(u.gpu_ns), sum(u.requests),"
    " sum(u.samples) FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[],"
    " $5::bigint[], $6::bigint[]) AS u (tenant, version_id, age, gpu_ns, requests, samples)"
    " JOIN tenant t ON t.name = u.tenant JOIN model_version v ON v.id = u.version_id"
    " GROUP BY 1, 2, 4" ADD_TO,
    6};
/* new: of a row, the steps that neither the database nor an older row of its job had. */
static const struct db_stmt USAGE_JOBS = {
    "usage_jobs",
    "WITH u AS (SELECT u.*, j.tenant_id, v.model_id, coalesce(x.step, 0) AS was, " MINUTE
    "  AS minute, CASE j.kind WHEN 'training' THEN 'training' ELSE 'inference' END AS class"
    "  FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])"
    "  AS u (job_id, age, gpu_ns, samples, step) JOIN job j ON j.id = u.job_id"
    "  JOIN model_version v ON v.id = j.version_id LEFT JOIN usage_job x ON x.job_id = u.job_id),"
    " n AS (SELECT u.*, greatest(was, step) - least(greatest(was, step), greatest(was,"
    "  max(step) OVER (PARTITION BY job_id ORDER BY age DESC, step ROWS BETWEEN UNBOUNDED"
    "  PRECEDING AND 1 PRECEDING))) AS new FROM u),"
    " m AS (INSERT INTO usage_job (job_id, step) SELECT job_id, max(step) FROM n GROUP BY job_id"
    "  HAVING max(step) > max(was) ON CONFLICT (job_id) DO UPDATE SET step = excluded.step)"
    " INSERT INTO usage (tenant_id, model_id, class, minute, gpu_ns, samples)"
    " SELECT tenant_id, model_id, class, minute, sum(gpu_ns), sum(new * samples) FROM n"
    " GROUP BY 1, 2, 3, 4" ADD_TO,
    5};

static int put_usage_row(struct sh_buf cols[N_COLS], bool first, const struct msg_usage_row *r,
                         int64_t waited_s, struct sh_err *err)
{
    const int64_t v[N_COLS] = {0,          r->id,  r->age_s + waited_s, r->gpu_ns, r->requests,
                               r->samples, r->step};
    const char *before = first ? "{" : ",";
    int rc = sh_buf_printf(&cols[0], err, "%s\"%s\"", before, r->tenant); /* null is a name, too */

    for (size_t c = 1; c < N_COLS && !rc; c++)
        rc = sh_buf_printf(&cols[c], err, "%s%" PRId64, before, v[c]);
    return rc;
}

/* Those of one kind. */
static int add_usage_rows(struct db *db, const struct store_usage *u, enum msg_usage_kind kind,
                          struct sh_err *err)
{
    int64_t waited_s = (sh_clock_ns() - u->heard_ns) / SH_S(1);
    struct sh_buf c[N_COLS];
    bool any = false;
    int rc = SH_OK;

    for (size_t i = 0; i < N_COLS; i++)
        sh_buf_init(&c[i], MAX_ARRAY_TEXT);
    for (size_t i = 0; i < u->n && !rc; i++) {
        if (u->rows[i].kind != kind)
            continue;
        rc = put_usage_row(c, !any, &u->rows[i], waited_s, err);
        any = true;
    }
    for (size_t i = 0; i < N_COLS && any && !rc; i++)
        rc = sh_buf_puts(&c[i], "}", err);
    if (!rc && any && kind == MSG_USAGE_RUNS)
        rc = db_exec(
            db, &USAGE_RUNS,
            (const char *const[]){c[0].data, c[1].data, c[2].data, c[3].data, c[4].data, c[5].data},
            NULL, err);
    else if (!rc && any)
        rc = db_exec(db, &USAGE_JOBS,
                     (const char *const[]){c[1].data, c[2].data, c[3].data, c[5].data, c[6].data},
                     NULL, err);
    for (size_t i = 0; i < N_COLS; i++)
        sh_buf_fini(&c[i]);
    return rc;
}

static int usage_tx(struct db *db, const void *arg, struct sh_err *err)
{
    const struct store_usage *u = arg;
    struct db_res *r = NULL;
    struct store_num number;
    int rc = store__fence(db, &u->fence, err);

    if (!rc)
        rc = db_exec(db, &USAGE_NUMBER,
                     (const char *const[]){u->source, store__i64(&number, u->number)}, &r, err);
    if (!rc && db_affected(r) == 1) { /* else it was counted before */
        rc = add_usage_rows(db, u, MSG_USAGE_RUNS, err);
        if (!rc)
            rc = add_usage_rows(db, u, MSG_USAGE_JOB, err);
    }
    db_res_free(r);
    return rc;
}

int store_usage_add(struct db *db, void *arg, struct sh_err *err)
{
    return db_tx(db, "usage_add", usage_tx, arg, err);
}

void store_usage_free(void *usage)
{
    struct store_usage *u = usage;

    if (!u)
        return;
    free(u->rows);
    free(u);
}

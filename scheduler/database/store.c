/* store.c - see store.h: the lease, its fence, versions, executors. */
#include "scheduler/database/store.h"

#include "common/buf.h"
#include "common/mem.h"
#include "common/states.h"
#include "scheduler/database/store_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_ARRAY_TEXT (16u << 20)

const char *store__i64(struct store_num *n, int64_t v)
{
    snprintf(n->s, sizeof(n->s), "%" PRId64, v);
    return n->s;
}

const char *store__f64(struct store_num *n, double v)
{
    if (!isfinite(v))
        return NULL;
    snprintf(n->s, sizeof(n->s), "%.17g", v);
    return n->s;
}

/* ------------------------------------------------------------------ lease */

/* The server's clock may be stepped, or be another server's. Forwards: the lease is free too early,
 * and its holder hears of that. Backwards: it would be free too late. So one that ends a second
 * later than it could have been renewed for is free. A holder that lives may renew it before, else
 * it loses it, and another leads: what it has under way is fenced by the epoch. */
static const struct db_stmt LEASE_ACQUIRE = {
    "lease_acquire",
    "INSERT INTO lease (name, holder, epoch, expires_at, ttl_ms, options)"
    " VALUES ('scheduler', $1, 1, now() + $2::bigint * interval '1 ms', $2::bigint, $3::jsonb)"
    " ON CONFLICT (name) DO UPDATE SET holder = $1, epoch = lease.epoch + 1,"
    " options = excluded.options, expires_at = excluded.expires_at, ttl_ms = excluded.ttl_ms WHERE "
    "lease.expires_at < now()"
    " OR lease.expires_at > now() + (lease.ttl_ms + 1000) * interval '1 ms'"
    " OR lease.holder = $1"
    " RETURNING epoch",
    3};
/* Its commit does not wait for the disk: a slow one would let the lease end. If the server loses it
 * the lease ends earlier, and the next epoch guards what is written. */
static const struct db_stmt LEASE_RENEW = {
    "lease_renew",
    "WITH here AS (SELECT set_config('synchronous_commit', 'off', true))"
    " UPDATE lease SET expires_at = now() + $3::bigint * interval '1 ms', ttl_ms = $3::bigint"
    " FROM here WHERE name = 'scheduler' AND holder = $1 AND epoch = $2",
    3};
static const struct db_stmt LEASE_RELEASE = {
    "lease_release",
    "UPDATE lease SET expires_at = now() - interval '1 ms'"
    " WHERE name = 'scheduler' AND holder = $1 AND epoch = $2",
    2};
static const struct db_stmt LEASE_FENCE = {
    "lease_fence",
    "SELECT 1 FROM lease WHERE name = 'scheduler' AND holder = $1 AND epoch = $2 FOR SHARE", 2};
static const struct db_stmt LEASE_CHECK = {
    "lease_check", "SELECT 1 FROM lease WHERE name = 'scheduler' AND holder = $1 AND epoch = $2",
    2};

int store_lease_acquire(struct db *db, void *arg, struct sh_err *err)
{
    struct store_lease *l = arg;
    struct db_res *r = NULL;
    struct store_num ttl;
    int rc = db_exec(db, &LEASE_ACQUIRE,
                     (const char *const[]){l->fence.holder, store__i64(&ttl, l->ttl_ms),
                                           l->options[0] ? l->options : "{}"},
                     &r, err);

    l->held = !rc && db_rows(r) == 1;
    if (l->held)
        l->fence.epoch = (uint64_t)db_i64(r, 0, 0, 0);
    db_res_free(r);
    return rc;
}

int store_lease_renew(struct db *db, void *arg, struct sh_err *err)
{
    struct store_lease *l = arg;
    struct db_res *r = NULL;
    struct store_num epoch, ttl;
    int rc =
        db_exec(db, &LEASE_RENEW,
                (const char *const[]){l->fence.holder, store__i64(&epoch, (int64_t)l->fence.epoch),
                                      store__i64(&ttl, l->ttl_ms)},
                &r, err);

    l->held = !rc && db_affected(r) == 1;
    db_res_free(r);
    return rc;
}

int store_lease_release(struct db *db, void *arg, struct sh_err *err)
{
    struct store_lease *l = arg;
    struct store_num epoch;

    l->held = false;
    return db_exec(
        db, &LEASE_RELEASE,
        (const char *const[]){l->fence.holder, store__i64(&epoch, (int64_t)l->fence.epoch)}, NULL,
        err);
}

int store__not_ours(const struct store_fence *f, struct sh_err *err)
{
    return SH_FAIL(err, SH_E_PRECONDITION, "the lease of epoch %" PRIu64 " is no longer ours",
                   f->epoch);
}

static int check_lease(struct db *db, const struct db_stmt *s, const struct store_fence *f,
                       struct sh_err *err)
{
    struct db_res *r = NULL;
    struct store_num epoch;
    int rc = db_exec(db, s, (const char *const[]){f->holder, store__i64(&epoch, (int64_t)f->epoch)},
                     &r, err);

    if (!rc && db_rows(r) == 0)
        rc = store__not_ours(f, err);
    db_res_free(r);
    return rc;
}

int store__fence(struct db *db, const struct store_fence *f, struct sh_err *err)
{
    return check_lease(db, &LEASE_FENCE, f, err);
}

int store__still_leads(struct db *db, const struct store_fence *f, struct sh_err *err)
{
    return check_lease(db, &LEASE_CHECK, f, err);
}

/* ------------------------------------------------------------------ models, executors */

static const struct db_stmt MODEL_SET = {
    "model_set_state",
    "UPDATE model_version SET state = $2, reason_code = $3, reason = $4,"
    " image_bytes = coalesce($5::bigint, image_bytes), profile = coalesce($6::jsonb, profile),"
    " ready_at = CASE WHEN $2 = 'READY' THEN now() ELSE ready_at END,"
    " row_version = row_version + 1"
    " WHERE id = $1 AND CASE WHEN $2 = 'UNLOADED' THEN state = 'UNLOADING'"
    " ELSE state IN (" SH_VERSION_COMING(SH_STATE_SQL, ", ") ") END",
    6};
static const struct db_stmt MODEL_NOTIFY = {"model_notify", "SELECT pg_notify('shunt_models', $1)",
                                            1};
static const struct db_stmt EXECUTOR_PUT = {
    "executor_put",
    "INSERT INTO executor (name, host_id, device, pool_bytes, data_addr, state, epoch)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7)"
    " ON CONFLICT (name) DO UPDATE SET host_id = $2, device = $3, pool_bytes = $4, data_addr = $5,"
    " state = $6, epoch = $7, seen_at = now()",
    7};

static int model_tx(struct db *db, const void *arg, struct sh_err *err)
{
    const struct store_model_state *m = arg;
    struct store_num id, bytes;
    const char *const params[] = {
        store__i64(&id, m->version_id),
        m->state,
        m->reason_code[0] ? m->reason_code : NULL,
        m->reason[0] ? m->reason : NULL,
        m->image_bytes ? store__i64(&bytes, (int64_t)m->image_bytes) : NULL,
        m->profile,
    };
    int rc = store__fence(db, &m->fence, err);

    if (!rc)
        rc = db_exec(db, &MODEL_SET, params, NULL, err);
    if (!rc)
        rc = db_exec(db, &MODEL_NOTIFY, params, NULL, err);
    return rc;
}

int store_model_set_state(struct db *db, void *arg, struct sh_err *err)
{
    return db_tx(db, "model_set_state", model_tx, arg, err);
}

void store_model_state_free(void *state)
{
    struct store_model_state *m = state;

    if (!m)
        return;
    free(m->profile);
    free(m);
}

static int executor_tx(struct db *db, const void *arg, struct sh_err *err)
{
    const struct store_executor *e = arg;
    struct store_num bytes, epoch;
    int rc = store__fence(db, &e->fence, err);

    if (rc)
        return rc;
    return db_exec(db, &EXECUTOR_PUT,
                   (const char *const[]){e->name, e->host_id, e->device,
                                         store__i64(&bytes, (int64_t)e->pool_bytes), e->data_addr,
                                         e->up ? "UP" : "DOWN",
                                         store__i64(&epoch, (int64_t)e->fence.epoch)},
                   NULL, err);
}

int store_executor_put(struct db *db, void *arg, struct sh_err *err)
{
    return db_tx(db, "executor_put", executor_tx, arg, err);
}

/* ------------------------------------------------------------------ reasons */

static const struct db_stmt JOB_REASONS = {
    "job_reasons",
    "UPDATE job SET reason = u.reason FROM unnest($1::bigint[], $2::text[]) AS u (id, reason)"
    " WHERE job.id = u.id AND job.state = 'QUEUED' AND job.reason <> u.reason",
    2};

static int put_item(struct sh_buf *b, bool first, struct sh_err *err, const char *text)
{
    return sh_buf_printf(b, err, "%c%s", first ? '{' : ',', text);
}

static int reasons_tx(struct db *db, const void *arg, struct sh_err *err)
{
    const struct store_reasons *q = arg;
    struct sh_buf ids, reasons;
    int rc;

    sh_buf_init(&ids, MAX_ARRAY_TEXT);
    sh_buf_init(&reasons, MAX_ARRAY_TEXT);
    rc = store__fence(db, &q->fence, err);
    for (size_t i = 0; i < q->n && !rc; i++) {
        struct store_num n;

        rc = put_item(&ids, i == 0, err, store__i64(&n, q->job[i]));
        if (!rc)
            rc = sh_buf_printf(&reasons, err, "%c\"%s\"", i == 0 ? '{' : ',', q->reason[i]);
    }
    if (!rc)
        rc = sh_buf_puts(&ids, q->n ? "}" : "{}", err);
    if (!rc)
        rc = sh_buf_puts(&reasons, q->n ? "}" : "{}", err);
    if (!rc)
        rc = db_exec(db, &JOB_REASONS, (const char *const[]){ids.data, reasons.data}, NULL, err);
    sh_buf_fini(&ids);
    sh_buf_fini(&reasons);
    return rc;
}

int store_job_reasons(struct db *db, void *arg, struct sh_err *err)
{
    return db_tx(db, "job_reasons", reasons_tx, arg, err);
}

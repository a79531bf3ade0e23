/* store_blob.c - SQL for what refers to the files in blobs/. */
#include "api/store/store.h"
#include "api/store/store_sql.h"

/* clang-format off */
static const struct db_stmt BLOB_LIST = {
    "blob_list",
    "SELECT b.path FROM (" SH_JOB_BLOBS ") b ORDER BY b.path COLLATE \"C\"",
    0,
};

static const struct db_stmt BLOB_USED = {
    "blob_used",
    "SELECT EXISTS (SELECT 1 FROM (" SH_JOB_BLOBS ") b WHERE b.path = $1)",
    1,
};

#define SQL_NO_JOB(job_is) \
    " AND NOT EXISTS (SELECT 1 FROM job j WHERE " job_is " AND j.state NOT IN " SQL_FINAL ")"
#define SQL_VERSION_LEFT \
    "x.state = 'DELETED' AND x.package IS NOT NULL" SQL_NO_JOB("j.version_id = x.id")
#define SQL_DATASET_LEFT                          \
    "x.state = 'DELETED' AND x.path IS NOT NULL" \
    SQL_NO_JOB("(j.dataset_id = x.id OR j.eval_dataset_id = x.id)")

static const struct db_stmt BLOB_DELETED = {
    "blob_deleted",
    "SELECT x.package FROM model_version x WHERE " SQL_VERSION_LEFT " UNION SELECT x.path FROM "
    "dataset x WHERE " SQL_DATASET_LEFT,
    0,
};
static const struct db_stmt BLOB_GONE = {
    "blob_gone",
    "WITH v AS (UPDATE model_version x SET package = NULL WHERE x.package = $1 AND "
    SQL_VERSION_LEFT ") UPDATE dataset x SET path = NULL WHERE x.path = $1 AND " SQL_DATASET_LEFT,
    1,
};

static const struct db_stmt JOBS_GONE = {
    "blob_jobs_gone",
    "SELECT u.id, j.id IS NULL FROM unnest(string_to_array($1, ',')::bigint[]) AS u (id) LEFT JOIN "
    "job j ON j.id = u.id WHERE j.id IS NULL OR (j.state IN ('FAILED', 'CANCELLED', 'EXPIRED') AND "
    "j.finished_at < to_timestamp($2::bigint))",
    2,
};
static const struct db_stmt JOB_OWNED = {
    "job_owned",
    "SELECT j.id FROM job j WHERE j.id = $1::bigint AND (j.executor = $2 AND "
    "j.attempt = $3::integer AND j.state IN ('STARTING', 'RUNNING', 'PREEMPTED', 'COMPLETING') OR "
    "$4::boolean AND coalesce(j.executor, $2) = $2 AND j.attempt >= $3::integer) FOR SHARE",
    4,
};
/* clang-format on */

int store_blob_list(struct db *db, struct db_res **out, struct sh_err *err)
{
    return db_exec(db, &BLOB_LIST, NULL, out, err);
}

int store_blob_used(struct db *db, const char *path, bool *out, struct sh_err *err)
{
    struct db_res *res = NULL;
    int rc = db_exec(db, &BLOB_USED, (const char *[]){path}, &res, err);

    *out = !rc && db_rows(res) > 0 && db_bool(res, 0, 0);
    db_res_free(res);
    return rc;
}

int store_blob_deleted(struct db *db, struct db_res **out, struct sh_err *err)
{
    return db_exec(db, &BLOB_DELETED, NULL, out, err);
}

int store_blob_gone(struct db *db, const char *path, struct sh_err *err)
{
    struct db_res *res = NULL;
    int rc = db_exec(db, &BLOB_GONE, (const char *[]){path}, &res, err);

    db_res_free(res);
    return rc;
}

int store_job_owned(struct db *db, const struct store_owner *o, bool *out, struct sh_err *err)
{
    struct db_res *res = NULL;
    int rc =
        db_exec(db, &JOB_OWNED,
                (const char *[]){o->job, o->executor, o->attempt, o->is_late ? "true" : "false"},
                &res, err);

    *out = !rc && db_rows(res) > 0;
    db_res_free(res);
    return rc;
}

int store_blob_jobs_gone(struct db *db, const char *ids, int64_t before_s, struct db_res **out,
                         struct sh_err *err)
{
    return db_exec(db, &JOBS_GONE, (const char *[]){ids, STORE_TEXT(before_s)}, out, err);
}

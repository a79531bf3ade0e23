/* store.h - the SQL of the API, as functions; store_job.h has that of jobs, store_event.h that of
 * their events. Only store*.c contain statements.
 *
 * A change and its audit row are one statement or one transaction. Views come back as JSON made by
 * PostgreSQL. Where a row may be missing, *out is NULL and the call succeeds: the caller says why.
 * JSON results are OWNED, json_decref(). Pool threads only: q->db or db must be set.
 */
#ifndef SH_API_STORE_STORE_H
#define SH_API_STORE_STORE_H

#include "api/request/req.h"
#include "common/buckets.h"
#include "common/states.h"

/* store.c: the forms that statements share. */
int store_one(struct db *db, const struct db_stmt *s, const char *const *params, json_t **out,
              struct sh_err *err); /* column 0 of the first row as JSON */
/* Rows (id, JSON), one more than the page: {"items":[...],"next_cursor":...}. */
int store_page(struct db *db, const struct db_stmt *s, const char *const *params,
               const struct req_page *page, json_t **out, struct sh_err *err);

/* A whole number as a statement's parameter, good to the end of the block that it stands in. */
#define STORE_TEXT(v) store_text((char[24]){0}, (int64_t)(v))
const char *store_text(char out[static 24], int64_t v);

/* A row's JSON; name: of the statement. *out: OWNED. */
int store_json(const char *text, const char *name, json_t **out, struct sh_err *err);

/* store_idem.c: for Idempotency-Key. One that is known with another fingerprint: SH_E_CONFLICT, and
 * the reply's status is 422. */
/* *out: the first answer; NULL if there is none yet. */
int store_idem_find(struct api_req *q, const struct req_idem *i, json_t **out, struct sh_err *err);
/* In the transaction that does the work, first: the same, and until its end no other one may begin.
 * Fails: SH_E_CONFLICT (another one has begun). */
int store_idem_begin(struct api_req *q, const struct req_idem *i, json_t **out, struct sh_err *err);
/* In that transaction, last: from its commit on this is the answer, for a day. */
int store_idem_keep(struct api_req *q, const struct req_idem *i, const json_t *answer,
                    struct sh_err *err);

/* store_tenant.c */
int store_tenant_id(struct db *db, const char *name, int64_t *out, struct sh_err *err);
int store_tenant_list(struct api_req *q, const struct req_page *page, json_t **out,
                      struct sh_err *err);
int store_tenant_create(struct api_req *q, const char *name, json_t **out, struct sh_err *err);
int store_tenant_get(struct api_req *q, const char *name, json_t **out, struct sh_err *err);
int store_tenant_patch(struct api_req *q, const char *name, const char *if_match, const char *state,
                       json_t **out, struct sh_err *err);
int store_tenant_delete(struct api_req *q, const char *name, const char *if_match, json_t **out,
                        struct sh_err *err);
int store_quota_get(struct api_req *q, const char *tenant, json_t **out, struct sh_err *err);
/* Until the end of the transaction: what is counted against a quota before it is used is counted by
 * one at a time. */
int store_quota_lock(struct db *db, int64_t tenant_id, struct sh_err *err);
/* values: the quota's fields as JSON text. */
int store_quota_put(struct api_req *q, const char *tenant, const char *if_match, const char *values,
                    json_t **out, struct sh_err *err);

/* store_key.c */
#define STORE_MAX_KEYS 1000 /* live ones of a tenant */
/* Of a tenant, as every API keeps each of them in memory: models, the versions of all together, and
 * datasets. Versions that jobs have made count, and are not refused. */
#define STORE_MAX_THINGS 10000
struct store_key { /* tenant: NULL for a key of role admin or executor */
    const char *tenant, *id, *name, *role, *hash_hex, *expires_at;
};
int store_key_list(struct api_req *q, const char *tenant, const struct req_page *page, json_t **out,
                   struct sh_err *err);
/* *out is NULL if there is no such tenant, or if it has too many. */
int store_key_create(struct db *db, const char *by_key, const char *request_id,
                     const struct store_key *k, json_t **out, struct sh_err *err);
/* Is there a key of this role that is neither revoked nor expired? In a transaction: until its end
 * no other caller gets an answer. */
int store_key_role_exists(struct db *db, const char *role, bool *out, struct sh_err *err);
int store_key_get(struct api_req *q, const char *tenant, const char *id, json_t **out,
                  struct sh_err *err);
/* tenant, id, hash_hex: the new secret's. *out is NULL for a key that is not there, or not live. */
int store_key_rotate(struct api_req *q, const struct store_key *k, int64_t overlap_s, json_t **out,
                     struct sh_err *err);
/* ids and Unix ms, each a list with commas: notes these last uses unless later ones are known. */
int store_key_used(struct db *db, const char *ids, const char *times, struct sh_err *err);
int store_key_revoke(struct api_req *q, const char *tenant, const char *id, json_t **out,
                     struct sh_err *err);
/* ids: comma-separated. Rows: id, tenant id, tenant, role, hash (hex), tenant state, live, expiry
 * in Unix ms (NULL = never), the tenant's requests_per_second and burst (0 = not set), the hash
 * before (hex, NULL = none) and until when it counts in Unix ms. */
int store_key_load(struct db *db, const char *ids, struct db_res **out, struct sh_err *err);
int store_key_listen(struct db *db, struct sh_err *err); /* LISTEN shunt_keys, shunt_models */
int store_commit(struct db *db, struct sh_err *err);     /* Does it take commits? Changes no row. */

/* store_model.c */
int store_model_list(struct api_req *q, const struct req_page *page, json_t **out,
                     struct sh_err *err);
int store_model_get(struct api_req *q, const char *model, json_t **out, struct sh_err *err);
int store_model_create(struct api_req *q, const char *model, const char *visibility, json_t **out,
                       struct sh_err *err);
int store_model_patch(struct api_req *q, const char *model, const char *if_match,
                      const char *visibility, json_t **out, struct sh_err *err);
int store_model_delete(struct api_req *q, const char *model, const char *if_match, json_t **out,
                       struct sh_err *err);
int store_slo_get(struct api_req *q, const char *model, json_t **out, struct sh_err *err);
struct store_slo {
    double latency_ms, percentile;
    int64_t priority;
    const char *on_miss;
};
int store_slo_put(struct api_req *q, const char *model, const char *if_match,
                  const struct store_slo *s, json_t **out, struct sh_err *err);
int store_slo_delete(struct api_req *q, const char *model, const char *if_match, json_t **out,
                     struct sh_err *err);

/* store_version.c */
int store_version_list(struct api_req *q, const char *model, const struct req_page *page,
                       json_t **out, struct sh_err *err);
int store_version_get(struct api_req *q, const char *model, const char *version, json_t **out,
                      struct sh_err *err);
struct store_version_new {
    const char *model, *precision;
    int64_t version, max_batch; /* version 0: the next one; max_batch 0: that of its file, or 8 */
    const char *buckets;        /* JSON, common/buckets.h; NULL: none */
};
int store_version_create(struct api_req *q, const struct store_version_new *v, json_t **out,
                         struct sh_err *err);
enum store_thing { STORE_MODELS, STORE_VERSIONS, STORE_DATASETS };
/* May the tenant create one more? Fails: SH_E_QUOTA. */
int store_has_place(struct api_req *q, enum store_thing what, struct sh_err *err);
int store_version_delete(struct api_req *q, const char *model, const char *version,
                         const char *if_match, json_t **out, struct sh_err *err);
/* What an upload needs to know: id, state, storage used and allowed. id 0: no such thing. */
struct store_slot {
    int64_t id, used_bytes, max_bytes, row_version;
    int64_t linger_bytes; /* of files that were deleted, and are still there */
    bool open;            /* may be uploaded now */
    char state[16];
    int64_t max_batch; /* that a version was created with; 0: none, the file may fix it */
    char buckets[SH_BUCKETS_TEXT]; /* the same; "": none */
};
/* One row: id, state, open, used and allowed bytes of storage, row version, bytes that linger; of
 * versions max_batch and buckets too, or NULL. Without a row *out is zeroed. */
int store_slot(struct db *db, const struct db_stmt *s, const char *const *params,
               struct store_slot *out, struct sh_err *err);
int store_version_slot(struct api_req *q, const char *model, const char *version,
                       struct store_slot *out, struct sh_err *err);
struct store_artifact {
    int64_t id;
    const char *digest, *path; /* path: below blobs/ */
    uint64_t bytes;
    const char *inputs, *outputs, *meta; /* JSON text; datasets: inputs = tensors */
    int64_t n_samples;                   /* datasets */
    int64_t max_batch;                   /* versions: what the file fixes; 0: as it was created */
    const char *if_match;                /* row version or NULL */
};
int store_version_register(struct api_req *q, const struct store_artifact *a, json_t **out,
                           struct sh_err *err);
int store_version_fail(struct api_req *q, int64_t id, const char *code, const char *reason,
                       struct sh_err *err);
#define STORE_SLO_KEEP_H 25
/* store_slo.c. rows: JSON, {model, minute (Unix ms), met, missed, rejected, bucket[], count[]};
 * each replaces what this API (a random number) wrote for its minute. */
int store_slo_minutes(struct db *db, int64_t api, const char *rows, struct sh_err *err);
int store_slo_sweep(struct db *db, struct sh_err *err); /* rows older than STORE_SLO_KEEP_H */
/* The target and the sums of the last minutes, "buckets" as [number, count]. *out is NULL when
 * there is no model or no target. */
int store_slo_attainment(struct api_req *q, const char *model, int64_t minutes, json_t **out,
                         struct sh_err *err);
/* store_load.c. Loading, unloading and pinning: of a version, or (version NULL) of all of a model.
 * *n_out: how many changed. Pinning fails with SH_E_QUOTA and SH_E_CONFLICT when there is no room
 * for it. */
enum store_wish { STORE_LOAD, STORE_UNLOAD, STORE_PIN, STORE_UNPIN };
int store_version_wish(struct api_req *q, enum store_wish wish, const char *model,
                       const char *version, int64_t *n_out, struct sh_err *err);
int store_version_placements(struct api_req *q, const char *model, const char *version,
                             json_t **out, struct sh_err *err);
int store_version_profile(struct api_req *q, const char *model, const char *version, json_t **out,
                          struct sh_err *err);
/* store_catalog.c. Text that changes whenever the catalog's rows do. */
int store_catalog_mark(struct db *db, char *out, size_t size, struct sh_err *err);
/* Rows: version id, model id, tenant id, tenant, model, version, state, shared, max_batch,
 * precision, inputs, outputs, SLO latency_ms (NULL = none), priority, on_miss, reason. */
int store_catalog_load(struct db *db, struct db_res **out, struct sh_err *err);

/* store_blob.c. Rows: every path below blobs/ that something refers to, in order of bytes. */
int store_blob_list(struct db *db, struct db_res **out, struct sh_err *err);
int store_blob_used(struct db *db, const char *path, bool *out, struct sh_err *err);
/* Rows: paths of what was deleted and no live job uses, whose files a tenant's quota still counts.
 * Of such a path it does so no longer. */
int store_blob_deleted(struct db *db, struct db_res **out, struct sh_err *err);
int store_blob_gone(struct db *db, const char *path, struct sh_err *err);
/* ids: comma-separated. Rows: those of jobs that are gone, or that ended without success before
 * this Unix time; and whether it is gone. */
int store_blob_jobs_gone(struct db *db, const char *ids, int64_t before_s, struct db_res **out,
                         struct sh_err *err);
/* Does this executor have this job, in this attempt? In a transaction: it stays so to
 * its end. */
struct store_owner {
    const char *job, *executor, *attempt;
    bool is_late; /* it is enough that no other has it now: of a log, whose last lines come last */
};
int store_job_owned(struct db *db, const struct store_owner *o, bool *out, struct sh_err *err);

/* store_dataset.c */
int store_dataset_list(struct api_req *q, const struct req_page *page, json_t **out,
                       struct sh_err *err);
int store_dataset_get(struct api_req *q, const char *name, json_t **out, struct sh_err *err);
int store_dataset_create(struct api_req *q, const char *name, json_t **out, struct sh_err *err);
int store_dataset_delete(struct api_req *q, const char *name, const char *if_match, json_t **out,
                         struct sh_err *err);
int store_dataset_slot(struct api_req *q, const char *name, struct store_slot *out,
                       struct sh_err *err);
int store_dataset_ready(struct api_req *q, const struct store_artifact *a, json_t **out,
                        struct sh_err *err);
/* store_gpu.c: executors and what they do. A key that is no admin's is not shown what is of other
 * tenants. */
int store_gpu_list(struct api_req *q, const struct req_page *page, json_t **out,
                   struct sh_err *err);
int store_gpu_get(struct api_req *q, const char *name, json_t **out, struct sh_err *err);

/* store_usage.c */
enum usage_by {
#define X(id, word) USAGE_BY_##id,
    SH_USAGE_BY(X, )
#undef X
        USAGE_N_BY
};
struct store_usage {
    const char *tenant, *class, *model; /* the last two may be NULL: all */
    enum usage_by by;
    int64_t from_ms, to_ms; /* Unix time, [from, to) */
};
int store_usage(struct api_req *q, const struct store_usage *u, const struct req_page *page,
                json_t **out, struct sh_err *err);
int store_share_get(struct api_req *q, const char *tenant, json_t **out, struct sh_err *err);
int store_share_list(struct api_req *q, const struct req_page *page, json_t **out,
                     struct sh_err *err);

/* store_audit.c. Newest first. */
struct store_audit {
    const char *tenant, *actor, *action, *resource; /* NULL: any */
    int64_t from_ms, to_ms;                         /* Unix time, [from, to); < 0: any */
};
int store_audit_list(struct db *db, const struct store_audit *f, const struct req_page *page,
                     json_t **out, struct sh_err *err);

/* store_config.c: *out: OWNED: {"name": "text"} of what was changed; its version. */
int store_config_load(struct db *db, json_t **out, int64_t *version, struct sh_err *err);
/* values: {"name": "text" or null}. Fails: SH_E_PRECONDITION. Notifies shunt_config. */
int store_config_patch(struct api_req *q, const json_t *values, const char *if_match,
                       struct sh_err *err);

#endif

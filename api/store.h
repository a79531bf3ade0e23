/* store.h - all SQL of the API, as functions. Only store*.c contain statements.
 *
 * A change and its audit row are one statement or one transaction. Views come back as JSON made by
 * PostgreSQL. Where a row may be missing, *out is NULL and the call succeeds: the caller says why.
 * JSON results are OWNED, json_decref(). Pool threads only: q->db or db must be set.
 */
#ifndef SH_API_STORE_H
#define SH_API_STORE_H

#include "api/req.h"

/* store.c: the forms that statements share. */
int store_one(struct db *db, const struct db_stmt *s, const char *const *params, json_t **out,
              struct sh_err *err); /* column 0 of the first row as JSON */
/* Rows (id, JSON), one more than the page: {"items":[...],"next_cursor":...}. */
int store_page(struct db *db, const struct db_stmt *s, const char *const *params,
               const struct req_page *page, json_t **out, struct sh_err *err);

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
/* values: the quota's fields as JSON text. */
int store_quota_put(struct api_req *q, const char *tenant, const char *if_match, const char *values,
                    json_t **out, struct sh_err *err);

/* store_key.c */
struct store_key { /* tenant: NULL for an admin key */
    const char *tenant, *id, *name, *role, *hash_hex, *expires_at;
};
int store_key_list(struct api_req *q, const char *tenant, const struct req_page *page, json_t **out,
                   struct sh_err *err);
int store_key_create(struct db *db, const char *by_key, const char *request_id,
                     const struct store_key *k, json_t **out, struct sh_err *err);
/* Is there an admin key that is neither revoked nor expired? In a transaction: until its end no
 * other caller gets an answer. */
int store_key_admin_exists(struct db *db, bool *out, struct sh_err *err);
int store_key_revoke(struct api_req *q, const char *tenant, const char *id, json_t **out,
                     struct sh_err *err);
/* ids: comma-separated. Rows: id, tenant id, tenant, role, hash (hex), tenant state, live, expiry
 * in Unix ms (NULL = never), the tenant's requests_per_second and burst (0 = not set). */
int store_key_load(struct db *db, const char *ids, struct db_res **out, struct sh_err *err);
int store_key_listen(struct db *db, struct sh_err *err); /* LISTEN shunt_keys, shunt_models */

/* store_model.c */
int store_model_list(struct api_req *q, const struct req_page *page, json_t **out,
                     struct sh_err *err);
int store_model_get(struct api_req *q, const char *model, json_t **out, struct sh_err *err);
int store_model_create(struct api_req *q, const char *model, const char *visibility, json_t **out,
                       struct sh_err *err);
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
    int64_t version, max_batch; /* version 0: the next one */
};
int store_version_create(struct api_req *q, const struct store_version_new *v, json_t **out,
                         struct sh_err *err);
int store_version_delete(struct api_req *q, const char *model, const char *version,
                         const char *if_match, json_t **out, struct sh_err *err);
/* What an upload needs to know: id, state, storage used and allowed. id 0: no such thing. */
struct store_slot {
    int64_t id, used_bytes, max_bytes;
    bool open; /* may be uploaded now */
    char state[16];
};
/* One row: id, state, open, used and allowed bytes of storage. Without a row *out is zeroed. */
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
};
int store_version_register(struct api_req *q, const struct store_artifact *a, json_t **out,
                           struct sh_err *err);
int store_version_fail(struct api_req *q, int64_t id, const char *code, const char *reason,
                       struct sh_err *err);
/* store_catalog.c. Text that changes whenever the catalog's rows do. */
int store_catalog_mark(struct db *db, char *out, size_t size, struct sh_err *err);
/* Rows: version id, model id, tenant id, tenant, model, version, state, shared, max_batch,
 * precision, inputs, outputs, SLO latency_ms (NULL = none), priority, on_miss, reason. */
int store_catalog_load(struct db *db, struct db_res **out, struct sh_err *err);

/* store_blob.c. Rows: every path below blobs/ that something refers to, in order of bytes. */
int store_blob_list(struct db *db, struct db_res **out, struct sh_err *err);
int store_blob_used(struct db *db, const char *path, bool *out, struct sh_err *err);

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
int store_queue_list(struct api_req *q, const struct req_page *page, json_t **out,
                     struct sh_err *err);
int store_executor_list(struct api_req *q, const struct req_page *page, json_t **out,
                        struct sh_err *err);

/* store_job.c */
struct store_job {
    const char *kind, *name, *queue, *client_token; /* token: NULL = none */
    int64_t priority, max_attempts, version_id, dataset_id, eval_dataset_id; /* 0 = none */
    const char *spec;                                                        /* JSON text */
};
/* *created: false if client_token names an earlier job, which is then returned. Fails: SH_E_QUOTA,
 * SH_E_NOTFOUND (queue). */
int store_job_create(struct api_req *q, const struct store_job *j, bool *created, json_t **out,
                     struct sh_err *err);
int store_job_list(struct api_req *q, const struct req_page *page, json_t **out,
                   struct sh_err *err);
int store_job_get(struct api_req *q, const char *id, json_t **out, struct sh_err *err);
/* *out: the job as it is now. It is NULL if there is none. */
int store_job_cancel(struct api_req *q, const char *id, json_t **out, struct sh_err *err);
int store_job_events(struct api_req *q, const char *id, const struct req_page *page, json_t **out,
                     struct sh_err *err);
int store_job_checkpoints(struct api_req *q, const char *id, const struct req_page *page,
                          json_t **out, struct sh_err *err);
/* Version (JSON: id, state, inputs, outputs, meta, max_batch) and dataset (id, state, tensors,
 * n_samples, the tenant's max_storage_bytes) that a job names. */
int store_job_version(struct api_req *q, const char *model, int64_t version, json_t **out,
                      struct sh_err *err);
int store_job_dataset(struct api_req *q, const char *name, json_t **out, struct sh_err *err);

#endif

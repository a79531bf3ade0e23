/* store.h - the API's SQL, as functions; store_job.h has that of jobs, store_event.h that of their
 * events. Only store*.c contain statements.
 *
 * A change and its audit row are one statement or one transaction. Views come as JSON made by
 * PostgreSQL. If a row is missing, *out is NULL and the call succeeds; the caller reports it. JSON
 * results are OWNED, json_decref(). Pool threads only: q->db or db must be set.
 */
#ifndef SH_API_STORE_STORE_H
#define SH_API_STORE_STORE_H

#include "api/request/req.h"
#include "api/store/store_life.h"
#include "common/buckets.h"
#include "common/states.h"

/* store.c: helpers that all statements use. */
int store_one(struct db *db, const struct db_stmt *s, const char *const *params, json_t **out,
              struct sh_err *err); /* column 0 of the first row as JSON */
/* Rows (id, JSON), one more than the page: {"items":[...],"next_cursor":...}. */
int store_page(struct db *db, const struct db_stmt *s, const char *const *params,
               const struct req_page *page, json_t **out, struct sh_err *err);

/* An integer as a statement's parameter, valid until the end of the enclosing block. */
#define STORE_TEXT(v) store_text((char[24]){0}, (int64_t)(v))
const char *store_text(char out[static 24], int64_t v);

/* Parses a row's JSON; name: the statement's. *out: OWNED. */
int store_json(const char *text, const char *name, json_t **out, struct sh_err *err);

/* store_idem.c: Idempotency-Key. If the key is known with another fingerprint: SH_E_CONFLICT, with
 * status 422 for the reply. */
/* *out: the first answer; NULL if there is none yet. */
int store_idem_find(struct api_req *q, const struct req_idem *i, json_t **out, struct sh_err *err);
/* First in the transaction that does the work: the same, and no other may begin until it ends.
 * Fails: SH_E_CONFLICT: another has begun. */
int store_idem_begin(struct api_req *q, const struct req_idem *i, json_t **out, struct sh_err *err);
/* Last in that transaction: from its commit on this is the answer, for a day. */
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
/* Until the end of the transaction, allows only one caller at a time to count against a quota that
 * is used later. */
int store_quota_lock(struct db *db, int64_t tenant_id, struct sh_err *err);
/* values: the quota's fields as JSON text. */
int store_quota_put(struct api_req *q, const char *tenant, const char *if_match, const char *values,
                    json_t **out, struct sh_err *err);

/* store_key.c */
#define STORE_MAX_KEYS 1000 /* live keys of a tenant */
/* Most models, versions (all models together) and datasets of a tenant, since every API process
 * keeps each in memory. Versions made by jobs count, but are not refused. */
#define STORE_MAX_THINGS 10000
struct store_key { /* tenant: NULL for a key of role admin or executor */
    const char *tenant, *id, *name, *role, *hash_hex, *expires_at;
};
int store_key_list(struct api_req *q, const char *tenant, const struct req_page *page, json_t **out,
                   struct sh_err *err);
/* *out: NULL: no such tenant, or it has too many keys. */
int store_key_create(struct db *db, const char *by_key, const char *request_id,
                     const struct store_key *k, json_t **out, struct sh_err *err);
/* Is there a key of this role that is neither revoked nor expired? In a transaction: until it ends
 * no other caller gets an answer. */
int store_key_role_exists(struct db *db, const char *role, bool *out, struct sh_err *err);
int store_key_get(struct api_req *q, const char *tenant, const char *id, json_t **out,
                  struct sh_err *err);
/* k: tenant, id, hash_hex of the new secret. *out: NULL: the key is missing or not live. */
int store_key_rotate(struct api_req *q, const struct store_key *k, int64_t overlap_s, json_t **out,
                     struct sh_err *err);
/* ids and Unix ms, comma-separated: records last uses, unless later ones are known. */
int store_key_used(struct db *db, const char *ids, const char *times, struct sh_err *err);
int store_key_revoke(struct api_req *q, const char *tenant, const char *id, json_t **out,
                     struct sh_err *err);
/* ids: comma-separated. Rows: id, tenant id, tenant, role, hash (hex), tenant state, live, expiry
 * in Unix ms (NULL: never), the tenant's requests_per_second and burst (0: not set), the previous
 * hash (hex, NULL: none) and its expiry in Unix ms. */
int store_key_load(struct db *db, const char *ids, struct db_res **out, struct sh_err *err);
int store_key_listen(struct db *db, struct sh_err *err); /* LISTEN shunt_keys, shunt_models */
/* Does the database accept commits? Changes no row. */
int store_commit(struct db *db, struct sh_err *err);

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

/* store_alias.c. A model of the tenant's own, or one shared with it; changes only of its own. */
int store_alias_list(struct api_req *q, const char *model, const struct req_page *page,
                     json_t **out, struct sh_err *err);
int store_alias_get(struct api_req *q, const char *model, const char *alias, json_t **out,
                    struct sh_err *err);
enum store_alias_change { STORE_ALIAS_PUT, STORE_ALIAS_PROMOTE, STORE_ALIAS_N_CHANGES };
struct store_alias {
    const char *model, *alias, *if_match;
    enum store_alias_change change;
    const char *targets; /* JSON as alias_targets_json(); NULL: those of the alias `from` */
    const char *from;
    const char *sticky; /* "true", "false"; for PROMOTE NULL: as it is */
    const char *policy; /* JSON, alias_policy_json(); NULL: none, for PROMOTE as it is */
};
/* Makes the alias or changes it. *out: NULL: no such model of the tenant's own, or If-Match names
 * another version of the alias. Fails: SH_E_NOTFOUND: there is no alias `from`; SH_E_CONFLICT: a
 * version cannot serve; SH_E_QUOTA: the model has too many. */
int store_alias_set(struct api_req *q, const struct store_alias *a, json_t **out,
                    struct sh_err *err);
/* To what it was before its last change. *out: NULL: there is no such alias, it has another version
 * than If-Match, or nothing to go back to. Fails: SH_E_CONFLICT: what it was cannot serve. */
int store_alias_rollback(struct api_req *q, const char *model, const char *alias,
                         const char *if_match, json_t **out, struct sh_err *err);
int store_alias_delete(struct api_req *q, const char *model, const char *alias,
                       const char *if_match, json_t **out, struct sh_err *err);
/* store_alias_count.c. rows: JSON, {alias, generation, version, slice (Unix ms), answered, failed,
 * met, missed}; each replaces what this API wrote for it. */
int store_alias_counts(struct db *db, int64_t api, const char *rows, struct sh_err *err);
/* Removes what is older than the longest window. */
int store_alias_sweep(struct db *db, struct sh_err *err);
/* Rows: the aliases that may be rolled back by themselves: id, row version, tenant, model, name,
 * targets, previous (NULL: none), policy, percentile of the latency target (NULL: none), and sums
 * of the policy's window: [{"version", "is_current" (of the present assignment), ...}]. */
int store_alias_cases(struct db *db, struct db_res **out, struct sh_err *err);
/* Rolls it back by itself, to these targets (JSON). *done: false: somebody changed it meanwhile, or
 * none of them is READY. */
int store_alias_return(struct db *db, const char *id, const char *row_version, const char *targets,
                       const char *code, const char *why, bool *done, struct sh_err *err);

/* store_version.c */
int store_version_list(struct api_req *q, const char *model, const struct req_page *page,
                       json_t **out, struct sh_err *err);
int store_version_get(struct api_req *q, const char *model, const char *version, json_t **out,
                      struct sh_err *err);
struct store_version_new {
    const char *model, *precision;
    int64_t version, max_batch; /* version 0: the next one; max_batch 0: the file's, or 8 */
    const char *buckets;        /* JSON, common/buckets.h; NULL: none */
};
int store_version_create(struct api_req *q, const struct store_version_new *v, json_t **out,
                         struct sh_err *err);
enum store_thing { STORE_MODELS, STORE_VERSIONS, STORE_DATASETS };
/* May the tenant create another? Fails: SH_E_QUOTA. */
int store_has_place(struct api_req *q, enum store_thing what, struct sh_err *err);
int store_version_delete(struct api_req *q, const char *model, const char *version,
                         const char *if_match, json_t **out, struct sh_err *err);
/* What an upload needs to know: id, state, storage used and allowed. id 0: no such thing. */
struct store_slot {
    int64_t id, used_bytes, max_bytes, row_version;
    int64_t linger_bytes; /* of deleted files that still exist */
    bool open;            /* may be uploaded now */
    char state[16];
    int64_t max_batch; /* given at the version's creation; 0: none, the file may fix it */
    char buckets[SH_BUCKETS_TEXT]; /* given at the version's creation; "": none */
};
/* Reads one row: id, state, open, used and allowed bytes of storage, row version, bytes of deleted
 * files; for versions also max_batch and buckets, or NULL. No row: *out is zeroed. */
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
    int64_t max_batch;                   /* versions: fixed by the file; 0: as created */
    const char *if_match;                /* row version or NULL */
};
int store_version_register(struct api_req *q, const struct store_artifact *a, json_t **out,
                           struct sh_err *err);
int store_version_fail(struct api_req *q, int64_t id, const char *code, const char *reason,
                       struct sh_err *err);
#define STORE_SLO_KEEP_H 25
/* store_slo.c. rows: JSON, {model, minute (Unix ms), met, missed, rejected, bucket[], count[]};
 * each replaces what this API (identified by a random number) wrote for its minute. */
int store_slo_minutes(struct db *db, int64_t api, const char *rows, struct sh_err *err);
/* Removes rows older than STORE_SLO_KEEP_H. */
int store_slo_sweep(struct db *db, struct sh_err *err);
/* The target and the sums of the last minutes, "buckets" as [number, count]. *out: NULL: no such
 * model, or no target. */
int store_slo_attainment(struct api_req *q, const char *model, int64_t minutes, json_t **out,
                         struct sh_err *err);
/* store_load.c. Loads, unloads and pins a version or (version NULL) all versions of a model.
 * *n_out: how many changed. Pinning fails with SH_E_QUOTA or SH_E_CONFLICT if there is no room. */
enum store_wish { STORE_LOAD, STORE_UNLOAD, STORE_PIN, STORE_UNPIN };
int store_version_wish(struct api_req *q, enum store_wish wish, const char *model,
                       const char *version, int64_t *n_out, struct sh_err *err);
int store_version_placements(struct api_req *q, const char *model, const char *version,
                             json_t **out, struct sh_err *err);
int store_version_profile(struct api_req *q, const char *model, const char *version, json_t **out,
                          struct sh_err *err);
/* store_catalog.c. Changes whenever the catalog's rows do: the database's life, a dot, the rest. */
int store_catalog_mark(struct db *db, char *out, size_t size, struct sh_err *err);
/* Rows: version id, model id, tenant id, tenant, model, version, state, shared, max_batch,
 * precision, inputs, outputs, SLO latency_ms (NULL = none), priority, on_miss, reason. */
int store_catalog_load(struct db *db, struct db_res **out, struct sh_err *err);
/* Rows: alias id, model id, name, targets, previous (NULL: none), generation, sticky, and whether
 * its requests are counted. */
int store_catalog_aliases(struct db *db, struct db_res **out, struct sh_err *err);

/* store_blob.c. Rows: every path below blobs/ that something refers to, in order of bytes. */
int store_blob_list(struct db *db, struct db_res **out, struct sh_err *err);
int store_blob_used(struct db *db, const char *path, bool *out, struct sh_err *err);
/* Rows: paths of deleted things that no live job uses, whose files still count for a quota. A path
 * given to store_blob_gone() no longer does. */
int store_blob_deleted(struct db *db, struct db_res **out, struct sh_err *err);
int store_blob_gone(struct db *db, const char *path, struct sh_err *err);
/* ids: comma-separated. Rows: jobs that are gone, or ended without success before this Unix time;
 * and whether the job is gone. */
int store_blob_jobs_gone(struct db *db, const char *ids, int64_t before_s, struct db_res **out,
                         struct sh_err *err);
/* Does this executor have this job, in this attempt? In a transaction the answer holds until its
 * end. */
struct store_owner {
    const char *job, *executor, *attempt;
    bool is_late; /* for a log, whose last lines come late: no other executor may have it now */
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
/* store_snapshot.c: all that decisions rest on, of this moment, and the requests of so many hours
 * before. *out: OWNED. */
int store_snapshot(struct db *db, double hours, json_t **out, struct sh_err *err);

/* store_gpu.c: executors and what they do. Only an admin's key sees what belongs to other
 * tenants. */
int store_gpu_list(struct api_req *q, const struct req_page *page, json_t **out,
                   struct sh_err *err);
/* Who had each of them over the last minute, and its last switches. */
int store_gpu_times(struct api_req *q, const struct req_page *page, json_t **out,
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
    const char *tenant, *class, *model; /* class and model may be NULL: all */
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

/* store_config.c: *out: OWNED, the changed options {"name": "text"}; *at: their version. */
int store_config_load(struct db *db, json_t **out, struct store_life *at, struct sh_err *err);
/* values: {"name": "text" or null}. Fails: SH_E_PRECONDITION. Notifies shunt_config. */
int store_config_patch(struct api_req *q, const json_t *values, const char *if_match,
                       struct sh_err *err);

#endif

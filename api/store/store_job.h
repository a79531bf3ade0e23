/* store_job.h - SQL of jobs, job arrays and queues; the rules are those of store.h. */
#ifndef SH_API_STORE_STORE_JOB_H
#define SH_API_STORE_STORE_JOB_H

#include "api/spec/jobctl.h"
#include "api/spec/jobfilter.h"
#include "api/spec/jobspec.h"
#include "api/store/store.h"

/* store_queue.c. q->tenant_id: whose queues are visible besides the shared ones; 0: only those. */
#define STORE_MAX_QUEUES 100 /* for each tenant, and for shared ones */
struct store_queue {
    int64_t tenant_id;        /* the owner; 0: shared */
    const char *name, *state; /* state NULL: OPEN on creation, else unchanged */
    int64_t priority;
    bool has_priority;
};
int store_queue_list(struct api_req *q, const struct req_page *page, json_t **out,
                     struct sh_err *err);
int store_queue_get(struct api_req *q, const char *name, json_t **out, struct sh_err *err);
/* *out: NULL: the name is taken, or there are too many. */
int store_queue_create(struct api_req *q, const struct store_queue *x, json_t **out,
                       struct sh_err *err);
int store_queue_patch(struct api_req *q, const struct store_queue *x, const char *if_match,
                      json_t **out, struct sh_err *err);
int store_queue_delete(struct api_req *q, const struct store_queue *x, const char *if_match,
                       json_t **out, struct sh_err *err);
/* Fails with the reason why a job cannot go into this queue. */
int store_queue_refuse(struct api_req *q, const char *name, struct sh_err *err);

/* store_submit.c. What a job refers to: a version (JSON: id, version, state, inputs, outputs, meta,
 * max_batch, source_job) and datasets (id, state, tensors, n_samples, the tenant's
 * max_storage_bytes); NULL: not found. If none is named, the version is the newest or, if
 * jobspec_wants_upload(), the newest uploaded one; if only trained ones are left, the newest of
 * these. */
struct store_parts {
    json_t *version, *dataset, *eval_dataset; /* OWNED, store_parts_fini() */
};
int store_submit_parts(struct api_req *q, const struct jobspec *s, struct store_parts *out,
                       struct sh_err *err);
void store_parts_fini(struct store_parts *p);
/* Bytes that the tenant stores: models, datasets, results. */
int store_stored(struct api_req *q, int64_t *out, struct sh_err *err);
enum store_submit_way { STORE_SUBMIT_JOB, STORE_SUBMIT_BATCH, STORE_SUBMIT_ARRAY };
/* Creates all jobs of one request. jobs: an array of objects whose members are the columns of
 * SUBMIT; array: the same for job_array, for STORE_SUBMIT_ARRAY only.
 * Rows, by place: place, id (NULL: no job was created: its token is known, or no such queue is
 * open), its JSON (of STORE_SUBMIT_JOB), id of the array (NULL: none, or its token is known and
 * nothing was created). *out: OWNED, db_res_free(). Fails: SH_E_QUOTA; then nothing was created. */
int store_submit(struct api_req *q, enum store_submit_way way, const json_t *jobs,
                 const json_t *array, struct db_res **out, struct sh_err *err);
int store_job_by_token(struct api_req *q, const char *token, json_t **out, struct sh_err *err);

/* store_array.c */
int store_array_list(struct api_req *q, const struct req_page *page, json_t **out,
                     struct sh_err *err);
int store_array_get(struct api_req *q, const char *id, json_t **out, struct sh_err *err);
int store_array_by_token(struct api_req *q, const char *token, json_t **out, struct sh_err *err);
/* max_parallel: NULL: no limit. *out: NULL: not found, or another version. */
int store_array_patch(struct api_req *q, const char *id, const char *if_match,
                      const char *max_parallel, json_t **out, struct sh_err *err);

/* store_job.c */
int store_job_list(struct api_req *q, const struct jobfilter *f, const struct req_page *page,
                   json_t **out, struct sh_err *err);
int store_job_get(struct api_req *q, const char *id, json_t **out, struct sh_err *err);
/* Does one action, with an event each, on one job or (job NULL) on all jobs of an array that allow
 * it; others stay as they are. *n_changed: how many changed. */
int store_job_control(struct api_req *q, const char *job, const char *array, const struct jobctl *c,
                      int64_t *n_changed, struct sh_err *err);
/* patch: JSON text. *out: NULL: the job is missing, final, has another version than if_match names,
 * or would have too many labels. */
int store_job_patch(struct api_req *q, const char *id, const char *if_match, const char *patch,
                    json_t **out, struct sh_err *err);
/* Removes the file from the job's row. *out: NULL: it has none. */
int store_job_drop_result(struct api_req *q, const char *id, json_t **out, struct sh_err *err);
int store_job_events(struct api_req *q, const char *id, const struct req_page *page, json_t **out,
                     struct sh_err *err);
/* For event streams. *newest: id of its last event (0: none); *is_final: no more will come;
 * *exists: there is such a job. */
int store_job_newest_event(struct api_req *q, const char *id, bool *exists, int64_t *newest,
                           bool *is_final, struct sh_err *err);
struct store_watch {
    int64_t job, after;
};
/* New events of n jobs: rows (place in asks from 1, id, JSON in one line, is it the job's last?),
 * by id; at most STORE_WATCH_EVENTS for each. *out: OWNED, db_res_free(). */
#define STORE_WATCH_EVENTS 100
int store_job_watch(struct db *db, const struct store_watch *asks, size_t n, struct db_res **out,
                    struct sh_err *err);
int store_job_checkpoints(struct api_req *q, const char *id, const struct req_page *page,
                          json_t **out, struct sh_err *err);

#endif

/* store_job.h - SQL of jobs, arrays of them and their queues; the rules are those of store.h. */
#ifndef SH_API_STORE_STORE_JOB_H
#define SH_API_STORE_STORE_JOB_H

#include "api/spec/jobctl.h"
#include "api/spec/jobfilter.h"
#include "api/spec/jobspec.h"
#include "api/store/store.h"

/* store_queue.c. q->tenant_id: whose queues are seen beside the shared ones; 0: those alone. */
#define STORE_MAX_QUEUES 100 /* of one tenant, and of nobody */
struct store_queue {
    int64_t tenant_id;        /* the owner; 0: shared */
    const char *name, *state; /* state NULL: OPEN when it is made, unchanged else */
    int64_t priority;
    bool has_priority;
};
int store_queue_list(struct api_req *q, const struct req_page *page, json_t **out,
                     struct sh_err *err);
int store_queue_get(struct api_req *q, const char *name, json_t **out, struct sh_err *err);
/* *out is NULL if the name is taken or there are too many. */
int store_queue_create(struct api_req *q, const struct store_queue *x, json_t **out,
                       struct sh_err *err);
int store_queue_patch(struct api_req *q, const struct store_queue *x, const char *if_match,
                      json_t **out, struct sh_err *err);
int store_queue_delete(struct api_req *q, const struct store_queue *x, const char *if_match,
                       json_t **out, struct sh_err *err);
/* Why a job cannot go into this queue: always a failure. */
int store_queue_refuse(struct api_req *q, const char *name, struct sh_err *err);

/* store_submit.c. What a job refers to: a version (JSON: id, version, state, inputs, outputs,
 * meta, max_batch, source_job) and datasets (id, state, tensors, n_samples, the tenant's
 * max_storage_bytes); NULL: there is none of this name. Where none is named the version is, if
 * jobspec_wants_upload(), the newest that was uploaded, and if all that are left were trained the
 * newest of these; else the newest. */
struct store_parts {
    json_t *version, *dataset, *eval_dataset; /* OWNED, store_parts_fini() */
};
int store_submit_parts(struct api_req *q, const struct jobspec *s, struct store_parts *out,
                       struct sh_err *err);
void store_parts_fini(struct store_parts *p);
/* Bytes that the tenant has stored: models, datasets, results. */
int store_stored(struct api_req *q, int64_t *out, struct sh_err *err);
/* All jobs of one request: an array of objects whose members are the columns of SUBMIT. array: the
 * same for job_array, or NULL. what: "job", "batch" or "array", for the audit. Rows, by
 * place: place, id (NULL: no job was made, as its token is known or no such queue is open), its
 * JSON (of "job"), number of the array (NULL: none, or its token is known and nothing was made).
 * *out: OWNED, db_res_free(). Fails: SH_E_QUOTA; then nothing was made. */
int store_submit(struct api_req *q, const char *what, const json_t *jobs, const json_t *array,
                 struct db_res **out, struct sh_err *err);
int store_job_by_token(struct api_req *q, const char *token, json_t **out, struct sh_err *err);

/* store_array.c */
int store_array_list(struct api_req *q, const struct req_page *page, json_t **out,
                     struct sh_err *err);
int store_array_get(struct api_req *q, const char *id, json_t **out, struct sh_err *err);
int store_array_by_token(struct api_req *q, const char *token, json_t **out, struct sh_err *err);
/* max_parallel: NULL = no limit. *out: NULL if there is none, or of another version. */
int store_array_patch(struct api_req *q, const char *id, const char *if_match,
                      const char *max_parallel, json_t **out, struct sh_err *err);

/* store_job.c */
int store_job_list(struct api_req *q, const struct jobfilter *f, const struct req_page *page,
                   json_t **out, struct sh_err *err);
int store_job_get(struct api_req *q, const char *id, json_t **out, struct sh_err *err);
/* One action, with an event each, on one job or (job NULL) on all of an array that allow it. Those
 * that do not stay as they are. *n_changed: how many did. */
int store_job_control(struct api_req *q, const char *job, const char *array, const struct jobctl *c,
                      int64_t *n_changed, struct sh_err *err);
/* patch: JSON text. *out: NULL where the job is missing, final, of another version than if_match
 * names, or would have too many labels. */
int store_job_patch(struct api_req *q, const char *id, const char *if_match, const char *patch,
                    json_t **out, struct sh_err *err);
/* The job's row forgets its file. *out is NULL if it has none. */
int store_job_drop_result(struct api_req *q, const char *id, json_t **out, struct sh_err *err);
int store_job_events(struct api_req *q, const char *id, const struct req_page *page, json_t **out,
                     struct sh_err *err);
/* For event streams. *newest: the id of its last event (0: none); *is_final: no more will come.
 * *exists: false if there is no such job. */
int store_job_newest_event(struct api_req *q, const char *id, bool *exists, int64_t *newest,
                           bool *is_final, struct sh_err *err);
struct store_watch {
    int64_t job, after;
};
/* What is new of n jobs at once: rows (place in asks from 1, id, JSON in one line, last of its
 * job?), by id; at most STORE_WATCH_EVENTS of each. *out: OWNED, db_res_free(). */
#define STORE_WATCH_EVENTS 100
int store_job_watch(struct db *db, const struct store_watch *asks, size_t n, struct db_res **out,
                    struct sh_err *err);
int store_job_checkpoints(struct api_req *q, const char *id, const struct req_page *page,
                          json_t **out, struct sh_err *err);

#endif

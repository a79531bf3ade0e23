/* submit.h - from the bodies of jobs to jobs: each is checked, what they name is looked up once for
 * all, and one statement makes them. One job, a batch and an array go the same way.
 *
 * A failure of an item is the client's and kept in the item; what a function returns concerns the
 * whole request. Not thread-safe.
 */
#ifndef SH_API_JOBS_SUBMIT_H
#define SH_API_JOBS_SUBMIT_H

#include "api/spec/jobspec.h"
#include "api/store/store_job.h"

#define SUBMIT_MAX_JOBS 1000

/* What became of it. EARLIER: its client_token named a job before. */
enum submit_made { SUBMIT_REFUSED, SUBMIT_MADE, SUBMIT_EARLIER };

struct submit_item {
    struct jobspec spec;
    int64_t version_id, dataset_id, eval_dataset_id; /* 0 = none */
    int64_t version;                                 /* its number; of EARLIER: of `job` */
    int64_t index;                                   /* of an array; -1: of none */
    int status;                                      /* of a refusal; 0: as its code says */
    struct sh_err err;                               /* rc SH_OK: nothing is wrong so far */
    struct sh_faults faults;                         /* for those of this item alone */
    enum submit_made made;
    int64_t id;
    json_t *job; /* OWNED: of EARLIER, and where there is no other item; else NULL */
};

struct submit {
    struct api_req *q;
    const char *what;          /* as store_submit() wants it */
    const json_t *array;       /* BORROWED, NULL: none */
    int64_t array_id;          /* 0: its token was known, or there is none */
    struct submit_item *items; /* OWNED, submit_fini() */
    size_t n;
};

int submit_init(struct submit *s, struct api_req *q, const char *what, size_t n,
                struct sh_err *err);
void submit_fini(struct submit *s);
/* body: a job as POST /jobs takes it; BORROWED until the end. faults: for all that is wrong in it;
 * NULL: nowhere. */
void submit_read(struct submit_item *i, const json_t *body, struct sh_faults *faults);
/* Makes them. May be called again for the same items, in another transaction. */
int submit_store(struct submit *s, struct sh_err *err);
/* fn's answer; or, if the request has an Idempotency-Key that is known, the first one again (the
 * reply's `replayed`). One transaction; fn may be called again in another. *out: OWNED. */
typedef int submit_fn(struct submit *s, json_t **out, struct sh_err *err);
int submit_once(struct submit *s, submit_fn *fn, json_t **out, struct sh_err *err);

#endif

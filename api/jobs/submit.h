/* submit.h - creates jobs from their bodies: each is checked, everything that they name is looked
 * up once for all, and one statement creates them. A single job, a batch and an array go the same
 * way.
 *
 * A failure of an item is the client's and stays in the item; a function's result concerns the
 * whole request. Not thread-safe.
 */
#ifndef SH_API_JOBS_SUBMIT_H
#define SH_API_JOBS_SUBMIT_H

#include "api/spec/jobspec.h"
#include "api/store/store_job.h"

#define SUBMIT_MAX_JOBS 1000

/* The outcome. REFUSED: not sent to the database, or not yet; UNMADE: no row was made of it;
 * EARLIER: its client_token already named a job. */
enum submit_made { SUBMIT_REFUSED, SUBMIT_UNMADE, SUBMIT_MADE, SUBMIT_EARLIER };

struct submit_item {
    struct jobspec spec;
    int64_t version_id, dataset_id, eval_dataset_id; /* 0: none */
    int64_t version;                                 /* its number; EARLIER: that of `job` */
    int64_t index;                                   /* in an array; -1: no array */
    int status;                                      /* HTTP status of a refusal; 0: as its code */
    struct sh_err err;                               /* rc SH_OK: no failure so far */
    struct sh_faults faults;                         /* the faults of this item only */
    enum submit_made made;
    int64_t id;
    json_t *job;     /* OWNED: if EARLIER, or if it is the only item; else NULL */
    json_t *assumes; /* OWNED: jobspec_assumes() */
};

struct submit {
    struct api_req *q;
    enum store_submit_way way;
    const json_t *array;       /* BORROWED, NULL: none */
    int64_t array_id;          /* 0: its token was known, or no array */
    bool is_alone;             /* what was made stays, whatever fails behind it */
    struct submit_item *items; /* OWNED, submit_fini() */
    size_t n;
};

int submit_init(struct submit *s, struct api_req *q, enum store_submit_way way, size_t n,
                struct sh_err *err);
void submit_fini(struct submit *s);
/* body: a job as in POST /jobs; BORROWED until the end. faults: collects everything wrong in it;
 * NULL: nowhere. */
void submit_read(struct submit_item *i, const json_t *body, struct sh_faults *faults);
/* Creates the jobs. May be called again for the same items, in another transaction. */
int submit_store(struct submit *s, struct sh_err *err);
/* Returns fn's answer or, if the Idempotency-Key is known, the first answer again (reply.replayed).
 * One transaction; fn may be called again in another. *out: OWNED. */
typedef int submit_fn(struct submit *s, json_t **out, struct sh_err *err);
int submit_once(struct submit *s, submit_fn *fn, json_t **out, struct sh_err *err);
/* Adds to the answer what the first job assumes that assumes anything. */
void submit_say_assumes(const struct submit *s, json_t *answer);

#endif

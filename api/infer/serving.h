/* serving.h - which versions would be served now: what the leading scheduler says of the executors
 * that are connected to it. Nothing is ready while there is no such scheduler. Thread-safe.
 */
#ifndef SH_API_INFER_SERVING_H
#define SH_API_INFER_SERVING_H

#include "api/cache/catalog.h"
#include "common/msg.h"

struct api_req;
struct serving;

struct serving_state {
    enum msg_up up; /* NONE: no scheduler has named it */
    char step[16];  /* LOADING; "": not known, as are the numbers then */
    uint32_t done, total;
    int64_t left_ns; /* LOADING; < 0: not known */
    char msg[256];   /* FAILED, or LOADING and it has failed before */
};

int serving_new(struct serving **out, struct sh_err *err); /* OWNED, serving_free() */
void serving_free(struct serving *s);                      /* NULL is allowed */

/* For the link. */
void serving_clear(struct serving *s); /* no scheduler, or another one */
void serving_note(struct serving *s, const struct msg_model_up *m);
void serving_count(struct serving *s, const struct msg_serving *m);

/* Executors that take requests, and versions that nobody serves though one is about to. False: no
 * scheduler has said. */
bool serving_counts(struct serving *s, uint32_t *n_execs, uint32_t *n_missing);
void serving_get(struct serving *s, int64_t version_id, struct serving_state *out);
bool serving_has(struct serving *s, const struct cat_version *v); /* is it ready, then? */
/* Why one that is READY in the database is not ready, for people; "" if it is. */
void serving_reason(struct serving *s, int64_t version_id, char *out, size_t size);

/* Of a version, or of all those of a model: what executors could not load they try again at once.
 * Done already is what a new wish in the database does. On a pool thread. */
void serving_load_again(struct api_req *q, const json_t *j);
/* Says in a version, or in all those of a model, or of a page of either, what is so: a state of
 * READY becomes LOADING or FAILED where nobody serves it, "loading" tells how far it is, and
 * "traffic" of a model what it was asked in the last minute. On a pool thread. */
int serving_show(struct api_req *q, json_t *j, struct sh_err *err);
/* req_reply() of one of these, shown. TAKES j. */
int serving_reply(struct api_req *q, json_t *j, const char *location, struct sh_err *err);

#endif

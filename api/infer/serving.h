/* serving.h - which versions can be served now: what the leading scheduler reports of its connected
 * executors. Without such a scheduler nothing is ready. Thread-safe.
 */
#ifndef SH_API_INFER_SERVING_H
#define SH_API_INFER_SERVING_H

#include "api/cache/catalog.h"
#include "common/msg.h"

struct api_req;
struct serving;

struct serving_state {
    enum msg_up up; /* NONE: no scheduler has reported it */
    char step[16];  /* LOADING; "": unknown, and so are the numbers */
    uint32_t done, total;
    int64_t left_ns; /* LOADING; < 0: unknown */
    char msg[256];   /* FAILED, or LOADING after a failure */
};

int serving_new(struct serving **out, struct sh_err *err); /* OWNED, serving_free() */
void serving_free(struct serving *s);                      /* NULL is allowed */

/* For the link. */
void serving_clear(struct serving *s); /* no scheduler, or another one */
void serving_note(struct serving *s, const struct msg_model_up *m);
void serving_count(struct serving *s, const struct msg_serving *m);

/* Executors that take requests, and versions that nobody serves yet but will. False: no scheduler
 * has reported. */
bool serving_counts(struct serving *s, uint32_t *n_execs, uint32_t *n_missing);
void serving_get(struct serving *s, int64_t version_id, struct serving_state *out);
bool serving_has(struct serving *s, const struct cat_version *v); /* is it ready? */
/* Why a version that is READY in the database is not ready, for people; "": it is. */
void serving_reason(struct serving *s, int64_t version_id, char *out, size_t size);

/* Executors retry at once what they failed to load, of a version or of all versions of a model. A
 * new wish in the database does that already. On a pool thread. */
void serving_load_again(struct api_req *q, const json_t *j);
/* Corrects a version, the versions of a model, or a page of either: READY becomes LOADING or FAILED
 * if nobody serves it, "loading" shows the progress, and "traffic" of a model its requests in the
 * last minute. On a pool thread. */
int serving_show(struct api_req *q, json_t *j, struct sh_err *err);
/* serving_show(), then req_reply(). TAKES j. */
int serving_reply(struct api_req *q, json_t *j, const char *location, struct sh_err *err);

#endif

/* link.h - the thread that talks to the scheduler and to executors.
 *
 * One event loop in one thread owns every connection and the table of requests in flight. HTTP
 * threads only put commands (open, ready, cancel) into a queue and wake it.
 *
 *   OPEN     -> scheduler: INFER_OPEN, with the headers; together with READY if the body is small,
 *               unless much of the input is in a client's shared memory, from which it is read then
 *   PLACED   <- scheduler: the executor that will need the payload
 *   READY    -> scheduler: INFER_READY; a remote executor gets the input as chunks
 *   RESULT   <- executor, or REFUSED <- scheduler: the request is complete
 *
 * Every request ends: by a result, a refusal, its deadline, its client leaving, or the loss of its
 * executor or of the scheduler. A request that ends without word from an executor keeps its slots
 * until that word comes, or until no executor can still be writing to them.
 */
#ifndef SH_API_INFER_LINK_H
#define SH_API_INFER_LINK_H

#include "api/infer/infer_request.h"

struct link;

/* KEEPS a (conf, slab). Starts the thread. *out: OWNED, link_stop(). */
int link_start(struct api *a, struct link **out, struct sh_err *err);
/* Completes the remaining requests with SH_E_UNAVAILABLE and ends the thread. */
void link_stop(struct link *l);
void link_free(struct link *l); /* after link_stop() and the last request; NULL is allowed */

/* Any thread. Executors that could not load this version try again at once. */
void link_hint_load(struct link *l, int64_t version_id);
/* Any thread. link_open fails with SH_E_UNAVAILABLE (no scheduler) or SH_E_QUEUEFULL. */
int link_open(struct link *l, struct infer *i, struct sh_err *err);
/* Not with READY but now, if that is still to come. Fails as link_open. */
int link_open_late(struct link *l, struct infer *i, struct sh_err *err);
/* later: link_wake() will be called soon. */
void link_ready(struct link *l, struct infer *i, bool later);
void link_wake(struct link *l); /* any thread */
void link_cancel(struct link *l, struct infer *i);
/* A question to the scheduler about one job; embedded in what waits for the answer. */
struct link_ask {
    int64_t job;             /* in */
    int rc;                  /* out: SH_OK, or why there is no answer */
    char *text;              /* out: OWNED by the asker, JSON (scheduler/explain.h) */
    void (*done)(void *arg); /* called once, on the link's thread; the ask may be gone afterwards */
    void *arg;
    uint64_t rid;
    int64_t deadline_ns;
    struct link_ask *next;
};
/* KEEPS a until done() is called, in two seconds at the latest; done() also reports a refusal. Any
 * thread. */
void link_ask(struct link *l, struct link_ask *a);
/* Reports that "jobs" or "models" have changed in the database, or that it was "reached". Never
 * blocks. */
void link_hint(struct link *l, const char *what);
/* Any thread: tells the scheduler and the executors, soon. */
void link_want_spans(struct link *l, const struct msg_span_wish *w);
uint64_t link_new_rid(struct link *l);      /* any thread */
uint64_t link_api_id(const struct link *l); /* names this API to the others */
bool link_is_up(const struct link *l);      /* a leading scheduler said WELCOME */

#endif

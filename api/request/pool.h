/* pool.h - threads with a database connection each, for work that may block.
 *
 * HTTP threads never block: they submit a task, suspend the connection and go on. The queue is
 * bounded; if it is full the answer is 503, not a wait. Owners take turns: a tenant with a hundred
 * queued tasks delays another's by one task, and never has more than half of the queue.
 * Thread-safe.
 */
#ifndef SH_API_REQUEST_POOL_H
#define SH_API_REQUEST_POOL_H

#include "common/db.h"

struct pool;
struct pool_task;

/* Runs on a pool thread. db: the thread's own connection, BORROWED for the call. It may free the
 * task or submit it again. */
typedef void pool_fn(struct pool_task *t, struct db *db);

enum {                     /* owners that are not tenants */
       POOL_OURS = 0,      /* admins, executors, the process itself */
       POOL_STRANGER = -1, /* no key seen yet */
};

struct pool_task { /* embedded in what it works for */
    pool_fn *run;
    int64_t owner; /* a tenant's id, or one of the above */
    uint64_t turn; /* set by the pool */
    struct pool_task *next;
};

/* KEEPS news (db_share). *out: OWNED, pool_free(). */
int pool_new(const char *name, const char *db_url, struct db_news *news, size_t n_threads,
             size_t max_queued, struct pool **out, struct sh_err *err);
/* Accepts no more tasks, runs the queued ones, then ends the threads. */
void pool_stop(struct pool *p);
void pool_free(struct pool *p); /* stops it first; NULL is allowed */
/* KEEPS t until its run begins. Fails: SH_E_QUEUEFULL. */
int pool_submit(struct pool *p, struct pool_task *t, struct sh_err *err);

#endif

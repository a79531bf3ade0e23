/* pool.h - threads with a database connection each, for work that may block.
 *
 * HTTP threads never block: they hand a task over, suspend the connection and go on. The queue is
 * bounded; a full one is an answer (503), not a wait. Owners take turns: a tenant with a hundred
 * tasks in the queue delays another's by one of its own, and it never has more than half of the
 * queue. Thread-safe.
 */
#ifndef SH_API_REQUEST_POOL_H
#define SH_API_REQUEST_POOL_H

#include "common/db.h"

struct pool;
struct pool_task;

/* Runs on a pool thread. db is the thread's own connection, BORROWED for the call. The task may be
 * freed or submitted again by its own run. */
typedef void pool_fn(struct pool_task *t, struct db *db);

enum {                     /* owners that are no tenant */
       POOL_OURS = 0,      /* admins, executors, the process itself */
       POOL_STRANGER = -1, /* who has not shown a key yet */
};

struct pool_task { /* embedded where it belongs to */
    pool_fn *run;
    int64_t owner; /* a tenant's number, or one of the above */
    uint64_t turn; /* the pool's */
    struct pool_task *next;
};

/* KEEPS news (db_share). *out: OWNED, pool_free(). */
int pool_new(const char *name, const char *db_url, struct db_news *news, size_t n_threads,
             size_t max_queued, struct pool **out, struct sh_err *err);
/* Runs what is queued, then ends the threads; from its call on nothing is taken any more. */
void pool_stop(struct pool *p);
void pool_free(struct pool *p); /* stops too; NULL is allowed */
/* KEEPS t until its run begins. Fails: SH_E_QUEUEFULL. */
int pool_submit(struct pool *p, struct pool_task *t, struct sh_err *err);

#endif

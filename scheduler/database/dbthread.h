/* dbthread.h - the loop never waits for PostgreSQL: operations run on one thread, in order.
 *
 *   loop:   dbthread_submit(op)  ->  [bounded queue]  ->  database thread: op.run()
 *   loop:   op.done()  <-  sh_loop_wake  <-  [results]
 *
 * While the database is not reachable, or refuses for a reason that passes (SH_E_TIMEOUT,
 * SH_E_DISKFULL, SH_E_UNAVAILABLE), an operation stays at the head and is tried again every
 * DBTHREAD_RETRY_MS, so writes keep their order and none is lost; those with DBOP_FAIL_FAST come
 * back with the failure instead. One with DBOP_ANY_ORDER that takes too long (SH_E_TIMEOUT: its row
 * is locked by somebody) lets all others go before it and is tried again DBTHREAD_BEHIND_MS later.
 * DBOP_FRONT goes before all others: a lease must not expire behind a long queue. (dbqueue.h)
 *
 * The thread touches nothing but its connection, the queues and op.arg; op.arg belongs to it from
 * submit until done.
 */
#ifndef SH_SCHEDULER_DATABASE_DBTHREAD_H
#define SH_SCHEDULER_DATABASE_DBTHREAD_H

#include "common/db.h"
#include "common/loop.h"

#include <stdbool.h>
#include <stdint.h>

#define DBTHREAD_RETRY_MS 200
#define DBTHREAD_BEHIND_MS 2000

enum { DBOP_FRONT = 1, DBOP_FAIL_FAST = 2, DBOP_ANY_ORDER = 4 };

typedef int dbop_run_fn(struct db *db, void *arg, struct sh_err *err); /* database thread */
typedef void dbop_done_fn(void *ctx, void *arg, int rc, const struct sh_err *err); /* loop */
typedef void dbop_free_fn(void *arg);

struct dbop {
    const char *name; /* for the log */
    dbop_run_fn *run;
    dbop_done_fn *done; /* may be NULL; not called for an operation of another generation */
    void *ctx;          /* KEEPS, for done */
    void *arg;          /* freed with free_arg after done */
    dbop_free_fn *free_arg;
    unsigned flags;
    uint64_t generation; /* 0: done is always called */
};

struct dbthread;

/* Starts the thread. The loop's wake hook must call dbthread_collect(). */
int dbthread_new(struct sh_loop *l, const char *db_url, const char *app, size_t max_queued,
                 struct dbthread **out, struct sh_err *err);
/* Lets what is queued run for at most wait_ms, ends the thread, frees the rest. NULL is allowed. */
void dbthread_free(struct dbthread *t, int64_t wait_ms);

/* TAKES op->arg. Fails: SH_E_QUEUEFULL, SH_E_NOMEM. */
int dbthread_submit(struct dbthread *t, const struct dbop *op, struct sh_err *err);
/* Loop: calls done for what has finished. Operations of a generation other than 0 and *generation,
 * which done may change, are freed in silence. */
void dbthread_collect(struct dbthread *t, const uint64_t *generation);
/* Drops queued operations of that generation (a lost lease: their fence would refuse them). */
void dbthread_drop(struct dbthread *t, uint64_t generation);
bool dbthread_is_up(struct dbthread *t); /* did the last operation reach the database? */

#endif

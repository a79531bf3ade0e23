/* dbthread.h - runs database operations on one thread, in order, so that the loop never waits for
 * PostgreSQL.
 *
 *   loop:   dbthread_submit(op)  ->  [bounded queue]  ->  database thread: op.run()
 *   loop:   op.done()  <-  sh_loop_wake  <-  [results]
 *
 * If the database is unreachable, or refuses for a reason that passes (SH_E_TIMEOUT, SH_E_DISKFULL,
 * SH_E_UNAVAILABLE), the operation stays at the head and is retried every DBTHREAD_RETRY_MS. So
 * writes keep their order and none is lost. DBOP_FAIL_FAST returns the failure instead. With
 * DBOP_ANY_ORDER, an operation that takes too long (SH_E_TIMEOUT: somebody has locked its row) lets
 * all others go first and is retried DBTHREAD_BEHIND_MS later. DBOP_FRONT goes before all others: a
 * lease must not expire behind a long queue. (dbqueue.h)
 *
 * The thread touches only its connection, the queues and op.arg, which belongs to it from submit
 * until done.
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
    void *ctx;          /* KEEPS; passed to done */
    void *arg;          /* free_arg frees it after done */
    dbop_free_fn *free_arg;
    unsigned flags;
    uint64_t generation; /* 0: done is always called */
};

struct dbthread;

/* Starts the thread. The loop's wake hook must call dbthread_collect(). */
int dbthread_new(struct sh_loop *l, const char *db_url, const char *app, size_t max_queued,
                 struct dbthread **out, struct sh_err *err);
/* Runs what is queued for at most wait_ms, ends the thread, frees the rest. NULL is allowed. */
void dbthread_free(struct dbthread *t, int64_t wait_ms);

/* TAKES op->arg. Fails: SH_E_QUEUEFULL, SH_E_NOMEM. */
int dbthread_submit(struct dbthread *t, const struct dbop *op, struct sh_err *err);
/* On the loop: calls done for finished operations. Those of a generation other than 0 and
 * *generation, which done may change, are freed silently. */
void dbthread_collect(struct dbthread *t, const uint64_t *generation);
/* Drops queued operations of that generation (a lost lease: their fence would refuse them). */
void dbthread_drop(struct dbthread *t, uint64_t generation);
/* Somebody else reaches the database: the next operation does not wait before it tries. */
void dbthread_hear(struct dbthread *t);
bool dbthread_is_up(struct dbthread *t); /* did the last operation reach the database? */

#endif

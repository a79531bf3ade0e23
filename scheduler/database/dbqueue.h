/* dbqueue.h - which database operation is next, and what happens to one that has failed.
 *
 *   submit -> [todo] -> take: it is run -> settle: finished, or in todo again -> pop_finished
 *
 * The rules are in dbthread.h. It has no thread and no clock: the caller runs the operations and
 * locks (dbthread.c: a thread; the simulator: virtual time).
 */
#ifndef SH_SCHEDULER_DATABASE_DBQUEUE_H
#define SH_SCHEDULER_DATABASE_DBQUEUE_H

#include "scheduler/database/dbthread.h"

struct dbitem { /* one operation */
    struct dbop op;
    struct dbitem *next;
    struct sh_err err;
    int rc, soft_tries;
    int64_t after_ns; /* not before this */
};

struct dblist { /* OWNS its items; dblist_init(), dblist_free() */
    struct dbitem *head, **tail;
    size_t n;
};
void dblist_init(struct dblist *l);
struct dbitem *dblist_pop(struct dblist *l); /* OWNED, dbitem_free(); NULL: empty */
void dblist_free(struct dblist *l);          /* frees the items; the list is then empty */
void dbitem_free(struct dbitem *i);          /* NULL is allowed */

struct dbqueue {
    struct dblist todo, finished;
    size_t max_queued;
    bool stop; /* retries nothing */
};
void dbqueue_init(struct dbqueue *q, size_t max_queued);
void dbqueue_fini(struct dbqueue *q);

/* TAKES op->arg. Fails: SH_E_QUEUEFULL, SH_E_NOMEM. */
int dbitem_new(const struct dbop *op, struct dbitem **out, struct sh_err *err);
int dbqueue_submit(struct dbqueue *q, struct dbitem *i, struct sh_err *err);

/* The first operation that is due, OWNED until dbqueue_settle(); NULL: none is due. */
struct dbitem *dbqueue_take(struct dbqueue *q, int64_t now_ns);
/* After DBQUEUE_RETRY, wait DBTHREAD_RETRY_MS or until something is submitted. */
enum dbqueue_next { DBQUEUE_FINISHED, DBQUEUE_BEHIND, DBQUEUE_RETRY };
/* TAKES i, which was run; i->rc and i->err hold its result. */
enum dbqueue_next dbqueue_settle(struct dbqueue *q, struct dbitem *i, int64_t now_ns);
/* Moves that generation's operations that were not taken yet to *dropped. */
void dbqueue_drop(struct dbqueue *q, uint64_t generation, struct dblist *dropped);

/* Runs it. Connects first if the last operation has not reached the database; *is_up: whether this
 * one has. The only call here that blocks. */
void dbitem_run(struct dbitem *i, struct db *db, bool *is_up);
/* True: the database is away or cannot take this now; the same operation can succeed later. */
bool dbitem_failed_for_now(const struct dbitem *i);
/* Calls done if its generation is the current one, or 0. */
void dbitem_tell(struct dbitem *i, const uint64_t *generation);

#endif

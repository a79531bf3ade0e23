/* locking.h - page-locks, unlocks and frees large host memory between runs, piece by piece.
 *
 * While the driver is at it nobody can enqueue a copy or a ticket (runtime/device/lock.h). So it
 * does one piece at a time, and then leaves as much time to runs as that took: they have half of
 * the time, however much is to be locked, and for whom. Those that wait take turns. It does not
 * wait for a moment without runs: a busy executor has none, and a run that comes just after one
 * waits for a piece all the same.
 */
#ifndef SH_EXECUTOR_MEMORY_LOCKING_H
#define SH_EXECUTOR_MEMORY_LOCKING_H

#include "common/loop.h"
#include "common/shm.h"
#include "runtime/device/dev.h"

struct locking;
struct lock_task;
/* In a turn of the loop. why: NULL, or why not all of it could be locked; `locked` stays. */
typedef void lock_done_fn(struct lock_task *t, const struct sh_err *why);

struct lock_task {
    struct lock_task *next; /* written by locking.c, like `locked` */
    void *base;
    size_t bytes;
    size_t locked; /* so many, from base on */
    lock_done_fn *done;
    void *arg;
};

/* *out: OWNED, locking_free(). Keeps loop and mem, BORROWED. */
int locking_new(struct sh_loop *loop, struct dev_mem *mem, struct locking **out,
                struct sh_err *err);
void locking_free(struct locking *k); /* unlocks at once what was let go; no task waits any more */
/* KEEPS t until done() or locking_stop(). Locks nothing in this call. */
void locking_begin(struct locking *k, struct lock_task *t);
/* done() is not called any more. What is locked stays so. Nothing if it does not wait. */
void locking_stop(struct locking *k, struct lock_task *t);
/* TAKES mem (leaves it empty; it may be empty already), of which so many bytes are locked. Nobody
 * may read it any more, also not by another mapping of its file: that is emptied, too, unless mem
 * has no descriptor (sh_shm_forget_file). */
void locking_let_go(struct locking *k, struct sh_shm *mem, size_t locked);

#endif

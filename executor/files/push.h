/* push.h - what a job leaves, from an executor that does not share the API's folder: its files go
 * to the API before anybody is told of them, so whoever goes on with the job finds them there. */
#ifndef SH_EXECUTOR_FILES_PUSH_H
#define SH_EXECUTOR_FILES_PUSH_H

#include "executor/files/files.h"

struct push;
typedef void push_done_fn(void *arg, const struct sh_err *why); /* on the loop; why->rc: SH_OK */

#define PUSH_MAX 4
struct push_conf { /* BORROWED for the call */
    int64_t job;
    uint32_t attempt;
    const char *dir;             /* of the job, here */
    const char *files[PUSH_MAX]; /* names there, in the order in which they go; NULL = none */
    const char *publish;         /* the one that is to become a package too; NULL = none */
};

/* *out: freed when done() was called, or by push_cancel(). */
int push_start(const struct files *f, const struct push_conf *c, push_done_fn *done, void *arg,
               struct push **out, struct sh_err *err);
void push_cancel(struct push *p); /* done() is not called; NULL is allowed */

/* The job has left this executor: what is here of it goes too, on a thread. Does nothing where the
 * folder is shared. */
void push_forget_job(const struct files *f, const char *dir);
/* Of files that outlive their job's folder: a name for a folder (nothing is made), and its end, on
 * a thread; the sweep removes it too. *out: OWNED. */
int push_own_dir(const struct files *f, char **out, struct sh_err *err);
void push_remove_dir(const struct files *f, const char *dir);
/* At the start: folders of jobs that were here before. Parts of batch inference younger than a day
 * stay: the next attempt goes on with them if it comes here. */
void push_sweep_jobs(const struct files *f);

#endif

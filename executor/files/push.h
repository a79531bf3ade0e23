/* push.h - sends a job's files to the API from an executor that does not share the API's folder.
 * They go before anybody is told of them, so whoever continues the job finds them there. Belongs to
 * the loop's thread. */
#ifndef SH_EXECUTOR_FILES_PUSH_H
#define SH_EXECUTOR_FILES_PUSH_H

#include "executor/files/files.h"

struct push;
/* Called on the loop; why->rc: SH_OK or the failure. */
typedef void push_done_fn(void *arg, const struct sh_err *why);

#define PUSH_MAX 4
struct push_conf { /* BORROWED for the call */
    int64_t job;
    uint32_t attempt;
    const char *dir;             /* the job's local folder */
    const char *files[PUSH_MAX]; /* names in dir, in the order of sending; NULL: none */
    const char *publish;         /* the file that also becomes a package; NULL: none */
};

/* *out: freed after done(), or by push_cancel(). */
int push_start(const struct files *f, const struct push_conf *c, push_done_fn *done, void *arg,
               struct push **out, struct sh_err *err);
void push_cancel(struct push *p); /* done() is not called; NULL is allowed */

/* The job has left this executor: removes its local files, on a thread. Does nothing if the folder
 * is shared. */
void push_forget_job(const struct files *f, const char *dir);
/* As above, of a job that has ended for good: the folder that was kept for another start of it, if
 * there is one. */
void push_forget_ended(const struct files *f, int64_t job);
/* For files that outlive their job's folder. Makes a name for a folder, but not the folder. *out:
 * OWNED. push_remove_dir() removes it on a thread; so does the sweep. */
int push_own_dir(const struct files *f, char **out, struct sh_err *err);
void push_remove_dir(const struct files *f, const char *dir);
/* At start: removes the folders of earlier jobs. Results of batch inference younger than a day
 * stay, complete or not: for the next attempt if it comes here. */
void push_sweep_jobs(const struct files *f);
/* Now and then, while no batch inference is here: removes the folders whose results have all become
 * older than that. Their jobs have ended, or gone on, elsewhere. */
void push_sweep_results(const struct files *f);

#endif

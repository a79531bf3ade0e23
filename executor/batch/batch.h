/* batch.h - the batch inference job of this executor, from BATCH_START to its last JOB_STATE: runs
 * a model over a whole dataset and writes the outputs to the job's folder.
 *
 * It yields to requests: it submits one batch at a time as an internal run (switch_submit), which
 * every request overtakes, so a request waits for one batch at most. Two slots of a slab keep the
 * device busy: while one runs, the disk thread writes the outputs of the other and reads its
 * next inputs. No more than two batches are in memory.
 *
 *   slot:  FREE -> BUSY (with the thread) -> FULL -> RUNNING -> RAN -> BUSY -> FULL ...
 *
 * BUSY -> FREE: nothing is left to read, or the disk failed. RUNNING -> FULL: the run failed.
 * RUNNING -> FREE: the run was withdrawn because the job is ending.
 *
 * From time to time the job makes its output durable and reports a checkpoint: the number of
 * samples done and a digest of their outputs (result_file.h). The next attempt continues from there
 * with the same batches, so its file is the same, bit for bit.
 *
 * One job at a time, and none while a job trains: a second start is refused with SH_E_CONFLICT.
 */
#ifndef SH_EXECUTOR_BATCH_BATCH_H
#define SH_EXECUTOR_BATCH_BATCH_H

#include "common/loop.h"
#include "common/msg.h"
#include "executor/files/files.h"
#include "executor/report/report.h"

struct batch;
struct slabs;
struct store;
struct switcher;

struct batch_env {
    int64_t checkpoint_interval_ms; /* for jobs that name none; 0: 10,000 */
    /* BORROWED for good */
    struct sh_loop *loop;
    const struct files *files;
    struct report *report;
    struct slabs *slabs;
    struct store *store;
    struct switcher *sw;
};

/* *out: OWNED, batch_free(). */
int batch_new(const struct batch_env *env, struct batch **out, struct sh_err *err);
void batch_free(struct batch *b); /* after disk_free(), so that no task is under way */
bool batch_turn(struct batch *b); /* true: it took a step */

/* why_not: NULL, or why no job may start now. Answers with JOB_STATE. */
void batch_on_start(struct batch *b, const struct msg_batch_start *m, const struct sh_err *why_not);
bool batch_has(const struct batch *b, int64_t job);                /* it has the job, not ended */
void batch_on_stop(struct batch *b, const struct msg_job_stop *m); /* only if batch_has() */
void batch_on_save(struct batch *b, const struct msg_job_save *m); /* only if batch_has() */
void batch_suspend(struct batch *b);        /* before the process ends; wait for batch_is_quiet() */
bool batch_is_quiet(const struct batch *b); /* no job */
void batch_report_all(struct batch *b);     /* to a scheduler that has just connected */

#endif

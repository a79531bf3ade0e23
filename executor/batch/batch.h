/* batch.h - the job of batch inference of this executor, from BATCH_START to its last JOB_STATE: a
 * model over a whole dataset, its outputs into the job's folder.
 *
 * It is a guest between requests: one batch at a time is a run of our own (switch_submit), which
 * every request passes; so a request waits for one batch at most. Two slots of a slab keep the
 * device busy: while one runs, the checkpoint thread writes the outputs of the other and reads its
 * next inputs. So two batches are all that lies in memory.
 *
 *   slot:  FREE -> BUSY (with the thread) -> FULL -> RUNNING -> RAN -> BUSY -> FULL ...
 *
 * BUSY -> FREE: nothing is left to read, or the disk failed. RUNNING -> FULL: the run failed.
 * RUNNING -> FREE: it was withdrawn, for the job is to end.
 *
 * Now and then what was written is made durable and told as a checkpoint: samples that are done and
 * a digest of them (result_file.h). Another attempt goes on there, in the same batches, so its file
 * is the same to the bit.
 *
 * One job at a time, and none beside one that trains: a second start is refused with SH_E_CONFLICT.
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
    int64_t checkpoint_interval_ms; /* of a job that names none */
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
void batch_free(struct batch *b); /* behind disk_free(): no task is under way any more */
bool batch_turn(struct batch *b); /* true: it did something */

/* why_not: NULL, or why no job may start now. */
void batch_on_start(struct batch *b, const struct msg_batch_start *m, const struct sh_err *why_not);
bool batch_has(const struct batch *b, int64_t job);                /* and it has not ended */
void batch_on_stop(struct batch *b, const struct msg_job_stop *m); /* of a job that it has */
void batch_on_save(struct batch *b, const struct msg_job_save *m); /* likewise */
void batch_suspend(struct batch *b);        /* for the end of this process; batch_is_quiet() then */
bool batch_is_quiet(const struct batch *b); /* no job */
void batch_report_all(struct batch *b);     /* to a scheduler that has just connected */

#endif

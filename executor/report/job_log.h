/* job_log.h - what people read of a job: lines in jobs/<id>/log.txt, over all its attempts.
 *
 * A line waits in memory and goes to the file on the checkpoint thread, at most once a second: who
 * says something never waits for a disk, and never fails. Preemptions are counted and told with the
 * line of progress, so a switch writes nothing. What cannot be written is lost, and the log says so
 * when it can again.
 *
 * An executor that does not share the API's folder begins with the log as the API has it, and sends
 * it back now and then and at the end; the API takes it as long as no other executor has the job.
 * The file lies in a folder of its own there, which outlives the job's.
 */
#ifndef SH_EXECUTOR_REPORT_JOB_LOG_H
#define SH_EXECUTOR_REPORT_JOB_LOG_H

#include "executor/files/files.h"

#define JOB_LOG_NAME "log.txt"
/* A file that would grow beyond MAX keeps its beginning (at most HEAD) and its newest part. */
#define JOB_LOG_MAX ((size_t)1 << 20)
#define JOB_LOG_HEAD ((size_t)256 << 10)
#define JOB_LOG_TAIL ((size_t)512 << 10)
#define JOB_LOG_LEFT_OUT "... left out here, bytes: "

struct job_log;
struct msg_job_state;

struct job_logs { /* of one executor */
    const struct files *files;
    const char *device; /* its kind */
    uint32_t n;         /* logs that have lines to write; of ended jobs too */
};

struct job_log_conf { /* BORROWED for the call */
    int64_t job;
    uint32_t attempt;
    const char *dir;             /* of the job */
    const char *about;           /* what it works with, in words */
    const char *unit;            /* static: what is counted, "step" or "sample" */
    int64_t redone, preemptions; /* of the job before this start */
};

/* Says that the job has started. KEEPS all. NULL (no memory): every call below then does
 * nothing. */
struct job_log *job_log_open(struct job_logs *all, const struct job_log_conf *c);
void job_log_attempt(struct job_log *l, uint32_t attempt); /* of the lines from now on */
void job_log_say(struct job_log *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Of the first step, then of what was done every few seconds, and of the last one. done: steps in
 * this attempt; batch: samples in a step, 0: samples are counted. */
void job_log_progress(struct job_log *l, const struct msg_job_state *now, int64_t done,
                      uint32_t batch, bool is_last);
void job_log_end(struct job_log *l, const struct msg_job_state *said); /* how it ended */
void job_log_tick(struct job_log *l);                                  /* on a timer: to the file */
/* No further lines. It goes when all is written. */
void job_log_close(struct job_log *l);

/* job_log_file.c. Blocking. Whole lines to the end of the file. Fails: SH_E_IO, SH_E_DISKFULL; then
 * the file is as before. */
int job_log_append(const char *path, const char *text, size_t n, struct sh_err *err);

#endif

/* job_log.h - a job's log for people: lines in jobs/<id>/log.txt, over all its attempts.
 *
 * A line waits in memory; the disk thread writes it to the file, at most once a second. So
 * logging never waits for a disk and never fails. Preemptions are counted and reported with the
 * next progress line, so a switch writes nothing. Lines that cannot be written are lost, and the
 * log says so once it can.
 *
 * An executor that does not share the API's folder starts with the API's copy of the log, and sends
 * it back every few seconds and at the end. The API accepts it until another executor has the job.
 * The local file has its own folder, which outlives the job's.
 */
#ifndef SH_EXECUTOR_REPORT_JOB_LOG_H
#define SH_EXECUTOR_REPORT_JOB_LOG_H

#include "executor/files/files.h"

#define JOB_LOG_NAME "log.txt"
/* Bytes. A file about to exceed MAX keeps its beginning (at most HEAD) and its newest part
 * (TAIL). */
#define JOB_LOG_MAX ((size_t)1 << 20)
#define JOB_LOG_HEAD ((size_t)256 << 10)
#define JOB_LOG_TAIL ((size_t)512 << 10)
#define JOB_LOG_LEFT_OUT "... left out here, bytes: "

struct job_log;
struct msg_job_state;

struct job_logs { /* of one executor */
    const struct files *files;
    const char *device; /* its kind */
    uint32_t n;         /* open logs, and closed ones with lines to write */
};

struct job_log_conf { /* BORROWED for the call */
    int64_t job;
    uint32_t attempt;
    const char *dir;             /* the job's folder */
    const char *about;           /* what the job works on, in words */
    const char *unit;            /* static: the unit of progress, "step" or "sample" */
    int64_t redone, preemptions; /* of the job, before this start */
};

/* Logs that the job has started. KEEPS all. NULL (no memory): the calls below then do nothing. */
struct job_log *job_log_open(struct job_logs *all, const struct job_log_conf *c);
void job_log_attempt(struct job_log *l, uint32_t attempt); /* for the lines from now on */
void job_log_say(struct job_log *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Logs progress: the first step, then every few seconds, and the last step. done: steps in this
 * attempt. batch: samples in a step; 0: samples are counted. */
void job_log_progress(struct job_log *l, const struct msg_job_state *now, int64_t done,
                      uint32_t batch, bool is_last);
void job_log_end(struct job_log *l, const struct msg_job_state *said); /* how it ended */
/* On a timer: writes to the file. */
void job_log_tick(struct job_log *l);
/* Ends the log; it is freed when all its lines are written. */
void job_log_close(struct job_log *l);

/* job_log_file.c. Blocks. Appends whole lines to the file. Fails: SH_E_IO, SH_E_DISKFULL; the file
 * is then unchanged. */
int job_log_append(const char *path, const char *text, size_t n, struct sh_err *err);

#endif

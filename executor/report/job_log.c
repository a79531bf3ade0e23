/* job_log.c - see job_log.h: the lines, and when they are written and sent. */
#include "executor/report/job_log.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/msg.h"
#include "common/units.h"
#include "executor/files/disk.h"
#include "executor/files/push.h"
#include "executor/files/transfer.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define LINE_MAX_BYTES 1024
#define WAITING_MAX ((size_t)64 << 10) /* more than that while the disk is slow is lost */
#define WRITE_NS SH_S(1)
#define SEND_NS SH_S(5)
/* Between two lines of progress; a job that runs for longer has longer pauses. */
#define PROGRESS_NS SH_S(5)
#define PROGRESS_LATER_NS SH_S(30)
#define LATER_NS SH_S(600)

struct fetch {                 /* of what the API has */
    struct transfer_task task; /* first member */
    struct job_log *log;
    char url[80];
};

struct writing {           /* to the file */
    struct disk_task task; /* first member */
    struct job_log *log;
};

struct pace { /* of the lines of progress: where the last one was */
    int64_t ns, done, busy_ns, preemptions;
    bool has_begun, is_over;
};

struct job_log {
    struct job_logs *all;
    int64_t job, opened_ns;
    uint32_t attempt;
    const char *unit;
    char *path;                  /* OWNED */
    struct sh_buf waiting, text; /* text: the thread's while is_writing */
    size_t n_lost, n_told;       /* lines; told: of them, in text */
    struct writing writing;
    int64_t written_ns;
    bool is_writing, is_closed;
    struct pace pace;
    int64_t redone, preemptions; /* before */
    /* an executor of another host */
    char *dir; /* OWNED; NULL: the folder is the API's */
    struct fetch fetch;
    bool is_fetching;
    bool is_unsent; /* what the API has was not to be had: it is not replaced by less */
    struct push *push;
    bool is_fresh; /* there is something to send */
    int64_t sent_ns;
};

static void go_on_with_log(struct job_log *l);

static size_t count_lines(const struct sh_buf *b)
{
    size_t n = 0;

    for (size_t i = 0; i < b->len; i++)
        n += b->data[i] == '\n';
    return n;
}

/* ------------------------------------------------------------------ lines */

static int put_log_line(const struct job_log *l, struct sh_buf *b, const char *text)
{
    char at[25];

    sh_clock_format(sh_clock_wall_ms(), at);
    return sh_buf_printf(b, NULL, "%s attempt %" PRIu32 ": %s\n", at, l->attempt, text);
}

void job_log_say(struct job_log *l, const char *fmt, ...)
{
    char text[LINE_MAX_BYTES];
    va_list ap;

    if (!l || l->is_closed)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    for (char *p = text; *p; p++) /* what tenants name stays in its line */
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = ' ';
    if (put_log_line(l, &l->waiting, text))
        l->n_lost++;
}

void job_log_attempt(struct job_log *l, uint32_t attempt)
{
    if (l)
        l->attempt = attempt;
}

/* ------------------------------------------------------------------ to the file */

static int work_write(struct disk_task *t, struct sh_err *err)
{
    const struct job_log *l = ((struct writing *)t)->log;

    return job_log_append(l->path, l->text.data, l->text.len, err);
}

static void settle_write(struct job_log *l, const struct sh_err *why)
{
    l->is_writing = false;
    l->written_ns = sh_clock_ns();
    if (why->rc == SH_OK) {
        l->n_lost -= l->n_told;
        l->is_fresh = true;
        return;
    }
    l->n_lost += count_lines(&l->text) - (l->n_told > 0);
    SH_WARN("job.log", "job=%" PRId64 " lost=%zu code=%s msg=\"%s\"", l->job, l->n_lost,
            sh_rc_name(why->rc), why->msg);
}

static void on_written(struct disk_task *t)
{
    struct job_log *l = ((struct writing *)t)->log;
    struct sh_err err = t->err;

    if (err.rc == SH_E_CANCELLED) { /* this process ends, and has time for it */
        err = (struct sh_err){0};
        job_log_append(l->path, l->text.data, l->text.len, &err);
    }
    settle_write(l, &err);
    go_on_with_log(l);
}

/* What waits goes out, behind what was lost before. */
static void write_log_out(struct job_log *l)
{
    struct sh_err err = {0};
    char text[80];

    sh_buf_reset(&l->text);
    l->n_told = l->n_lost;
    snprintf(text, sizeof(text), "lines of this log that could not be kept: %zu", l->n_lost);
    if ((l->n_lost && put_log_line(l, &l->text, text)) ||
        sh_buf_append(&l->text, l->waiting.data, l->waiting.len, &err)) {
        l->n_told = 0;
        return; /* no memory: later */
    }
    l->writing = (struct writing){{.work = work_write, .done = on_written}, l};
    if (!l->all->files->disk)
        job_log_append(l->path, l->text.data, l->text.len, &err);
    else if (disk_submit(l->all->files->disk, &l->writing.task, NULL))
        return; /* it has too much to do: later */
    sh_buf_reset(&l->waiting);
    l->is_writing = l->all->files->disk != NULL;
    if (!l->is_writing)
        settle_write(l, &err);
}

/* ------------------------------------------------------------------ from and to the API */

static int work_fetch_log(struct transfer_task *t, struct transfer_line *line, struct sh_err *err)
{
    const struct fetch *f = (const struct fetch *)t;
    char *part = NULL;
    int rc = sh_asprintf(err, &part, "%s.part", f->log->path);

    if (!rc && mkdir(f->log->dir, 0750) && errno != EEXIST)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make a folder for the log of a job");
    if (!rc)
        rc = transfer_get(line, f->url, NULL, part, f->log->path, err);
    free(part);
    return rc;
}

static void on_fetched(struct transfer_task *t)
{
    struct job_log *l = ((struct fetch *)t)->log;

    l->is_fetching = false;
    l->is_unsent = t->err.rc != SH_OK && t->err.rc != SH_E_NOTFOUND;
    go_on_with_log(l);
}

static int begin_far(struct job_log *l)
{
    if (push_own_dir(l->all->files, &l->dir, NULL) ||
        sh_asprintf(NULL, &l->path, "%s/%s", l->dir, JOB_LOG_NAME))
        return SH_E_NOMEM;
    l->fetch.log = l;
    l->fetch.task.work = work_fetch_log;
    l->fetch.task.done = on_fetched;
    snprintf(l->fetch.url, sizeof(l->fetch.url), "/api/v1/jobs/%" PRId64 "/files/" JOB_LOG_NAME,
             l->job);
    l->is_fetching = true;
    transfer_submit(l->all->files->transfers, TRANSFER_IN, &l->fetch.task);
    return SH_OK;
}

static void on_sent(void *arg, const struct sh_err *why)
{
    struct job_log *l = arg;

    l->push = NULL;
    if (why->rc)
        SH_DEBUG("job.log.send", "job=%" PRId64 " code=%s msg=\"%s\"", l->job, sh_rc_name(why->rc),
                 why->msg);
    go_on_with_log(l);
}

static void send_log_file(struct job_log *l)
{
    const struct push_conf c = {
        .job = l->job, .attempt = l->attempt, .dir = l->dir, .files = {JOB_LOG_NAME}};

    l->is_fresh = false;
    l->sent_ns = sh_clock_ns();
    push_start(l->all->files, &c, on_sent, l, &l->push, NULL);
}

/* ------------------------------------------------------------------ life */

static void log_free(struct job_log *l)
{
    if (l->dir)
        push_remove_dir(l->all->files, l->dir);
    l->all->n--;
    sh_buf_fini(&l->waiting);
    sh_buf_fini(&l->text);
    free(l->path);
    free(l->dir);
    free(l);
}

/* The next step, if one is due; called again when it is done. Frees a log that is closed. */
static void go_on_with_log(struct job_log *l)
{
    int64_t now = sh_clock_ns();

    if (l->is_fetching || l->is_writing || l->push)
        return;
    if (l->waiting.len > 0 && (l->is_closed || now - l->written_ns >= WRITE_NS))
        write_log_out(l);
    if (l->is_writing)
        return;
    if (l->dir && l->all->files->transfers && l->is_fresh && !l->is_unsent &&
        (l->is_closed || now - l->sent_ns >= SEND_NS))
        send_log_file(l);
    if (l->is_closed && !l->push)
        log_free(l);
}

struct job_log *job_log_open(struct job_logs *all, const struct job_log_conf *c)
{
    struct job_log *l = calloc(1, sizeof(*l));
    int rc = l ? SH_OK : SH_E_NOMEM;

    if (rc)
        return NULL;
    *l = (struct job_log){.all = all,
                          .job = c->job,
                          .attempt = c->attempt,
                          .unit = c->unit,
                          .redone = c->redone,
                          .preemptions = c->preemptions};
    l->opened_ns = sh_clock_ns();
    sh_buf_init(&l->waiting, WAITING_MAX);
    sh_buf_init(&l->text, WAITING_MAX + LINE_MAX_BYTES);
    all->n++;
    rc = all->files->transfers ? begin_far(l)
                               : sh_asprintf(NULL, &l->path, "%s/%s", c->dir, JOB_LOG_NAME);
    if (rc) {
        log_free(l);
        return NULL;
    }
    job_log_say(l, "started on executor %s (%s): %s", all->files->executor, all->device, c->about);
    return l;
}

void job_log_tick(struct job_log *l)
{
    if (l)
        go_on_with_log(l);
}

void job_log_close(struct job_log *l)
{
    if (!l)
        return;
    l->is_closed = true;
    go_on_with_log(l);
}

/* ------------------------------------------------------------------ progress */

/* "; preempted 312 times, 1.4 s in all" since the line before. */
static void fold_preemptions(const struct job_log *l, const struct msg_job_state *now, int64_t ns,
                             char out[80])
{
    int64_t n = now->preemptions - l->pace.preemptions;
    int64_t away_ns = SH_MAX(ns - (now->busy_ns - l->pace.busy_ns), (int64_t)0);

    out[0] = '\0';
    if (n > 0)
        snprintf(out, 80, "; preempted %" PRId64 " time%s, %.3g s in all", n, n == 1 ? "" : "s",
                 (double)away_ns / 1e9);
}

void job_log_progress(struct job_log *l, const struct msg_job_state *now, int64_t done,
                      uint32_t batch, bool is_last)
{
    int64_t at = sh_clock_ns(), ns, most_ns;
    char loss[40] = "", rate[80], away[80];
    double per_s;

    if (!l || l->pace.is_over || done <= l->pace.done)
        return;
    most_ns = at - l->opened_ns < LATER_NS ? PROGRESS_NS : PROGRESS_LATER_NS;
    ns = l->pace.has_begun ? at - l->pace.ns : SH_MAX(now->busy_ns, (int64_t)1);
    if (l->pace.has_begun && !is_last && ns < most_ns)
        return;
    per_s = (double)(done - l->pace.done) / ((double)SH_MAX(ns, (int64_t)1) / 1e9);
    if (isfinite(now->loss))
        snprintf(loss, sizeof(loss), ", loss %.6g", now->loss);
    if (batch)
        snprintf(rate, sizeof(rate), "%.3g steps/s, %.4g samples/s", per_s, per_s * batch);
    else
        snprintf(rate, sizeof(rate), "%.4g samples/s", per_s);
    fold_preemptions(l, now, ns, away);
    job_log_say(l, "%s %" PRId64 " of %" PRId64 "%s, %s%s", l->unit, now->step, now->steps, loss,
                rate, away);
    l->pace = (struct pace){at, done, now->busy_ns, now->preemptions, true, is_last};
}

void job_log_end(struct job_log *l, const struct msg_job_state *said)
{
    const char *unit = l ? l->unit : "";

    switch (said->state) {
    case MSG_JOB_DONE:
        job_log_say(l, "ended: it has succeeded (redone %ss %" PRId64 ", preemptions %" PRId64 ")",
                    unit, said->redone + (l ? l->redone : 0),
                    said->preemptions + (l ? l->preemptions : 0));
        break;
    case MSG_JOB_SUSPENDED:
        job_log_say(l,
                    "leaves this executor at %s %" PRId64 " of %" PRId64
                    "; what is done is kept, and it can go on from there",
                    unit, said->step, said->steps);
        break;
    case MSG_JOB_CANCELLED:
        job_log_say(l, "ended: cancelled at %s %" PRId64, unit, said->step);
        break;
    default:
        job_log_say(l, "ended: failed at %s %" PRId64 ", %s: %s", unit, said->step,
                    sh_rc_name((int)said->rc), said->msg);
    }
}

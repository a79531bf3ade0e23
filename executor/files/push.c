/* push.c - see push.h. */
#include "executor/files/push.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "executor/files/folder.h"
#include "executor/files/result_file.h"
#include "executor/files/transfer.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define URL_MAX 4096
#define KEEP_RESULTS_S (24 * 3600)
#define GONE ".gone-"

struct push {
    struct transfer_task task; /* first member */
    push_done_fn *done;        /* NULL: nobody waits any more */
    void *arg;
    char *url[PUSH_MAX], *file[PUSH_MAX]; /* OWNED */
};

static void free_push(struct push *p)
{
    for (size_t i = 0; i < PUSH_MAX; i++) {
        free(p->url[i]);
        free(p->file[i]);
    }
    free(p);
}

static int work(struct transfer_task *t, struct transfer_line *l, struct sh_err *err)
{
    struct push *p = (struct push *)t;
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < PUSH_MAX && p->url[i]; i++)
        rc = transfer_put(l, p->url[i], p->file[i], err);
    return rc;
}

static void on_done(struct transfer_task *t)
{
    struct push *p = (struct push *)t;

    if (p->done)
        p->done(p->arg, &t->err);
    free_push(p);
}

static int make_push_url(const struct files *f, const struct push_conf *c, const char *file,
                         char **out, struct sh_err *err)
{
    bool is_published = c->publish && strcmp(c->publish, file) == 0;
    struct sh_buf b;
    int rc;

    sh_buf_init(&b, URL_MAX);
    rc = sh_buf_printf(&b, err,
                       "/api/v1/jobs/%" PRId64 "/files/%s?attempt=%" PRIu32 "%s&executor=", c->job,
                       file, c->attempt, is_published ? "&publish=true" : "");
    if (!rc)
        rc = sh_buf_escape(&b, f->executor, "-._~", err);
    if (!rc)
        *out = sh_buf_take(&b);
    sh_buf_fini(&b);
    return rc;
}

int push_start(const struct files *f, const struct push_conf *c, push_done_fn *done, void *arg,
               struct push **out, struct sh_err *err)
{
    struct push *p = calloc(1, sizeof(*p));
    int rc = p ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate the sending of files");

    *out = NULL;
    for (size_t i = 0; !rc && i < PUSH_MAX && c->files[i]; i++) {
        rc = make_push_url(f, c, c->files[i], &p->url[i], err);
        if (!rc)
            rc = sh_asprintf(err, &p->file[i], "%s/%s", c->dir, c->files[i]);
    }
    if (rc) {
        if (p)
            free_push(p);
        return rc;
    }
    p->done = done;
    p->arg = arg;
    p->task.work = work;
    p->task.done = on_done;
    transfer_submit(f->transfers, TRANSFER_OUT, &p->task);
    *out = p;
    return SH_OK;
}

void push_cancel(struct push *p)
{
    if (!p)
        return;
    p->done = NULL;
    atomic_store(&p->task.stop, true);
}

/* ------------------------------------------------------------------ folders */

static int work_forget(struct transfer_task *t, struct transfer_line *l, struct sh_err *err)
{
    (void)l, (void)err;
    folder_remove(((struct push *)t)->file[0]);
    return SH_OK;
}

int push_own_dir(const struct files *f, char **out, struct sh_err *err)
{
    static uint64_t n;

    return sh_asprintf(err, out, "%s/jobs/" GONE "%" PRIu64, f->state_dir, n++);
}

/* TAKES dir; NULL is allowed. */
static void forget_result(const struct files *f, char *dir)
{
    struct push *p = dir ? calloc(1, sizeof(*p)) : NULL;

    if (!p) {
        free(dir);
        return;
    }
    p->file[0] = dir;
    p->task.work = work_forget;
    p->task.done = on_done;
    transfer_submit(f->transfers, TRANSFER_OUT, &p->task);
}

/* Renamed at once: the job may come back before the thread has removed it. */
void push_forget_job(const struct files *f, const char *dir)
{
    char *to = NULL;

    if (!f->transfers || push_own_dir(f, &to, NULL))
        return;
    if (rename(dir, to))
        free(to);
    else
        forget_result(f, to);
}

void push_forget_ended(const struct files *f, int64_t job)
{
    char *dir = NULL;

    if (job > 0 && sh_asprintf(NULL, &dir, "%s/jobs/%" PRId64, f->state_dir, job) == SH_OK)
        push_forget_job(f, dir);
    free(dir);
}

void push_remove_dir(const struct files *f, const char *dir)
{
    char *copy = NULL;

    if (f->transfers && sh_strdup(dir, &copy, NULL) == SH_OK)
        forget_result(f, copy);
}

static bool is_old_result(DIR *d, const char *name)
{
    struct stat st;

    return fstatat(dirfd(d), name, &st, 0) == 0 &&
           sh_clock_wall_ms() / 1000 - st.st_mtime >= KEEP_RESULTS_S;
}

struct results { /* of batch inference, in a folder */
    bool any, young;
};

/* As far as can be seen: a folder that cannot be looked into for now may have a young one. */
static struct results find_results(const char *dir)
{
    DIR *d = opendir(dir);
    struct results r = {.young = !d};
    struct dirent *e;

    while (d && (e = readdir(d)))
        if (result_file_is(e->d_name)) {
            r.any = true;
            r.young |= !is_old_result(d, e->d_name);
        }
    if (d)
        closedir(d);
    return r;
}

/* dir: of a job, or (is_gone) one that was to be removed. */
typedef void sweep_fn(const struct files *f, const char *dir, bool is_gone);

static void sweep_dirs(const struct files *f, sweep_fn *fn)
{
    char *root = NULL, *dir = NULL;
    int64_t id;
    struct dirent *e;
    DIR *d = sh_asprintf(NULL, &root, "%s/jobs", f->state_dir) ? NULL : opendir(root);

    while (d && (e = readdir(d))) {
        bool is_gone = strncmp(e->d_name, GONE, strlen(GONE)) == 0;

        if ((!is_gone && sh_parse_i64(e->d_name, 1, INT64_MAX, "job", &id, NULL)) ||
            sh_asprintf(NULL, &dir, "%s/%s", root, e->d_name))
            continue;
        fn(f, dir, is_gone);
        free(dir);
    }
    if (d)
        closedir(d);
    free(root);
}

static void sweep_earlier(const struct files *f, const char *dir, bool is_gone)
{
    (void)f;
    if (is_gone || !find_results(dir).young)
        folder_remove(dir);
}

void push_sweep_jobs(const struct files *f)
{
    sweep_dirs(f, sweep_earlier);
}

static void sweep_old(const struct files *f, const char *dir, bool is_gone)
{
    const struct results r = is_gone ? (struct results){.any = false} : find_results(dir);

    if (r.any && !r.young)
        push_forget_job(f, dir);
}

void push_sweep_results(const struct files *f)
{
    if (f->transfers)
        sweep_dirs(f, sweep_old);
}

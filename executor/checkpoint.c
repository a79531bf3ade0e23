/* checkpoint.c - see checkpoint.h. */
#include "executor/checkpoint.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/mem.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LOSSES_MAX_BYTES ((size_t)64 << 20)

struct ckpt {
    struct sh_loop *loop;
    pthread_t thread;
    bool is_started;
    /* Protects the two lists, the count and `stop`; nothing is called while it is held. */
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    struct ckpt_task *todo, **todo_tail, *done, **done_tail;
    size_t n_todo;
    bool stop;
};

/* ------------------------------------------------------------------ the thread's work */

static int hash_file(const char *path, struct ckpt_task *t, struct sh_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc;

    if (fd < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not read a file that was just written");
    rc = sh_sha256_fd(fd, t->digest, &t->bytes, err);
    close(fd);
    return rc;
}

int ckpt_replace_file(const char *path, const struct sh_buf *b, const char *what,
                      struct sh_err *err)
{
    char *tmp = NULL;
    int fd = -1, rc = sh_asprintf(err, &tmp, "%s.tmp", path);

    if (rc)
        return rc;
    fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (fd < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write %s", what);
    if (!rc && (!sh_write_all(fd, b->data, b->len) || fsync(fd) < 0))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write %s", what);
    if (fd >= 0 && close(fd) < 0 && !rc)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write %s", what);
    if (!rc && rename(tmp, path) < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write %s", what);
    if (rc)
        unlink(tmp);
    free(tmp);
    return rc;
}

static int write_losses(const struct ckpt_task *t, struct sh_err *err)
{
    size_t n = t->n_losses;
    struct sh_buf b;
    int rc;

    while (n > 0 && !isfinite(t->losses[n - 1]))
        n--; /* steps to come */
    sh_buf_init(&b, LOSSES_MAX_BYTES);
    rc = sh_buf_puts(&b, "[", err);
    for (size_t i = 0; !rc && i < n; i++)
        rc = isfinite(t->losses[i]) ? sh_buf_printf(&b, err, "%s%.9g", i ? "," : "", t->losses[i])
                                    : sh_buf_printf(&b, err, "%snull", i ? "," : "");
    if (!rc)
        rc = sh_buf_puts(&b, "]\n", err);
    if (!rc)
        rc = ckpt_replace_file(t->losses_path, &b, "the losses", err);
    sh_buf_fini(&b);
    return rc;
}

static void sweep(const struct ckpt_task *t)
{
    DIR *d = opendir(t->sweep_dir);
    struct dirent *e;

    if (!d)
        return;
    while ((e = readdir(d)))
        if (strncmp(e->d_name, "ckpt-", 5) == 0 && strstr(e->d_name, ".safetensors") &&
            (!t->sweep_keep || strcmp(e->d_name, t->sweep_keep) != 0))
            unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
}

static void do_task(struct ckpt_task *t)
{
    int64_t start = sh_clock_ns();
    bool wrote = false;
    int rc = t->work ? t->work(t, &t->err) : SH_OK;

    if (!rc && t->sweep_dir)
        sweep(t);
    if (!rc && t->write_path) {
        rc = sh_st_write(t->write_path, t->tensors, t->n_tensors, t->meta, &t->err);
        wrote = rc == SH_OK;
    }
    if (!rc && t->losses_path)
        rc = write_losses(t, &t->err);
    if (!rc && t->digest_path)
        rc = hash_file(t->digest_path, t, &t->err);
    if (!rc && t->remove_path)
        unlink(t->remove_path);
    if (rc && wrote && t->discard_on_failure)
        unlink(t->write_path);
    t->took_ns = sh_clock_ns() - start;
}

static void *thread_main(void *arg)
{
    struct ckpt *c = arg;

    pthread_mutex_lock(&c->mutex);
    while (!c->stop) {
        struct ckpt_task *t = c->todo;

        if (!t) {
            pthread_cond_wait(&c->cond, &c->mutex);
            continue;
        }
        c->todo = t->next;
        if (!c->todo)
            c->todo_tail = &c->todo;
        pthread_mutex_unlock(&c->mutex);
        do_task(t);
        pthread_mutex_lock(&c->mutex);
        t->next = NULL;
        *c->done_tail = t;
        c->done_tail = &t->next;
        sh_loop_wake(c->loop);
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

/* ------------------------------------------------------------------ the loop's side */

static void on_wake(struct sh_loop *l, void *arg)
{
    struct ckpt *c = arg;

    (void)l;
    for (;;) {
        struct ckpt_task *t;

        pthread_mutex_lock(&c->mutex);
        t = c->done;
        if (t) {
            c->done = t->next;
            if (!c->done)
                c->done_tail = &c->done;
            c->n_todo--;
        }
        pthread_mutex_unlock(&c->mutex);
        if (!t)
            return;
        t->done(t);
    }
}

int ckpt_new(struct sh_loop *l, struct ckpt **out, struct sh_err *err)
{
    struct ckpt *c = calloc(1, sizeof(*c));
    int native;

    *out = NULL;
    if (!c)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the checkpoint thread");
    c->loop = l;
    c->todo_tail = &c->todo;
    c->done_tail = &c->done;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->cond, NULL);
    sh_loop_on_wake(l, on_wake, c);
    native = pthread_create(&c->thread, NULL, thread_main, c);
    if (native) {
        ckpt_free(c);
        return SH_FAIL(err, SH_E_NOMEM, "could not start the checkpoint thread (error %d)", native);
    }
    c->is_started = true;
    *out = c;
    return SH_OK;
}

void ckpt_free(struct ckpt *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->mutex);
    c->stop = true;
    pthread_cond_signal(&c->cond);
    pthread_mutex_unlock(&c->mutex);
    if (c->is_started)
        pthread_join(c->thread, NULL);
    on_wake(c->loop, c);
    while (c->todo) {
        struct ckpt_task *t = c->todo;

        c->todo = t->next;
        SH_FAIL(&t->err, SH_E_CANCELLED, "the executor stopped before it was written");
        t->done(t);
    }
    pthread_cond_destroy(&c->cond);
    pthread_mutex_destroy(&c->mutex);
    free(c);
}

int ckpt_submit(struct ckpt *c, struct ckpt_task *t, struct sh_err *err)
{
    int rc = SH_OK;

    t->next = NULL;
    pthread_mutex_lock(&c->mutex);
    if (c->n_todo >= CKPT_MAX_TASKS) {
        rc = SH_FAIL(err, SH_E_QUEUEFULL, "%u files wait to be written", CKPT_MAX_TASKS);
    } else {
        *c->todo_tail = t;
        c->todo_tail = &t->next;
        c->n_todo++;
        pthread_cond_signal(&c->cond);
    }
    pthread_mutex_unlock(&c->mutex);
    return rc;
}

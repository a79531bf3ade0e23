/* disk.c - see disk.h: the threads. disk_work.c does their work. */
#include "executor/files/disk.h"

#include <pthread.h>
#include <stdlib.h>

enum { WRITES, READS, N_LINES };

struct line { /* a thread, and what waits for it */
    struct disk *disk;
    pthread_t thread;
    pthread_cond_t cond;
    bool is_started;
    struct disk_task *todo, **tail;
    size_t n; /* with those that are done and not taken */
};

struct disk {
    struct sh_loop *loop;
    /* Protects the lists, the counts and `stop`; nothing is called while it is held. */
    pthread_mutex_t mutex;
    struct line lines[N_LINES];
    struct disk_task *done, **done_tail;
    bool stop;
};

static struct line *line_of_task(struct disk *c, const struct disk_task *t)
{
    return &c->lines[t->reads ? READS : WRITES];
}

static struct disk_task *take_first_task(struct line *l)
{
    struct disk_task *t = l->todo;

    if (t)
        l->todo = t->next;
    if (!l->todo)
        l->tail = &l->todo;
    return t;
}

/* ------------------------------------------------------------------ the thread */

static void *disk_main(void *arg)
{
    struct line *l = arg;
    struct disk *c = l->disk;

    pthread_mutex_lock(&c->mutex);
    while (!c->stop) {
        struct disk_task *t = take_first_task(l);

        if (!t) {
            pthread_cond_wait(&l->cond, &c->mutex);
            continue;
        }
        pthread_mutex_unlock(&c->mutex);
        disk_work(t);
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
    struct disk *c = arg;

    (void)l;
    for (;;) {
        struct disk_task *t;

        pthread_mutex_lock(&c->mutex);
        t = c->done;
        if (t) {
            c->done = t->next;
            if (!c->done)
                c->done_tail = &c->done;
            line_of_task(c, t)->n--;
        }
        pthread_mutex_unlock(&c->mutex);
        if (!t)
            return;
        t->done(t);
    }
}

static int start_line(struct line *l, struct sh_err *err)
{
    int native = pthread_create(&l->thread, NULL, disk_main, l);

    if (native)
        return SH_FAIL(err, SH_E_NOMEM, "could not start a disk thread (error %d)", native);
    l->is_started = true;
    return SH_OK;
}

int disk_new(struct sh_loop *l, struct disk **out, struct sh_err *err)
{
    struct disk *c = calloc(1, sizeof(*c));
    int rc = SH_OK;

    *out = NULL;
    if (!c)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the disk threads");
    c->loop = l;
    c->done_tail = &c->done;
    pthread_mutex_init(&c->mutex, NULL);
    for (int i = 0; i < N_LINES; i++) {
        c->lines[i].disk = c;
        c->lines[i].tail = &c->lines[i].todo;
        pthread_cond_init(&c->lines[i].cond, NULL);
    }
    sh_loop_on_wake(l, on_wake, c);
    for (int i = 0; !rc && i < N_LINES; i++)
        rc = start_line(&c->lines[i], err);
    if (rc) {
        disk_free(c);
        return rc;
    }
    *out = c;
    return SH_OK;
}

void disk_free(struct disk *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->mutex);
    c->stop = true;
    for (int i = 0; i < N_LINES; i++)
        pthread_cond_signal(&c->lines[i].cond);
    pthread_mutex_unlock(&c->mutex);
    for (int i = 0; i < N_LINES; i++)
        if (c->lines[i].is_started)
            pthread_join(c->lines[i].thread, NULL);
    on_wake(c->loop, c);
    for (int i = 0; i < N_LINES; i++) {
        struct disk_task *t;

        while ((t = take_first_task(&c->lines[i]))) {
            SH_FAIL(&t->err, SH_E_CANCELLED, "the executor stopped before it was done");
            t->done(t);
        }
        pthread_cond_destroy(&c->lines[i].cond);
    }
    pthread_mutex_destroy(&c->mutex);
    free(c);
}

int disk_submit(struct disk *c, struct disk_task *t, struct sh_err *err)
{
    struct line *l = line_of_task(c, t);
    int rc = SH_OK;

    t->next = NULL;
    pthread_mutex_lock(&c->mutex);
    if (l->n >= DISK_MAX_TASKS) {
        rc = SH_FAIL(err, SH_E_QUEUEFULL, "%u files wait for the disk", DISK_MAX_TASKS);
    } else {
        *l->tail = t;
        l->tail = &t->next;
        l->n++;
        pthread_cond_signal(&l->cond);
    }
    pthread_mutex_unlock(&c->mutex);
    return rc;
}

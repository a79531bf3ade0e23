/* disk.c - see disk.h: the thread. disk_work.c does its work. */
#include "executor/files/disk.h"

#include <pthread.h>
#include <stdlib.h>

struct disk {
    struct sh_loop *loop;
    pthread_t thread;
    bool is_started;
    /* Protects the two lists, the count and `stop`; nothing is called while it is held. */
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    struct disk_task *todo, **todo_tail, *done, **done_tail;
    size_t n_todo;
    bool stop;
};

/* ------------------------------------------------------------------ the thread */

static void *thread_main(void *arg)
{
    struct disk *c = arg;

    pthread_mutex_lock(&c->mutex);
    while (!c->stop) {
        struct disk_task *t = c->todo;

        if (!t) {
            pthread_cond_wait(&c->cond, &c->mutex);
            continue;
        }
        c->todo = t->next;
        if (!c->todo)
            c->todo_tail = &c->todo;
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
            c->n_todo--;
        }
        pthread_mutex_unlock(&c->mutex);
        if (!t)
            return;
        t->done(t);
    }
}

int disk_new(struct sh_loop *l, struct disk **out, struct sh_err *err)
{
    struct disk *c = calloc(1, sizeof(*c));
    int native;

    *out = NULL;
    if (!c)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the disk thread");
    c->loop = l;
    c->todo_tail = &c->todo;
    c->done_tail = &c->done;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->cond, NULL);
    sh_loop_on_wake(l, on_wake, c);
    native = pthread_create(&c->thread, NULL, thread_main, c);
    if (native) {
        disk_free(c);
        return SH_FAIL(err, SH_E_NOMEM, "could not start the disk thread (error %d)", native);
    }
    c->is_started = true;
    *out = c;
    return SH_OK;
}

void disk_free(struct disk *c)
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
        struct disk_task *t = c->todo;

        c->todo = t->next;
        SH_FAIL(&t->err, SH_E_CANCELLED, "the executor stopped before it was written");
        t->done(t);
    }
    pthread_cond_destroy(&c->cond);
    pthread_mutex_destroy(&c->mutex);
    free(c);
}

int disk_submit(struct disk *c, struct disk_task *t, struct sh_err *err)
{
    int rc = SH_OK;

    t->next = NULL;
    pthread_mutex_lock(&c->mutex);
    if (c->n_todo >= DISK_MAX_TASKS) {
        rc = SH_FAIL(err, SH_E_QUEUEFULL, "%u files wait to be written", DISK_MAX_TASKS);
    } else {
        *c->todo_tail = t;
        c->todo_tail = &t->next;
        c->n_todo++;
        pthread_cond_signal(&c->cond);
    }
    pthread_mutex_unlock(&c->mutex);
    return rc;
}

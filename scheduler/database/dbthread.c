/* dbthread.c - see dbthread.h: the thread, its connection, and waiting operations. */
#include "scheduler/database/dbthread.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/thread.h"
#include "common/units.h"
#include "scheduler/database/dbqueue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define WARN_EVERY_MS 5000

struct dbthread {
    struct sh_loop *loop; /* KEEPS */
    struct db *db;        /* the thread's own */
    struct db_news news;  /* of others who reach the database */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* protects what follows; nothing is called while it is held */
    pthread_cond_t cond;
    struct dbqueue queue;
    struct dbitem *running;
    atomic_bool up;
    int64_t warned_ns; /* the thread's own */
    uint64_t warned_left;
};

static void wait_ms(struct dbthread *t, int64_t ms)
{
    const struct timespec until = sh_cond_deadline(SH_MS(ms));

    pthread_cond_timedwait(&t->cond, &t->lock, &until);
}

static void run_one(struct dbthread *t, struct dbitem *i)
{
    bool up = atomic_load(&t->up);

    dbitem_run(i, t->db, &up);
    atomic_store(&t->up, up);
    if (up && dbitem_failed_for_now(i) && !(i->op.flags & DBOP_FAIL_FAST) &&
        sh_log_ratelimit(&t->warned_ns, &t->warned_left, WARN_EVERY_MS)) {
        sh_log_err(SH_LOG_WARN, "db.wait", &i->err);
        t->warned_left = 0;
    }
}

static void *dbthread_main(void *arg)
{
    struct dbthread *t = arg;
    struct dbqueue *q = &t->queue;

    pthread_mutex_lock(&t->lock);
    for (;;) {
        struct dbitem *i;

        while (!q->todo.head && !q->stop)
            pthread_cond_wait(&t->cond, &t->lock);
        if (!q->todo.head)
            break;
        i = dbqueue_take(q, sh_clock_ns());
        if (!i) {
            wait_ms(t, DBTHREAD_RETRY_MS);
            continue;
        }
        t->running = i;
        pthread_mutex_unlock(&t->lock);
        run_one(t, i);
        pthread_mutex_lock(&t->lock);
        t->running = NULL;
        switch (dbqueue_settle(q, i, sh_clock_ns())) {
        case DBQUEUE_FINISHED:
            sh_loop_wake(t->loop);
            break;
        case DBQUEUE_BEHIND:
            break;
        case DBQUEUE_RETRY:
            wait_ms(t, DBTHREAD_RETRY_MS);
            break;
        }
        pthread_cond_broadcast(&t->cond);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

int dbthread_new(struct sh_loop *l, const char *db_url, const char *app, size_t max_queued,
                 struct dbthread **out, struct sh_err *err)
{
    struct dbthread *t = NULL;
    int rc;

    *out = NULL;
    t = calloc(1, sizeof(*t));
    if (!t) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the database thread");
        goto out;
    }
    t->loop = l;
    dbqueue_init(&t->queue, max_queued);
    pthread_mutex_init(&t->lock, NULL);
    sh_cond_init(&t->cond);
    rc = db_new(db_url, app, &t->db, err);
    if (rc)
        goto out;
    db_share(t->db, &t->news);
    db_by_index(t->db); /* of jobs there may be none now, and a hundred thousand soon */
    if (pthread_create(&t->thread, NULL, dbthread_main, t)) {
        rc = SH_FAIL(err, SH_E_UNAVAILABLE, "could not start the database thread");
        goto out;
    }
    t->started = true;
    *out = t;
    t = NULL;
out:
    dbthread_free(t, 0);
    return rc;
}

void dbthread_free(struct dbthread *t, int64_t max_wait_ms)
{
    int64_t until = sh_clock_ns() + SH_MS(max_wait_ms);

    if (!t)
        return;
    if (t->started) {
        pthread_mutex_lock(&t->lock);
        while ((t->queue.todo.head || t->running) && sh_clock_ns() < until)
            wait_ms(t, 50);
        t->queue.stop = true;
        dblist_free(&t->queue.todo);
        pthread_cond_broadcast(&t->cond);
        pthread_mutex_unlock(&t->lock);
        pthread_join(t->thread, NULL);
    }
    dbqueue_fini(&t->queue);
    db_free(t->db);
    pthread_cond_destroy(&t->cond);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

int dbthread_submit(struct dbthread *t, const struct dbop *op, struct sh_err *err)
{
    struct dbitem *i = NULL;
    int rc = dbitem_new(op, &i, err);

    if (rc)
        return rc;
    pthread_mutex_lock(&t->lock);
    rc = dbqueue_submit(&t->queue, i, err);
    pthread_cond_broadcast(&t->cond);
    pthread_mutex_unlock(&t->lock);
    if (rc)
        free(i); /* without its arg, which the caller keeps */
    return rc;
}

void dbthread_collect(struct dbthread *t, const uint64_t *generation)
{
    for (;;) {
        struct dbitem *i;

        pthread_mutex_lock(&t->lock);
        i = dblist_pop(&t->queue.finished);
        pthread_mutex_unlock(&t->lock);
        if (!i)
            return;
        dbitem_tell(i, generation);
        dbitem_free(i);
    }
}

void dbthread_drop(struct dbthread *t, uint64_t generation)
{
    struct dblist dropped;

    dblist_init(&dropped);
    pthread_mutex_lock(&t->lock);
    dbqueue_drop(&t->queue, generation, &dropped);
    pthread_mutex_unlock(&t->lock);
    dblist_free(&dropped);
}

bool dbthread_is_up(struct dbthread *t)
{
    return atomic_load(&t->up);
}

void dbthread_hear(struct dbthread *t)
{
    atomic_store(&t->news.reached_ns, sh_clock_ns());
}

#include "scheduler/dbthread.h"

#include "common/clock.h"
#include "common/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define WARN_EVERY_MS 5000
#define SOFT_TRIES 20 /* of db_tx, which itself repeats: then it is reported */

struct node {
    struct dbop op;
    struct node *next;
    struct sh_err err;
    int rc, soft_tries;
    int64_t after_ns; /* not before then */
};

struct queue {
    struct node *head, **tail;
    size_t n;
};

struct dbthread {
    struct sh_loop *loop; /* KEEPS */
    struct db *db;        /* the thread's own */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* protects what follows; nothing is called while it is held */
    pthread_cond_t cond;
    struct queue todo, finished;
    struct node *running;
    size_t max_queued;
    bool stop;
    atomic_bool up;
    int64_t warned_ns; /* the thread's own */
    uint64_t warned_left;
};

static void push_back(struct queue *q, struct node *n)
{
    n->next = NULL;
    *q->tail = n;
    q->tail = &n->next;
    q->n++;
}

static void push_front(struct queue *q, struct node *n)
{
    n->next = q->head;
    if (!q->head)
        q->tail = &n->next;
    q->head = n;
    q->n++;
}

static struct node *pop(struct queue *q)
{
    struct node *n = q->head;

    if (!n)
        return NULL;
    q->head = n->next;
    if (!q->head)
        q->tail = &q->head;
    q->n--;
    return n;
}

/* The first that is due; NULL: all of them wait. */
static struct node *take_due(struct queue *q)
{
    int64_t now_ns = sh_clock_ns();
    struct node **at = &q->head, *n;

    while (*at && (*at)->after_ns > now_ns)
        at = &(*at)->next;
    n = *at;
    if (!n)
        return NULL;
    *at = n->next;
    if (q->tail == &n->next)
        q->tail = at;
    q->n--;
    return n;
}

static void node_free(struct node *n)
{
    if (!n)
        return;
    if (n->op.free_arg)
        n->op.free_arg(n->op.arg);
    free(n);
}

static void wait_ms(struct dbthread *t, int64_t ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&t->cond, &t->lock, &until);
}

/* The database is away, or cannot take this now: the same operation can succeed later. */
static bool is_passing(int rc)
{
    return rc == SH_E_DBDOWN || rc == SH_E_TIMEOUT || rc == SH_E_DISKFULL || rc == SH_E_UNAVAILABLE;
}

static int run_one(struct dbthread *t, struct node *n)
{
    int rc = SH_OK;

    n->err = (struct sh_err){0};
    if (!atomic_load(&t->up))
        rc = db_ready(t->db, DB_SCHEMA_VERSION, &n->err);
    /* A schema we do not know is no better than none: wait until it is the right one again. */
    if (rc == SH_E_CONFLICT)
        rc = SH_E_DBDOWN;
    if (!rc)
        rc = n->op.run(t->db, n->op.arg, &n->err);
    atomic_store(&t->up, rc != SH_E_DBDOWN);
    if (is_passing(rc) && rc != SH_E_DBDOWN && !(n->op.flags & DBOP_FAIL_FAST) &&
        sh_log_ratelimit(&t->warned_ns, &t->warned_left, WARN_EVERY_MS)) {
        sh_log_err(SH_LOG_WARN, "db.wait", &n->err);
        t->warned_left = 0;
    }
    return rc;
}

/* Under the lock. Returns false if the operation has to be tried again. */
static bool is_finished(struct dbthread *t, struct node *n)
{
    bool again = is_passing(n->rc) && !(n->op.flags & DBOP_FAIL_FAST);

    if (n->rc == SH_E_DBSOFT && ++n->soft_tries < SOFT_TRIES)
        again = true;
    return !again || t->stop;
}

static void *thread_main(void *arg)
{
    struct dbthread *t = arg;

    pthread_mutex_lock(&t->lock);
    for (;;) {
        struct node *n;

        while (!t->todo.head && !t->stop)
            pthread_cond_wait(&t->cond, &t->lock);
        if (!t->todo.head)
            break;
        n = take_due(&t->todo);
        if (!n) {
            wait_ms(t, DBTHREAD_RETRY_MS);
            continue;
        }
        t->running = n;
        pthread_mutex_unlock(&t->lock);
        n->rc = run_one(t, n);
        pthread_mutex_lock(&t->lock);
        t->running = NULL;
        if (is_finished(t, n)) {
            push_back(&t->finished, n);
            sh_loop_wake(t->loop);
        } else if (n->rc == SH_E_TIMEOUT && n->op.flags & DBOP_ANY_ORDER) {
            n->after_ns = sh_clock_ns() + DBTHREAD_BEHIND_MS * INT64_C(1000000);
            push_back(&t->todo, n);
        } else {
            push_front(&t->todo, n);
            wait_ms(t, DBTHREAD_RETRY_MS);
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
    pthread_condattr_t attr;
    int rc;

    *out = NULL;
    t = calloc(1, sizeof(*t));
    if (!t) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the database thread");
        goto out;
    }
    t->loop = l;
    t->max_queued = max_queued;
    t->todo.tail = &t->todo.head;
    t->finished.tail = &t->finished.head;
    pthread_mutex_init(&t->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&t->cond, &attr);
    pthread_condattr_destroy(&attr);
    rc = db_new(db_url, app, &t->db, err);
    if (rc)
        goto out;
    if (pthread_create(&t->thread, NULL, thread_main, t)) {
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

static void free_queue(struct queue *q)
{
    struct node *n;

    while ((n = pop(q)))
        node_free(n);
}

void dbthread_free(struct dbthread *t, int64_t max_wait_ms)
{
    int64_t until = sh_clock_ns() + max_wait_ms * 1000000;

    if (!t)
        return;
    if (t->started) {
        pthread_mutex_lock(&t->lock);
        while ((t->todo.head || t->running) && sh_clock_ns() < until)
            wait_ms(t, 50);
        t->stop = true;
        free_queue(&t->todo);
        pthread_cond_broadcast(&t->cond);
        pthread_mutex_unlock(&t->lock);
        pthread_join(t->thread, NULL);
    }
    free_queue(&t->todo);
    free_queue(&t->finished);
    db_free(t->db);
    pthread_cond_destroy(&t->cond);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

int dbthread_submit(struct dbthread *t, const struct dbop *op, struct sh_err *err)
{
    struct node *n = calloc(1, sizeof(*n));
    bool full;

    if (!n)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a database operation");
    n->op = *op;
    pthread_mutex_lock(&t->lock);
    full = t->todo.n >= t->max_queued && !(op->flags & DBOP_FRONT);
    if (!full) {
        if (op->flags & DBOP_FRONT)
            push_front(&t->todo, n);
        else
            push_back(&t->todo, n);
        pthread_cond_broadcast(&t->cond);
    }
    pthread_mutex_unlock(&t->lock);
    if (!full)
        return SH_OK;
    free(n);
    return SH_FAIL(err, SH_E_QUEUEFULL, "%zu database operations wait already", t->max_queued);
}

void dbthread_collect(struct dbthread *t, const uint64_t *generation)
{
    for (;;) {
        struct node *n;

        pthread_mutex_lock(&t->lock);
        n = pop(&t->finished);
        pthread_mutex_unlock(&t->lock);
        if (!n)
            return;
        if (n->op.done && (n->op.generation == 0 || n->op.generation == *generation))
            n->op.done(n->op.ctx, n->op.arg, n->rc, &n->err);
        node_free(n);
    }
}

void dbthread_drop(struct dbthread *t, uint64_t generation)
{
    struct queue keep = {.tail = &keep.head}, drop = {.tail = &drop.head};
    struct node *n;

    pthread_mutex_lock(&t->lock);
    while ((n = pop(&t->todo)))
        push_back(n->op.generation == generation ? &drop : &keep, n);
    while ((n = pop(&keep)))
        push_back(&t->todo, n);
    pthread_mutex_unlock(&t->lock);
    free_queue(&drop);
}

bool dbthread_is_up(struct dbthread *t)
{
    return atomic_load(&t->up);
}

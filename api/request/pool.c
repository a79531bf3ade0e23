/* pool.c - see pool.h. One mutex protects the queue, which is ordered by turns: an owner's first
 * task goes to the next turn, its second to the one after that. */
#include "api/request/pool.h"

#include <pthread.h>
#include <stdlib.h>

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct pool_task *head;
    uint64_t turn; /* of the last task that was taken */
    size_t n_queued, max_queued, n_threads;
    bool stop;
    pthread_t *threads;
    struct db **dbs; /* one a thread; connects on first use */
    size_t next_db;  /* given out to the threads as they start */
};

static struct pool_task *next_task(struct pool *p)
{
    struct pool_task *t;

    pthread_mutex_lock(&p->lock);
    while (!p->head && !p->stop)
        pthread_cond_wait(&p->work, &p->lock);
    t = p->head;
    if (t) {
        p->head = t->next;
        p->turn = t->turn;
        p->n_queued--;
    }
    pthread_mutex_unlock(&p->lock);
    return t;
}

static void *pool_main(void *arg)
{
    struct pool *p = arg;
    struct pool_task *t;
    struct db *db;

    pthread_mutex_lock(&p->lock);
    db = p->dbs[p->next_db++];
    pthread_mutex_unlock(&p->lock);
    while ((t = next_task(p)))
        t->run(t, db);
    return NULL;
}

int pool_new(const char *name, const char *db_url, struct db_news *news, size_t n_threads,
             size_t max_queued, struct pool **out, struct sh_err *err)
{
    struct pool *p = calloc(1, sizeof(*p));
    int rc = SH_OK;

    *out = NULL;
    if (!p)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a thread pool");
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    p->max_queued = max_queued;
    p->threads = calloc(n_threads, sizeof(pthread_t));
    p->dbs = calloc(n_threads, sizeof(*p->dbs));
    if (!p->threads || !p->dbs)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a thread pool");
    for (size_t i = 0; !rc && i < n_threads; i++) {
        rc = db_new(db_url, name, &p->dbs[i], err);
        if (!rc)
            db_share(p->dbs[i], news);
    }
    /* n_threads counts what runs, so that pool_free() of a half-built pool joins just those. */
    for (size_t i = 0; !rc && i < n_threads; i++) {
        if (pthread_create(&p->threads[i], NULL, pool_main, p))
            rc = SH_FAIL(err, SH_E_NOMEM, "could not start a thread of the pool");
        else
            p->n_threads++;
    }
    if (rc) {
        for (size_t i = p->n_threads; p->dbs && i < n_threads; i++)
            db_free(p->dbs[i]);
        pool_free(p);
        return rc;
    }
    *out = p;
    return SH_OK;
}

void pool_stop(struct pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (size_t i = 0; i < p->n_threads; i++)
        pthread_join(p->threads[i], NULL);
    for (size_t i = 0; i < p->n_threads; i++) /* any of them may have had any of these */
        db_free(p->dbs[i]);
    p->n_threads = 0;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    pool_stop(p);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p->threads);
    free(p->dbs);
    free(p);
}

/* Links t behind those of its turn and before. Returns false if there is no room for it. */
static bool put_task(struct pool *p, struct pool_task *t)
{
    struct pool_task **at = &p->head;
    size_t n_own = 0;

    if (p->stop || p->n_queued >= p->max_queued)
        return false;
    t->turn = p->turn + 1;
    for (const struct pool_task *x = p->head; x; x = x->next) {
        if (x->owner != t->owner)
            continue;
        n_own++;
        t->turn = x->turn + 1;
    }
    if (n_own > 0 && n_own >= p->max_queued / 2)
        return false;
    while (*at && (*at)->turn <= t->turn)
        at = &(*at)->next;
    t->next = *at;
    *at = t;
    p->n_queued++;
    return true;
}

int pool_submit(struct pool *p, struct pool_task *t, struct sh_err *err)
{
    bool taken;

    pthread_mutex_lock(&p->lock);
    taken = put_task(p, t);
    if (taken)
        pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
    if (!taken)
        return SH_FAIL(err, SH_E_QUEUEFULL, "too many requests wait for a thread; try again later");
    return SH_OK;
}

/* waiters.c - see waiters.h. */
#include "api/cache/waiters.h"

#include "api/request/front.h"
#include "common/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define AT_ONCE 64

struct waiters {
    pthread_mutex_t lock;
    struct api_req **list; /* OWNED, [most]; in the order in which they came */
    size_t n, most;
    bool closed;
};

int waiters_new(size_t most, struct waiters **out, struct sh_err *err)
{
    struct waiters *w = calloc(1, sizeof(*w));

    *out = NULL;
    if (w)
        w->list = calloc(most, sizeof(*w->list));
    if (!w || !w->list) {
        free(w);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the list of waiting requests");
    }
    w->most = most;
    pthread_mutex_init(&w->lock, NULL);
    *out = w;
    return SH_OK;
}

void waiters_free(struct waiters *w)
{
    if (!w)
        return;
    pthread_mutex_destroy(&w->lock);
    free(w->list);
    free(w);
}

int waiters_add(struct waiters *w, struct api_req *q, struct sh_err *err)
{
    int rc = SH_OK;

    pthread_mutex_lock(&w->lock);
    if (w->closed)
        rc = SH_FAIL(err, SH_E_UNAVAILABLE, "this server is shutting down; try another one");
    else if (w->n == w->most)
        rc = SH_FAIL(err, SH_E_QUEUEFULL,
                     "%zu requests wait, as many as max-waits allows; try again", w->n);
    else
        w->list[w->n++] = q;
    pthread_mutex_unlock(&w->lock);
    return rc;
}

/* Takes the first of the list, at most `most` of them. */
static size_t take_waiters(struct waiters *w, struct api_req *out[static AT_ONCE], size_t most)
{
    size_t n;

    pthread_mutex_lock(&w->lock);
    n = SH_MIN(SH_MIN(most, w->n), (size_t)AT_ONCE);
    memcpy(out, w->list, n * sizeof(out[0]));
    w->n -= n;
    memmove(w->list, w->list + n, w->n * sizeof(w->list[0]));
    pthread_mutex_unlock(&w->lock);
    return n;
}

void waiters_wake(struct waiters *w)
{
    struct api_req *some[AT_ONCE];
    size_t left, n;

    pthread_mutex_lock(&w->lock);
    left = w->n;
    pthread_mutex_unlock(&w->lock);
    /* Who is woken may add itself again meanwhile: that one waits for the next change. */
    for (; (n = take_waiters(w, some, left)) > 0; left -= n)
        for (size_t i = 0; i < n; i++)
            req_wake(some[i]);
}

void waiters_close(struct waiters *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->closed = true;
    pthread_mutex_unlock(&w->lock);
    waiters_wake(w);
}

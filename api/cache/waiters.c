/* waiters.c - see waiters.h. */
#include "api/cache/waiters.h"

#include "api/http/http.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct waiters {
    pthread_mutex_t lock;
    struct api_req *list[WAITERS_MAX];
    size_t n;
    bool closed;
};

int waiters_new(struct waiters **out, struct sh_err *err)
{
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the list of waiting requests");
    pthread_mutex_init(&(*out)->lock, NULL);
    return SH_OK;
}

void waiters_free(struct waiters *w)
{
    if (!w)
        return;
    pthread_mutex_destroy(&w->lock);
    free(w);
}

int waiters_add(struct waiters *w, struct api_req *q, struct sh_err *err)
{
    int rc = SH_OK;

    pthread_mutex_lock(&w->lock);
    if (w->closed)
        rc = SH_FAIL(err, SH_E_UNAVAILABLE, "this server is shutting down; try another one");
    else if (w->n == WAITERS_MAX)
        rc = SH_FAIL(err, SH_E_QUEUEFULL, "%d requests wait already; try again", WAITERS_MAX);
    else
        w->list[w->n++] = q;
    pthread_mutex_unlock(&w->lock);
    return rc;
}

void waiters_wake(struct waiters *w)
{
    struct api_req *list[WAITERS_MAX];
    size_t n;

    pthread_mutex_lock(&w->lock);
    n = w->n;
    memcpy(list, w->list, n * sizeof(list[0]));
    w->n = 0;
    pthread_mutex_unlock(&w->lock);
    for (size_t i = 0; i < n; i++)
        http_wake(list[i]);
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

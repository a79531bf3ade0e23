/* arrival.c - see arrival.h. */
#include "executor/models/arrival.h"

#include "common/buf.h"
#include "common/log.h"
#include "common/wire.h"
#include "executor/models/host.h"
#include "executor/models/model_int.h"
#include "executor/models/packed.h"
#include "runtime/device/lock.h"

#include <stdlib.h>

struct arrival {
    struct lock_task lock; /* first member */
    struct arrival *next;
    struct worker *w; /* BORROWED: it is alive */
    int64_t handle;
    struct sh_buf message;
    struct sh_shm image;
};

static void free_arrival(struct store *s, struct arrival *a)
{
    locking_stop(store__env(s)->locking, &a->lock);
    locking_let_go(store__env(s)->locking, &a->image, a->lock.locked);
    sh_buf_fini(&a->message);
    free(a);
}

/* It is there in full only once its pages are locked. */
static bool may_stay(const struct model *m, uint64_t bytes)
{
    return m->handle < 0 || bytes <= host_left(m);
}

/* A small one takes no longer than a piece. */
static bool is_to_be_held(struct store *s, const struct worker *w,
                          const struct msg_wk_model_done *d, size_t n_fds)
{
    const struct store_env *env = store__env(s);
    const struct model *m = store_find(s, d->handle);

    return m && m->base == m && m->phase == MODEL_BUILDING && w->preparing == d->handle && !d->rc &&
           n_fds == 1 && packed__stored(m, d) > DEV_LOCK_PIECE &&
           may_stay(m, packed__stored(m, d)) && dev_mem_is_queued(env->mem) &&
           HOOK_ASK(env->hooks, locks_images, true);
}

static struct arrival *new_arrival(struct store *s, struct worker *w,
                                   const struct msg_wk_model_done *d, int *fd)
{
    struct arrival *a = calloc(1, sizeof(*a));
    const struct sh_msg m = {.type = MSG_WK_MODEL_DONE, .u.wk_model_done = *d};

    if (!a)
        return NULL;
    *a = (struct arrival){.w = w, .handle = d->handle, .image.fd = -1};
    sh_buf_init(&a->message, SH_WIRE_MAX_FRAME);
    if (sh_msg_encode(&m, &a->message, NULL) ||
        sh_shm_map(*fd, (size_t)packed__stored(store_find(s, d->handle), d), false, &a->image,
                   NULL)) {
        free_arrival(s, a);
        return NULL;
    }
    *fd = -1;
    return a;
}

/* The model stays while its worker compiles. What could not be locked is tried once more there, and
 * fails the load. */
static void take_arrival(struct store *s, struct arrival *a)
{
    struct model *m = store_find(s, a->handle);
    struct sh_msg msg;
    struct sh_err err = {0};
    int fd = a->image.fd;

    if (!m || sh_msg_decode(MSG_WK_MODEL_DONE, a->message.data, a->message.len, &msg, &err)) {
        sh_log_err(SH_LOG_ERROR, "model.arrival", &err);
        return; /* the worker is ended as one that hangs */
    }
    m->image = a->image;
    m->locked = a->lock.locked;
    a->image = (struct sh_shm){.fd = -1};
    a->lock.locked = 0;
    store__take_done(s, a->w, &msg.u.wk_model_done, &fd, 1);
    if (!m->has_image)
        model__drop_tables(m);
}

/* NULL behind the last one: there is none. */
static struct arrival **find_arrival(struct store *s, int64_t handle)
{
    struct arrival **p = store__arrivals(s);

    while (*p && (*p)->handle != handle)
        p = &(*p)->next;
    return p;
}

static void on_locked(struct lock_task *t, const struct sh_err *why)
{
    struct arrival *a = (struct arrival *)t;
    struct store *s = t->arg;

    (void)why; /* see take_arrival() */
    *find_arrival(s, a->handle) = a->next;
    take_arrival(s, a);
    free_arrival(s, a);
}

static bool hold_image(struct store *s, struct worker *w, const struct msg_wk_model_done *d,
                       int *fd)
{
    struct arrival *a = new_arrival(s, w, d, fd);

    if (!a)
        return false;
    a->lock = (struct lock_task){
        .base = a->image.base, .bytes = a->image.bytes, .done = on_locked, .arg = s};
    a->next = *store__arrivals(s);
    *store__arrivals(s) = a;
    locking_begin(store__env(s)->locking, &a->lock);
    return true;
}

/* Who cannot be held is locked at once. */
void store_on_model_done(struct store *s, struct worker *w, const struct msg_wk_model_done *d,
                         int *fds, size_t n_fds)
{
    if (*find_arrival(s, w->preparing)) /* it has said so already */
        worker_kill_stray(w, MSG_WK_MODEL_DONE);
    else if (!is_to_be_held(s, w, d, n_fds) || !hold_image(s, w, d, &fds[0]))
        store__take_done(s, w, d, fds, n_fds);
}

void arrival__lose(struct store *s, int64_t handle)
{
    struct arrival **p = find_arrival(s, handle), *a = *p;

    if (!a)
        return;
    *p = a->next;
    free_arrival(s, a);
}

void arrival__stop(struct store *s)
{
    while (*store__arrivals(s))
        arrival__lose(s, (*store__arrivals(s))->handle);
}

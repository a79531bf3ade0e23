/* locking.c - see locking.h. */
#include "executor/memory/locking.h"

#include "common/clock.h"
#include "common/mem.h"
#include "runtime/device/lock.h"

#include <assert.h>
#include <stdlib.h>

struct locking {
    struct dev_mem *mem;
    struct sh_timer *timer;
    struct lock_task *first; /* those without done() are struct gone, OWNED */
    int64_t until_ns;        /* the time of runs */
};

struct gone {              /* to be unlocked, if it is locked, and freed */
    struct lock_task task; /* first member */
    struct sh_shm mem;
};

static void set_timer(struct locking *k)
{
    const int64_t left_ns = k->until_ns - sh_clock_ns();

    sh_timer_set(k->timer, k->first ? SH_MAX(left_ns, (int64_t)0) : -1);
}

static void line_up(struct locking *k, struct lock_task *t)
{
    struct lock_task **end = &k->first;

    while (*end)
        end = &(*end)->next;
    t->next = NULL;
    *end = t;
}

/* The pages go with each piece: to free them takes as long, locked or not. */
static void drop_piece(struct locking *k, struct gone *g)
{
    const size_t left = g->mem.bytes - dev_lock_last_piece(g->mem.base, g->mem.bytes);

    if (g->task.locked > left)
        dev_mem_host_unlock_last(k->mem, g->mem.base, &g->task.locked);
    sh_shm_cut(&g->mem, left);
}

static bool is_through(const struct lock_task *t)
{
    return t->done ? t->locked == t->bytes : ((const struct gone *)t)->mem.bytes == 0;
}

static void free_gone(struct gone *g)
{
    sh_shm_fini(&g->mem);
    free(g);
}

static void on_timer(struct sh_loop *l, void *arg)
{
    struct locking *k = arg;
    struct lock_task *t = k->first;
    const int64_t from = sh_clock_ns();
    struct sh_err err = {0};
    int rc = SH_OK;

    (void)l;
    if (!t)
        return;
    k->first = t->next;
    if (t->done)
        rc = dev_mem_host_lock_next(k->mem, t->base, t->bytes, &t->locked, &err);
    else
        drop_piece(k, (struct gone *)t);
    k->until_ns = 2 * sh_clock_ns() - from;
    if (!rc && !is_through(t))
        line_up(k, t);
    else if (t->done)
        t->done(t, rc ? &err : NULL);
    else
        free_gone((struct gone *)t);
    set_timer(k);
}

int locking_new(struct sh_loop *loop, struct dev_mem *mem, struct locking **out, struct sh_err *err)
{
    struct locking *k = calloc(1, sizeof(*k));
    int rc;

    *out = NULL;
    if (!k)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate what page-locks memory");
    k->mem = mem;
    rc = sh_timer_add(loop, -1, 0, on_timer, k, &k->timer, err);
    if (rc) {
        free(k);
        return rc;
    }
    *out = k;
    return SH_OK;
}

void locking_free(struct locking *k)
{
    if (!k)
        return;
    while (k->first) {
        struct gone *g = (struct gone *)k->first;

        assert(!g->task.done);
        k->first = g->task.next;
        dev_mem_host_unlock_all(k->mem, g->mem.base, &g->task.locked);
        free_gone(g);
    }
    sh_timer_del(k->timer);
    free(k);
}

void locking_begin(struct locking *k, struct lock_task *t)
{
    line_up(k, t);
    set_timer(k);
}

void locking_stop(struct locking *k, struct lock_task *t)
{
    struct lock_task **p = &k->first;

    while (*p && *p != t)
        p = &(*p)->next;
    if (*p)
        *p = t->next;
    set_timer(k);
}

void locking_let_go(struct locking *k, struct sh_shm *mem, size_t locked)
{
    struct gone *g;

    if (!mem->base)
        return;
    g = calloc(1, sizeof(*g));
    if (!g) { /* at once */
        dev_mem_host_unlock_all(k->mem, mem->base, &locked);
        sh_shm_fini(mem);
        return;
    }
    *g = (struct gone){.task.locked = locked, .mem = *mem};
    *mem = (struct sh_shm){.fd = -1};
    locking_begin(k, &g->task);
}

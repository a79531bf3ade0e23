/* slabs.c - see slabs.h. */
#include "executor/requests/slabs.h"

#include "common/io.h"
#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_OWN 4 /* slabs of the executor itself, for evaluations */

struct slab {
    uint64_t api_id;
    struct sh_shm shm;
    bool waits_for_pages;  /* before it waits to be locked */
    struct lock_task lock; /* all of it is locked: the copy lane may read it */
};

struct gone_slab { /* until the lane, which may still read it, has passed */
    struct dev_mem *mem;
    struct slab *slab; /* OWNED */
};

struct touch_task {        /* makes the pages of a slab */
    struct disk_task task; /* first member */
    struct slabs *slabs;
    uint64_t api_id;
    int fd; /* OWNED */
    off_t bytes;
};

struct slabs {
    struct pool *pool;
    struct tx *tx;
    struct dev_mem *mem;
    struct locking *locking;
    struct disk *disk;
    struct slab **list; /* OWNED, [max] */
    size_t n, max;
    bool makes_pages; /* of one at a time: others need the thread's places, too */
    uint64_t n_own;   /* given out so far */
};

int slabs_new(struct pool *pool, struct tx *tx, struct locking *locking, struct disk *disk,
              size_t max_apis, struct slabs **out, struct sh_err *err)
{
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the list of slabs");
    **out = (struct slabs){.pool = pool,
                           .tx = tx,
                           .mem = tx_mem(tx),
                           .locking = locking,
                           .disk = disk,
                           .max = max_apis + MAX_OWN};
    (*out)->list = calloc((*out)->max, sizeof(struct slab *));
    if ((*out)->list)
        return SH_OK;
    slabs_free(*out);
    *out = NULL;
    return SH_FAIL(err, SH_E_NOMEM, "could not allocate the list of slabs");
}

/* At once, and not by locking_let_go(): that would empty memory which the API's process may still
 * use, as after a connection that was lost. */
static void free_slab(struct dev_mem *mem, struct slab *s)
{
    dev_mem_host_unlock_all(mem, s->shm.base, &s->lock.locked);
    sh_shm_fini(&s->shm);
    free(s);
}

void slabs_free(struct slabs *s)
{
    for (size_t i = 0; s && i < s->n; i++) {
        locking_stop(s->locking, &s->list[i]->lock);
        free_slab(s->mem, s->list[i]);
    }
    if (s)
        free(s->list);
    free(s);
}

bool slabs_are_hidden(const struct slabs *s)
{
    return !dev_mem_is_queued(s->mem);
}

uint64_t slabs_own_id(struct slabs *s)
{
    return ++s->n_own;
}

static struct slab *find_slab(const struct slabs *s, uint64_t api_id)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i]->api_id == api_id)
            return s->list[i];
    return NULL;
}

const struct sh_shm *slabs_find(const struct slabs *s, uint64_t api_id)
{
    const struct slab *slab = find_slab(s, api_id);

    return slab ? &slab->shm : NULL;
}

const struct sh_shm *slabs_find_locked(const struct slabs *s, uint64_t api_id)
{
    const struct slab *slab = find_slab(s, api_id);

    return slab && slab->lock.locked == slab->shm.bytes ? &slab->shm : NULL;
}

/* ------------------------------------------------------------------ what workers know */

static void tell_of_slab(struct worker *w, const struct slab *s)
{
    struct sh_msg m = {.type = MSG_WK_SLAB};

    m.u.wk_slab = (struct msg_wk_slab){.api_id = s->api_id, .bytes = s->shm.bytes};
    worker_send(w, &m, &s->shm.fd, 1);
}

void slabs_greet(struct slabs *s, struct worker *w)
{
    for (size_t i = 0; i < s->n && !slabs_are_hidden(s); i++)
        tell_of_slab(w, s->list[i]);
}

static void tell_all(const struct slabs *s, const struct slab *slab)
{
    struct pool *p = s->pool;

    for (size_t i = 0; i < pool_size(p) && !slabs_are_hidden(s); i++)
        if (worker_is_alive(pool_at(p, i)))
            tell_of_slab(pool_at(p, i), slab);
}

static void tell_gone(const struct slabs *s, uint64_t api_id)
{
    struct sh_msg m = {.type = MSG_WK_SLAB_GONE};
    struct pool *p = s->pool;

    m.u.wk_slab_gone.api_id = api_id;
    for (size_t i = 0; i < pool_size(p) && !slabs_are_hidden(s); i++)
        if (worker_is_alive(pool_at(p, i)))
            worker_send(pool_at(p, i), &m, NULL, 0);
}

/* ------------------------------------------------------------------ page-locking */

static void on_locked(struct lock_task *t, const struct sh_err *why)
{
    (void)t;
    if (why)
        sh_log_err(SH_LOG_WARN, "slab.lock", why); /* workers bring all inputs, nothing else */
}

static void begin_to_lock(struct slabs *s, struct slab *slab)
{
    slab->lock =
        (struct lock_task){.base = slab->shm.base, .bytes = slab->shm.bytes, .done = on_locked};
    locking_begin(s->locking, &slab->lock);
}

/* On the thread. What is there stays as it is. Pages that the first call gives are not zeroed yet:
 * whoever touches one first has to do that, or the second call. */
static int allocate_pages(struct disk_task *t, struct sh_err *err)
{
    const struct touch_task *k = (struct touch_task *)t;

    for (int i = 0; i < 2; i++)
        if (fallocate(k->fd, 0, 0, k->bytes) != 0)
            return SH_FAIL_ERRNO(err, SH_E_NOMEM, "could not make the memory of a payload slab");
    return SH_OK;
}

static void free_touch(struct touch_task *k)
{
    if (k->fd >= 0)
        close(k->fd);
    free(k);
}

static void make_next_pages(struct slabs *s);

/* Should that have failed, locking will, too, and say so. */
static void on_touched(struct disk_task *t)
{
    struct touch_task *k = (struct touch_task *)t;
    struct slabs *s = k->slabs;
    struct slab *slab = find_slab(s, k->api_id);

    s->makes_pages = false;
    if (slab && !slab->waits_for_pages) /* not another one of the same API, which came meanwhile */
        begin_to_lock(s, slab);
    free_touch(k);
    make_next_pages(s);
}

static bool make_pages(struct slabs *s, const struct slab *slab)
{
    struct touch_task *k = calloc(1, sizeof(*k));

    if (!k)
        return false;
    *k = (struct touch_task){.task = {.work = allocate_pages, .done = on_touched},
                             .slabs = s,
                             .api_id = slab->api_id,
                             .fd = fcntl(slab->shm.fd, F_DUPFD_CLOEXEC, 3),
                             .bytes = (off_t)slab->shm.bytes};
    if (k->fd >= 0 && disk_submit(s->disk, &k->task, NULL) == SH_OK)
        return true;
    free_touch(k);
    return false;
}

/* Where that cannot be, its pages are made while they are locked. */
static void make_next_pages(struct slabs *s)
{
    for (size_t i = 0; i < s->n && !s->makes_pages; i++) {
        struct slab *slab = s->list[i];

        if (!slab->waits_for_pages)
            continue;
        slab->waits_for_pages = false;
        s->makes_pages = make_pages(s, slab);
        if (!s->makes_pages)
            begin_to_lock(s, slab);
    }
}

/* ------------------------------------------------------------------ they come and go */

/* TAKES fd. */
static int map_slab(uint64_t api_id, int fd, uint64_t bytes, struct slab **out, struct sh_err *err)
{
    struct slab *s = calloc(1, sizeof(*s));
    int rc = s ? sh_shm_map(fd, (size_t)bytes, true, &s->shm, err)
               : SH_FAIL(err, SH_E_NOMEM, "could not allocate a payload slab");

    if (rc) {
        close(fd);
        free(s);
        return rc;
    }
    s->api_id = api_id;
    *out = s;
    return SH_OK;
}

int slabs_add(struct slabs *s, uint64_t api_id, int fd, uint64_t bytes, struct sh_err *err)
{
    struct slab *new;
    int own, rc;

    if (s->n == s->max)
        return SH_FAIL(err, SH_E_TOOBIG, "there are %zu payload slabs (max-apis)", s->n);
    own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0)
        return SH_FAIL_ERRNO(err, sh_open_rc(errno), "could not keep a payload slab");
    rc = map_slab(api_id, own, bytes, &new, err);
    if (rc)
        return rc;
    s->list[s->n++] = new;
    new->waits_for_pages = !slabs_are_hidden(s);
    if (new->waits_for_pages)
        make_next_pages(s);
    else
        begin_to_lock(s, new);
    tell_all(s, new);
    return SH_OK;
}

static void on_passed(void *arg)
{
    struct gone_slab *g = arg;

    free_slab(g->mem, g->slab);
    free(g);
}

/* Should the lane never say that it has passed, the memory stays until the process ends. */
static void let_slab_go(const struct slabs *all, struct slab *s)
{
    struct gone_slab *g = malloc(sizeof(*g));
    struct sh_err err = {0};

    locking_stop(all->locking, &s->lock);
    if (!g)
        SH_FAIL(&err, SH_E_NOMEM, "could not note that a slab is gone");
    else
        *g = (struct gone_slab){.mem = all->mem, .slab = s};
    if (!g || tx_mark(all->tx, TX_LANE_IN, on_passed, g, &err)) {
        sh_log_err(SH_LOG_ERROR, "slab.gone", &err);
        free(g);
    }
}

void slabs_drop(struct slabs *s, uint64_t api_id)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->list[i]->api_id != api_id)
            continue;
        let_slab_go(s, s->list[i]);
        s->list[i] = s->list[--s->n];
        tell_gone(s, api_id);
        return;
    }
}

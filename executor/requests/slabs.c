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
    bool is_locked; /* page-locked: the copy lane may read it */
};

struct gone_slab { /* until the lane, which may still read it, has passed */
    struct dev_mem *mem;
    struct slab slab;
};

struct slabs {
    struct pool *pool;
    struct tx *tx;
    struct dev_mem *mem;
    struct slab *list; /* OWNED, [max] */
    size_t n, max;
    uint64_t n_own; /* given out so far */
};

int slabs_new(struct pool *pool, struct tx *tx, size_t max_apis, struct slabs **out,
              struct sh_err *err)
{
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the list of slabs");
    **out = (struct slabs){.pool = pool, .tx = tx, .mem = tx_mem(tx), .max = max_apis + MAX_OWN};
    (*out)->list = calloc((*out)->max, sizeof(*(*out)->list));
    if ((*out)->list)
        return SH_OK;
    slabs_free(*out);
    *out = NULL;
    return SH_FAIL(err, SH_E_NOMEM, "could not allocate the list of slabs");
}

static void free_slab(struct dev_mem *mem, struct slab *s)
{
    if (s->is_locked)
        dev_mem_host_unlock(mem, s->shm.base);
    sh_shm_fini(&s->shm);
}

void slabs_free(struct slabs *s)
{
    for (size_t i = 0; s && i < s->n; i++)
        free_slab(s->mem, &s->list[i]);
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

static const struct slab *find_slab(const struct slabs *s, uint64_t api_id)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].api_id == api_id)
            return &s->list[i];
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

    return slab && slab->is_locked ? &slab->shm : NULL;
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
        tell_of_slab(w, &s->list[i]);
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

/* ------------------------------------------------------------------ they come and go */

int slabs_add(struct slabs *s, uint64_t api_id, int fd, uint64_t bytes, struct sh_err *err)
{
    struct slab new = {.api_id = api_id};
    struct sh_err why = {0};
    int own, rc;

    if (s->n == s->max)
        return SH_FAIL(err, SH_E_TOOBIG, "there are %zu payload slabs (max-apis)", s->n);
    own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0)
        return SH_FAIL_ERRNO(err, sh_open_rc(errno), "could not keep a payload slab");
    rc = sh_shm_map(own, (size_t)bytes, true, &new.shm, err);
    if (rc) {
        close(own);
        return rc;
    }
    new.is_locked = !dev_mem_host_lock(s->mem, new.shm.base, new.shm.bytes, &why);
    if (!new.is_locked)
        sh_log_err(SH_LOG_WARN, "slab.lock", &why); /* workers bring all inputs, nothing else */
    s->list[s->n++] = new;
    tell_all(s, &new);
    return SH_OK;
}

static void on_passed(void *arg)
{
    struct gone_slab *g = arg;

    free_slab(g->mem, &g->slab);
    free(g);
}

/* Should the lane never say that it has passed, the memory stays until the process ends. */
static void let_slab_go(const struct slabs *all, const struct slab *s)
{
    struct gone_slab *g = malloc(sizeof(*g));
    struct sh_err err = {0};

    if (!g)
        SH_FAIL(&err, SH_E_NOMEM, "could not note that a slab is gone");
    else
        *g = (struct gone_slab){.mem = all->mem, .slab = *s};
    if (!g || tx_mark(all->tx, TX_LANE_IN, on_passed, g, &err)) {
        sh_log_err(SH_LOG_ERROR, "slab.gone", &err);
        free(g);
    }
}

void slabs_drop(struct slabs *s, uint64_t api_id)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->list[i].api_id != api_id)
            continue;
        let_slab_go(s, &s->list[i]);
        s->list[i] = s->list[--s->n];
        tell_gone(s, api_id);
        return;
    }
}

/* keep.c - see keep.h. */
#include "executor/models/keep.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/units.h"
#include "executor/models/model_int.h"

#include <inttypes.h>

struct kept_about keep_about(const struct model *m, uint32_t batches[static MODEL_MAX_BATCHES])
{
    for (uint32_t i = 0; i < m->n_batches; i++)
        batches[i] = m->batches[i].batch;
    return (struct kept_about){.image_bytes = m->image_bytes,
                               .layer_ends = m->layer_ends,
                               .link_ends = m->link_ends,
                               .n_layers = m->n_layers,
                               .batches = batches,
                               .n_batches = m->n_batches};
}

void keep_made(struct model *m, const struct worker *w, const struct msg_wk_model_done *d,
               int image)
{
    uint32_t batches[MODEL_MAX_BATCHES];
    struct kept_about about = keep_about(m, batches);
    struct sh_err err = {0};

    m->is_unkept = false;
    if (!m->kept.path)
        return;
    if (!worker_met_only(w, m->tag)) {
        m->is_unkept = true;
        return;
    }
    if (d->layer_ns.len != sizeof(double) * m->n_layers * m->n_batches)
        return; /* it has fewer batch sizes than who built it */
    if (d->link_ends.len != (m->link_ends ? m->n_layers * sizeof(*m->link_ends) : 0) ||
        (m->link_ends && memcmp(d->link_ends.data, m->link_ends, d->link_ends.len) != 0))
        return; /* it decided anew whether to pack: the file would not be what it says */
    if (kept_dir_write(store__env(m->store)->kept, &m->kept, &about, d->layer_ns.data, image, &err))
        sh_log_err(SH_LOG_WARN, "model.keep", &err);
}

static bool is_served_beside(struct store *s, const struct worker *w, const struct model *m)
{
    struct pool *p = store__env(s)->pool;

    for (size_t i = 0; i < pool_size(p); i++)
        if (pool_at(p, i) != w && worker_is_alive(pool_at(p, i)) &&
            worker_has_model(pool_at(p, i), m->handle))
            return true;
    return false;
}

static struct model *first_unkept(struct store *s)
{
    for (struct model *m = store_next(s, NULL); m; m = store_next(s, m))
        if (m->is_unkept && m->phase == MODEL_READY && m->handle > 0 &&
            sh_clock_ns() >= m->retry_ns)
            return m;
    return NULL;
}

struct model *keep_next(struct store *s, const struct worker *w)
{
    struct model *m = w->is_renewed && worker_met_only(w, 0) ? first_unkept(s) : NULL;

    return m && is_served_beside(s, w, m) ? m : NULL;
}

void keep_second(struct store *s)
{
    const struct store_users *u = store__users(s);
    const struct store_env *env = store__env(s);
    const int64_t pause_ns = SH_S(env->renew_s);
    int64_t *renewed_ns = store__renewed_ns(s);
    struct worker *best = NULL;

    if (!pause_ns || sh_clock_ns() - *renewed_ns < pause_ns || !first_unkept(s) ||
        !u->is_quiet(u->arg))
        return;
    for (size_t i = 0; i < pool_size(env->pool); i++) {
        struct worker *w = pool_at(env->pool, i);

        if (!worker_is_alive(w) || w->preparing || w->state == WORKER_STARTING)
            return; /* not now: there is less than usual already */
        if (worker_is_idle(w) && !w->job && served__is_spare(s, w))
            best = w;
    }
    if (!best)
        return;
    *renewed_ns = sh_clock_ns();
    SH_INFO("worker.renew", "worker=%u model=%s", best->index, first_unkept(s)->name);
    worker_renew(best);
}

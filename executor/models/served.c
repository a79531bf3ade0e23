/* served.c - which READY models a worker has that takes runs, and who is told of that. */
#include "common/clock.h"
#include "executor/models/model_int.h"

static bool takes_runs(struct store *s, const struct worker *w)
{
    const struct store_users *u = store__users(s);

    return waits_takes_runs(w, u->trainer(u->arg)) && !waits_is_stuck(w, sh_clock_ns());
}

bool served__is_taken(const struct model *m)
{
    struct pool *p = store__env(m->store)->pool;

    for (size_t i = 0; i < pool_size(p); i++)
        if (worker_has_model(pool_at(p, i), m->handle) && takes_runs(m->store, pool_at(p, i)))
            return true;
    return false;
}

/* A shape that is not served counts as gone: whoever was let in waits until it is compiled. So one
 * is served as long as a worker has it at all, and the wait for that one is told. */
static bool has_server(const struct model *m)
{
    struct pool *p = store__env(m->store)->pool;

    if (m->base == m)
        return served__is_taken(m);
    for (size_t i = 0; i < pool_size(p); i++) {
        const struct worker *w = pool_at(p, i);

        if (worker_has_model(w, m->handle) && worker_is_alive(w) && w->state != WORKER_STARTING)
            return true;
    }
    return false;
}

void served__note(struct model *m)
{
    const bool is_served = m->phase == MODEL_READY && has_server(m);

    if (m->is_served == is_served)
        return;
    m->is_served = is_served;
    m->wait_told_ns = 0;
    store__counts(m->store)->n_served_changes++;
    if (m->phase == MODEL_READY)
        model_report(m);
}

void served__note_all(struct store *s)
{
    for (struct model *m = store_next(s, NULL); m; m = store_next(s, m))
        served__note(m);
    for (struct model *m = store_next_shape(s, NULL); m; m = store_next_shape(s, m))
        served__note(m);
}

void served__join(struct store *s, struct worker *w)
{
    pool_set_state(w, WORKER_STANDBY);
    served__note_all(s);
}

bool served__by_none_but(struct store *s, const struct worker *w)
{
    struct pool *p = store__env(s)->pool;

    for (size_t i = 0; i < pool_size(p); i++) {
        const struct worker *o = pool_at(p, i);

        if (o != w && takes_runs(s, o))
            return false;
    }
    return true;
}

bool served__is_spare(struct store *s, const struct worker *w)
{
    struct pool *p = store__env(s)->pool;

    for (size_t k = 0; k < w->n_models; k++) {
        bool any = false;

        for (size_t i = 0; i < pool_size(p) && !any; i++) {
            const struct worker *o = pool_at(p, i);

            any = o != w && worker_is_idle(o) && worker_has_model(o, w->models[k]);
        }
        if (!any)
            return false;
    }
    return true;
}
